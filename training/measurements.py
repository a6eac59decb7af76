"""Measurements that a run makes before it trains: cases, calibrations, the reference spectrum, what a support shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from prime_anc.measure.prior import PathPrior, learn_path_prior
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.support.statistics import SupportStatistics, learn_support_statistics, learn_uncertainty
from prime_anc.method.support.wearing import Complex, WearingChange, learn_wearing, mean_path
from training.config import TrainingConfig
from training.datasets.noise import NoiseSet, reference_psd
from training.datasets.pandar import read_handling
from training.datasets.path_pairs import DatasetError, PathDataset, PathPair
from training.datasets.variants import secondary_variants
from training.objective import TruePaths
from training.simulated_calibration import SimulatedEstimate, simulate_calibration
from training.training_set import TrainingSet, draw_mixtures, order_listeners, true_responses

VARIANT_SEED = 0
VARIED_WINDOWS = (4096, 8192, 16_384)
VARIED_PROBES = (1, 5)
VARIED_SNR_DB = (20.0, 50.0)
NOISY_SHARE = 0.5
# Range of take durations; scores begin after 6.5 s, and a longer take would only raise the SNR.
VARIED_TAKE_S = (1.0, 6.5)

NORMAL, LOOSE = "normal", ("slightly loose", "loose")
# Fits of the handling cases.
CLOSED, PRESSED, OPEN = "closed", "closed and pressed", "open"


@dataclass(eq=False)
class Measurements:
    """A data set as measured in a run; calibration options are those of `simulate_calibration`."""

    dataset: PathDataset
    noise: NoiseSet
    window: int
    # True paths: originals, then variants with conditions "all".
    pairs: tuple[PathPair, ...]
    # Calibrations of the pairs with all recordings of `noise`, float64.
    estimates: SimulatedEstimate
    # Mean square per bin, float64 [16385].
    reference_psd: Tensor
    # Name of the recordings in rows, if there are several ways to calibrate.
    probe: str | None = None
    snr_db: float | None = None
    # Prior per listener for its calibrations; None if regularised.
    priors: Mapping[str, PathPrior] | None = None

    @classmethod
    def calibrate(
        cls,
        dataset: PathDataset,
        noise: NoiseSet,
        *,
        window: int,
        conditions: str,
        snr_db: float | None = None,
        psd: Tensor | None = None,
        probe: str | None = None,
        priors: Mapping[str, PathPrior] | None = None,
    ) -> Measurements:
        """Simulate the calibration of all pairs with all recordings; psd defaults to that of `noise`."""
        pairs = dataset.pairs
        if conditions == "all":
            pairs += tuple(v for pair in pairs for v in secondary_variants(pair, VARIANT_SEED))
        return cls(
            dataset=dataset,
            noise=noise,
            window=window,
            pairs=pairs,
            estimates=simulate_calibration(
                pairs,
                noise,
                window=window,
                primary_taps=dataset.primary_taps,
                snr_db=snr_db,
                priors=priors,
            ),
            reference_psd=torch.from_numpy(reference_psd(noise)) if psd is None else psd,
            probe=probe,
            snr_db=snr_db,
            priors=priors,
        )

    def indices(self, listeners: tuple[str, ...]) -> list[int]:
        """Return the positions of the listeners' pairs in `pairs`."""
        return [i for i, pair in enumerate(self.pairs) if pair.listener in listeners]

    def paths(self, indices: list[int], dtype: torch.dtype = torch.float32) -> AcousticPaths:
        """Return the estimated paths of some pairs on the design grid."""
        return AcousticPaths.from_impulse_responses(
            self.estimates.primary[indices], self.estimates.secondary[indices]
        ).to(dtype)

    def true_paths(self, indices: list[int], dtype: torch.dtype = torch.float32) -> AcousticPaths:
        """Return the true paths of some pairs on the design grid, for the adaptive references only."""
        responses = true_responses([self.pairs[index] for index in indices])
        return AcousticPaths.from_impulse_responses(*responses).to(dtype)

    def training_set(
        self, support: tuple[str, ...], config: TrainingConfig, device: torch.device, seed: int = 0
    ) -> TrainingSet:
        """Return the support listeners' cases and mixtures; no other listener's data is used.

        Parameters
        ----------
        seed
            Seed of the mixtures and of the varied calibrations; a run passes the split's index.
        """
        indices = self.indices(support)
        pairs = [self.pairs[i] for i in indices]
        estimates = [self.estimates.at(indices)]
        estimates += [self._varied_estimates(seed, number, pairs) for number in range(1, config.n_calibrations)]
        estimated = (torch.stack([getattr(item, name) for item in estimates]) for name in ("primary", "secondary"))
        primary, secondary, *true = (
            item.to(device, torch.float32) for item in (*estimated, *true_responses(pairs))
        )
        order = order_listeners(pairs, self.dataset.name)
        mixtures = draw_mixtures(pairs, order, seed, config.alpha_range) if config.interpolation else ()
        return TrainingSet(primary, secondary, TruePaths(*true), mixtures)

    def support_uncertainty(self, support: tuple[str, ...]) -> Tensor:
        """Return the unknown part of the support's estimates, [31] (`prime_anc.method.predict`)."""
        indices = self.indices(support)
        return learn_uncertainty(
            self.paths(indices, torch.float64).primary, self.estimates.coherence[indices], self.reference_psd
        )

    def support_statistics(self, support: tuple[str, ...]) -> SupportStatistics:
        """Return the statistics of the support's paths, of originals without variants."""
        indices = [i for i in self.indices(support) if self.pairs[i].condition == "original"]
        return learn_support_statistics(
            self.estimates.primary[indices].numpy(), self.estimates.secondary[indices].numpy()
        )

    def path_prior(self, support: tuple[str, ...]) -> PathPrior | None:
        """Return the prior of the support (`learn_prior`)."""
        return learn_prior([pair for pair in self.pairs if pair.listener in support])

    def _varied_estimates(self, seed: int, number: int, pairs: list[PathPair]) -> SimulatedEstimate:
        """Calibrate the support again: one to five probes, one of three windows, a take of 1 to 6.5 s, and measurement
        noise in half of all cases.
        """
        rng = np.random.default_rng([seed, number])
        n_probes = int(rng.integers(VARIED_PROBES[0], VARIED_PROBES[1] + 1))
        probes = tuple(sorted(rng.permutation(self.noise.n_recordings)[:n_probes].tolist()))
        window = int(rng.choice(VARIED_WINDOWS))
        n_samples = round(rng.uniform(*VARIED_TAKE_S) * SAMPLE_RATE_HZ)
        snr_db = float(rng.uniform(*VARIED_SNR_DB)) if rng.random() < NOISY_SHARE else None
        return simulate_calibration(
            pairs,
            self.noise,
            window=window,
            probes=probes,
            primary_taps=self.dataset.primary_taps,
            snr_db=snr_db,
            n_samples=n_samples,
            seed=number,
            priors=self.priors,
        )


