"""Simulate a two-state calibration (eqs. 1-2) of a pair of true paths.

The recordings of a noise set are the probes. The error microphone records the disturbance alone (``W = 0``: ``e_0 = p *
x``) and then with a plain gain as control filter (``W = g``: ``e_g = p * x - g s * x``). As in the paper the paths stay
fixed and the probe repeats from one state to the next. Beyond the paper, measurement noise can be added; without it a
calibration flatters every method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.signal import oaconvolve
from torch import Tensor

from prime_anc.measure.estimate import GainTake, estimate_paths
from prime_anc.measure.posterior import estimate
from prime_anc.measure.prior import PathPrior
from prime_anc.method.arrays import Real
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from training.datasets.noise import NoiseSet
from training.datasets.path_pairs import DatasetError, PathPair, named_seed

PROBE_GAIN = 0.35
N_OFFSETS, MIN_OFFSETS = 6, 4
FIRST_SAMPLE = 8192  # from here on even the longest path has settled
LAST_SAMPLE = 4 * SAMPLE_RATE_HZ


@dataclass(frozen=True)
class SimulatedEstimate:
    """`prime_anc.measure.estimate.PathEstimate` in tensors: [n_pairs, taps] twice, then [n_pairs, 16385]."""

    primary: Tensor
    secondary: Tensor
    coherence: Tensor

    def at(self, indices: Sequence[int]) -> SimulatedEstimate:
        """Select some of the pairs."""
        return SimulatedEstimate(self.primary[indices], self.secondary[indices], self.coherence[indices])


def record(
    probes: Real, paths: tuple[Real, Real], snr_db: float | None, seed: Sequence[int], driven: Real | None = None
) -> list[GainTake]:
    """Record both states per probe.

    Parameters
    ----------
    probes
        [n_probes, n_samples].
    paths
        Primary and secondary path; the whole responses act.
    snr_db
        SNR of white noise at the error microphone, relative to the disturbance of the probe, independent between
        probes and states; None for none.
    seed
        Of that noise.
    driven
        Primary path while the loudspeaker plays, if it differs.
    """
    takes, rng = [], np.random.default_rng(seed)
    for x in probes:
        quiet, control = (oaconvolve(x, path)[: x.size] for path in paths)
        played = quiet if driven is None else oaconvolve(x, driven)[: x.size]
        level = 0.0 if snr_db is None else 10 ** (-snr_db / 20) * np.sqrt(np.mean(quiet**2))
        for gain, error in ((0.0, quiet), (PROBE_GAIN, played - PROBE_GAIN * control)):
            takes.append(GainTake(gain, x, error + level * rng.standard_normal(x.size) if level else error))
    return takes


def simulate_calibration(
    pairs: Sequence[PathPair],
    noise_set: NoiseSet,
    *,
    window: int = 8192,
    probes: Sequence[int] | None = None,
    primary_taps: int = 8192,
    snr_db: float | None = None,
    seed: int = 0,
    n_samples: int = LAST_SAMPLE,
    priors: Mapping[str, PathPrior] | None = None,
) -> SimulatedEstimate:
    """Calibrate pairs with the recordings of a noise set.

    Parameters
    ----------
    pairs
        True paths.
    noise_set
        Its recordings (not white and pink) are the probes.
    window
        Samples of the Hann window, at most those of the take less the first 8192.
    probes
        Indices of the recordings; None for all.
    primary_taps
        Samples of the primary path's estimates.
    snr_db
        As for `record`.
    seed
        Seed of the noise; the pair's name is mixed in, so that noises are independent of the other pairs.
    n_samples
        Samples per take; four seconds have six windows, others in proportion, at least four.
    priors
        Prior per listener, under which paths are estimated as by `/calibrate`; None for the paper's estimate.

    Returns
    -------
    SimulatedEstimate
        Float64: primary [n_pairs, primary_taps], secondary [n_pairs, 2048], coherence [n_pairs, 16385].

    Raises
    ------
    DatasetError
        The takes do not hold a window, or are longer than the recordings.
    """
    chosen = list(range(noise_set.n_recordings) if probes is None else probes)
    if not FIRST_SAMPLE + window <= n_samples <= noise_set.signals.shape[1]:
        raise DatasetError(
            f"calibration: found a window of {window} samples in takes of {n_samples}, expected takes of "
            f"{FIRST_SAMPLE + window} to {noise_set.signals.shape[1]}"
        )
    signals, estimates = noise_set.signals[chosen, :n_samples], []
    for pair in pairs:
        takes = record(signals, (pair.primary, pair.secondary), snr_db, named_seed(seed, pair.name))
        found = estimate_paths(
            takes,
            window=window,
            primary_taps=primary_taps,
            n_offsets=max(MIN_OFFSETS, round(N_OFFSETS * n_samples / LAST_SAMPLE)),
            first_sample=FIRST_SAMPLE,
            last_sample=n_samples,
        )
        paths = found if priors is None else estimate(takes, prior=priors[pair.listener])
        lengths = len(found.primary), len(found.secondary)
        estimates.append((paths.primary[: lengths[0]], paths.secondary[: lengths[1]], found.coherence))
    return SimulatedEstimate(*(torch.from_numpy(np.stack(item)) for item in zip(*estimates, strict=True)))
