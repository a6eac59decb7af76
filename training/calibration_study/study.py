"""What every setting shares, and its estimates and rows on disk: made at most once, then read."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from model_store.checkpoint import Checkpoint
from model_store.store import ModelStore
from synthesis.denoising import denoised, silent_lags
from synthesis.noise_reduction import predict
from synthesis.octave_bands import WIDE_BANDS
from synthesis.path_estimation import PathEstimate
from synthesis.paths import AcousticPaths
from training.calibration import simulate_calibration
from training.calibration_study.designs import trained_designs, training_window, untrained_designs
from training.calibration_study.rows import read_table
from training.calibration_study.settings import Row, Setting
from training.datasets.noise import NoiseSet, simulated_noise, white_noise
from training.datasets.path_pairs import PathDataset, PathPair
from training.datasets.variants import secondary_variants
from training.denoising import DecayPrior
from training.measurements import VARIANT_SEED
from training.run_folder import RunError, RunFolder, write_atomically, write_rows

EARS_AT_ONCE = 8


@dataclass(frozen=True)
class Study:
    """What every setting shares: the true paths, the noises, the reference spectrum and the folder of results."""

    dataset: PathDataset
    noise: NoiseSet
    reference_psd: Tensor
    folder: RunFolder

    def pairs(self, conditions: str) -> tuple[PathPair, ...]:
        """The `original` or the `modified` pairs."""
        if conditions == "original":
            return self.dataset.pairs
        return tuple(each for pair in self.dataset.pairs for each in secondary_variants(pair, VARIANT_SEED))

    def estimates(self, setting: Setting, conditions: str, whole: bool = False) -> PathEstimate:
        """The setting's calibration, float32, simulated once and then read. whole: the secondary responses with
        all of their window's lags."""
        stem = f"{conditions}_whole" if whole else conditions
        file = self.folder.folder / "calibrations" / setting.name / f"{stem}.pt"
        if not file.exists():
            found = simulate_calibration(
                self.pairs(conditions),
                probe_noise(setting.probe_noise, self.noise),
                window=setting.window,
                regularisation=setting.regularisation,
                probes=setting.probes,
                snr_db=setting.snr_db,
                primary_taps=self.dataset.primary_taps,
                secondary_taps=setting.window if whole else self.dataset.secondary_taps,
            )
            content = io.BytesIO()
            torch.save([found.primary.float(), found.secondary.float(), found.coherence.float()], content)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, content.getvalue())
        return PathEstimate(*torch.load(file, weights_only=True))

    def score(self, setting: Setting, conditions: str, checkpoint: Checkpoint | None) -> pd.DataFrame:
        """Rows of the untrained methods, or of a model on the listeners outside its support; made at most once."""
        source: str = "untrained"
        support: tuple[str, ...] = ()
        if checkpoint is not None:
            source, support = model_reference(checkpoint), checkpoint.manifest.support
        file = self.folder.folder / "rows" / setting.name / conditions / f"{source}.csv"
        if not file.exists():
            estimates = self.estimates(setting, conditions)
            rows = self._rows(self.pairs(conditions), estimates, setting.window, support, checkpoint)
            write_rows(file, pd.DataFrame([{**setting.columns, "source": source, **row} for row in rows]))
        return read_table(file)

    def score_denoised(
        self, setting: Setting, by: str, support: tuple[str, ...], source: str, checkpoint: Checkpoint | None
    ) -> pd.DataFrame:
        """Rows on the original pairs outside a support, secondary estimates denoised: `by` is one of DENOISERS."""
        file = self.folder.folder / "denoised" / by / setting.name / f"{source}.csv"
        if not file.exists():
            estimates = self.estimates(setting, "original")
            estimates = replace(estimates, secondary=self._denoised(setting, by, support))
            rows = self._rows(self.pairs("original"), estimates, setting.window, support, checkpoint)
            columns = {**setting.columns, "by": by, "source": source}
            write_rows(file, pd.DataFrame([{**columns, **row} for row in rows]))
        return read_table(file)

    def _denoised(self, setting: Setting, by: str, support: tuple[str, ...]) -> Tensor:
        n_taps = self.dataset.secondary_taps
        if by == "window":
            whole = self.estimates(setting, "original", whole=True).secondary.double()
            return denoised(whole[..., :n_taps], silent_lags(whole)).float()
        taught = [pair.secondary[:n_taps] for pair in self.pairs("original") if pair.listener in support]
        prior = DecayPrior.fit(torch.from_numpy(np.stack(taught)))
        return prior.denoise(self.estimates(setting, "original").secondary)

    @torch.no_grad()
    def _rows(
        self,
        pairs: tuple[PathPair, ...],
        estimates: PathEstimate,
        window: int,
        support: tuple[str, ...],
        checkpoint: Checkpoint | None,
    ) -> Iterator[Row]:
        """Rows of the untrained methods or of a model, on the pairs of listeners outside the support."""
        indices = [i for i, pair in enumerate(pairs) if pair.listener not in support]
        trained_at = training_window(checkpoint)
        for start in range(0, len(indices), EARS_AT_ONCE):
            chunk = indices[start : start + EARS_AT_ONCE]
            paths = AcousticPaths.from_impulse_responses(estimates.primary[chunk], estimates.secondary[chunk])
            designs = (
                untrained_designs(paths, window, self.reference_psd)
                if checkpoint is None
                else trained_designs(paths, window, checkpoint)
            )
            for method, n_updates, profile, taps in designs:
                design = {"training_window": trained_at, "method": method, "k": n_updates, "profile": profile}
                yield from ({**design, **score} for score in self._scores([pairs[i] for i in chunk], taps))

    def _scores(self, pairs: list[PathPair], taps: Tensor) -> Iterator[Row]:
        truth = true_paths(pairs)
        figures = predict(truth, taps, self.reference_psd, uncertainty=torch.zeros(len(WIDE_BANDS)))
        for place, pair in enumerate(pairs):
            yield {
                "listener": pair.listener,
                "ear": pair.ear,
                "condition": pair.condition,
                "noise_reduction_db": figures.mean_noise_reduction_db[place].item(),
                "amplification_db": figures.amplification_db[place].item(),
                "wide_amplification_db": figures.wide_amplification_db[place].item(),
                "control_rms": figures.control_rms[place].item(),
            }