def learn_prior(pairs: Sequence[PathPair]) -> PathPrior | None:
    """Learn the prior of these listeners' true paths, without variants; None for a single ear."""
    originals = [pair for pair in pairs if pair.condition == "original"]
    if len(originals) < 2:
        return None
    return learn_path_prior(
        [pair.primary for pair in originals],
        [pair.secondary for pair in originals],
        [pair.listener for pair in originals],
    )


def priors_of_others(pairs: Sequence[PathPair]) -> dict[str, PathPrior]:
    """Learn per listener the prior of the others, since a training calibration must not use its own ears' paths.

    Raises
    ------
    DatasetError
        Fewer than two ears of others.
    """
    priors = {}
    for listener in dict.fromkeys(pair.listener for pair in pairs):
        prior = learn_prior([pair for pair in pairs if pair.listener != listener])
        if prior is None:
            raise DatasetError(f"path prior: without {listener} fewer than two ears are left")
        priors[listener] = prior
    return priors


def wearing_of(folder: Path | None, dataset: PathDataset, listeners: Sequence[str]) -> tuple[WearingChange, ...]:
    """Learn the changes for the manifest of a model.

    Parameters
    ----------
    folder
        The data set's folder.
    dataset
        Persons with the fit of their earphones.
    listeners
        Listeners that may be used.

    Returns
    -------
    tuple[WearingChange, ...]
        Pressed and open from PANDAR's handling cases, or an index's conditions of such names; loose from persons.
    """
    persons = handled = [pair for pair in dataset.pairs if pair.listener in listeners]
    if dataset.name == "pandar" and folder is not None:
        try:
            handled = list(read_handling(folder).pairs)
        except DatasetError:
            return ()
    return changes(persons, handled) if any(pair.fit == NORMAL for pair in persons) else ()


def changes(persons: Sequence[PathPair], handled: Sequence[PathPair]) -> tuple[WearingChange, ...]:
    """Learn the changes from persons' paths and handling cases."""
    normal = [_secondary(pair) for pair in persons if pair.fit == NORMAL]
    mean = mean_path(normal)
    closed = {(pair.listener, pair.ear): _secondary(pair) for pair in handled if pair.fit in (NORMAL, CLOSED)}
    pressed = [pair for pair in handled if pair.fit == PRESSED and (pair.listener, pair.ear) in closed]
    factors = {"pressed": [_secondary(pair) / closed[pair.listener, pair.ear] for pair in pressed]}
    factors |= {fit: [_secondary(pair) / mean for pair in persons if pair.fit == fit] for fit in LOOSE}
    factors = {name: found for name, found in factors.items() if found}
    taken_off = [_secondary(pair) for pair in handled if pair.fit == OPEN]
    return learn_wearing(normal, factors, {"open": taken_off} if taken_off else {})


def _secondary(pair: PathPair) -> Complex:
    return np.fft.rfft(pair.secondary, DESIGN_N_FFT)