def model_reference(checkpoint: Checkpoint) -> str:
    """`NAME@VERSION`, which names a model's files and is the source of its rows."""
    return f"{checkpoint.manifest.name}@{checkpoint.manifest.version}"


def true_paths(pairs: Sequence[PathPair]) -> AcousticPaths:
    """The whole true responses on the design grid, float32."""
    longest = max(max(pair.primary.size, pair.secondary.size) for pair in pairs)

    def stacked(responses: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.stack([np.pad(each, (0, longest - each.size)) for each in responses])).float()

    return AcousticPaths.from_impulse_responses(
        stacked([pair.primary for pair in pairs]), stacked([pair.secondary for pair in pairs])
    )


@lru_cache(maxsize=8)
def probe_noise(kind: str, recordings: NoiseSet) -> NoiseSet:
    """The noises that probe: the recordings themselves, simulated environments, or eight draws of white noise."""
    if kind == "recordings":
        return recordings
    if kind == "simulated":
        return simulated_noise()
    n = recordings.n_recordings
    signals = np.stack([white_noise(seed) for seed in range(1, n + 1)])
    return replace(recordings, names=tuple(f"white_{i}" for i in range(n)), signals=signals, is_simulated=True)


def load_models(store: ModelStore, names: Sequence[str], dataset: PathDataset) -> list[Checkpoint]:
    """The named models; RunError for one that was trained on other data, where no listener is known held out."""
    checkpoints = [store.load(name) for name in names]
    for each in checkpoints:
        found = each.manifest
        if found.data_fingerprint.removeprefix("sha256:") != dataset.fingerprint.removeprefix("sha256:"):
            raise RunError(
                f"{found.name}: found a model of other data, expected one trained on this {dataset.name}"
            )
        if set(dataset.listeners) <= set(found.support):
            raise RunError(f"{found.name}: found every listener in support, expected some held out")
    return checkpoints
