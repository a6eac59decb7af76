"""Data of an experiment: data set, noises, splits and calibrations.

Two protocols differ in what is held out. `by-person`, the paper's: listeners are held out, and the ten noises
calibrate, train and score. `by-recording`: half of the recordings are held out too. Training, its constants and the
reference spectrum use the other half and synthetic noises; held-out listeners are calibrated with all `query_probes`,
and scored on the held-out recordings, white and pink.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prime_anc.measure.prior import PathPrior
from training.config import Configuration, TrainingConfig
from training.datasets.index import read_index
from training.datasets.noise import NoiseSet, read_noise, simulated_noise
from training.datasets.pandar import read_pandar
from training.datasets.path_pairs import DatasetError, DatasetKind, PathDataset, fingerprint
from training.datasets.simulated import simulate_listeners
from training.datasets.synthetic_noise import AIRPLANE, airplane_noise, synthetic_noise
from training.datasets.ten_path import TABLE, read_ten_path
from training.measurements import Measurements, learn_prior, priors_of_others
from training.scoring import TimeDomainScore
from training.training_set import TrainingSet

N_SIMULATED_LISTENERS = 23  # as many as PANDAR has persons
N_QUICK_LISTENERS = 6
FULL_SUPPORT_FROM = 14  # from this number of persons on, seven leave at least as many held out
SPLIT_SEED = 0
QUICK_QUERIES = 2
# Synthetic noises for training beside the support's recordings.
N_SYNTHETIC = 16
AIRPLANE_SEED = 1
SNRS_DB = (None, 40.0, 20.0)
# Options that determine a task's results.
DETERMINING = ("protocol", "window", "calibration", "conditions", "support", "updates", "quick")


@dataclass(frozen=True)
class Split:
    """One partition of the listeners: `support` trains, `query` is held out; both ascending."""

    index: int
    support: tuple[str, ...]
    query: tuple[str, ...]
    # Recordings for training; empty, with query_recordings, if all may train and score.
    support_recordings: tuple[str, ...] = ()
    query_recordings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fold:
    """Measurements of one split."""

    # Data for training.
    support: Measurements
    # Calibrations of the held-out listeners.
    queries: tuple[Measurements, ...]
    # Score of filters on held-out listeners.
    score: TimeDomainScore


class Data:
    """Data set, noises and splits; calibrations are computed on first use."""

    def __init__(self, configuration: Configuration) -> None:
        """Read the data.

        Raises
        ------
        DatasetError
            The data cannot be used.
        ValueError
            There is no such device.
        """
        self.configuration = configuration
        self.device = choose_device(configuration.device)
        n_listeners = N_QUICK_LISTENERS if configuration.quick else N_SIMULATED_LISTENERS
        self.dataset = open_dataset(configuration.dataset, configuration.data, n_listeners=n_listeners)
        self.noise = read_noise(configuration.noise) if configuration.noise else simulated_noise()
        self.splits = make_splits(
            self.dataset.listeners, configuration.splits, configuration.support, SPLIT_SEED, self.dataset.name
        )
        if configuration.protocol == "by-recording":
            recordings = self.noise.names[: self.noise.n_recordings]
            self.splits = with_recordings(self.splits, recordings, SPLIT_SEED)
        # The latest alone: the seeds of a split share them.
        self._measured, self._training_set = lru_cache(1)(self._measure), lru_cache(1)(Measurements.training_set)

    @cached_property
    def everybody(self) -> Fold:
        """Return all listeners with all noises, under the others' prior or none."""
        listeners, noise = self.dataset.listeners, self.noise
        if self.configuration.protocol == "by-recording":
            noise = support_noises(noise, noise.names[: noise.n_recordings], SPLIT_SEED)
        measurements = self._calibrate(listeners, noise, priors=self._priors(listeners))
        return Fold(measurements, (measurements,), TimeDomainScore(self.noise))

    def fold(self, split: Split) -> Fold:
        """Return the measurements of a split."""
        return self.everybody if self.configuration.shares_estimates else self._measured(split)

    def _measure(self, split: Split) -> Fold:
        """Measure by recording, or under priors, where measurements differ between splits."""
        queries, priors = self.queries(split), self._priors(split.support)
        learned = None if priors is None else learn_prior(self.dataset.of(split.support))
        known = None if learned is None else dict.fromkeys(queries, learned)
        if self.configuration.protocol == "by-person":
            support = self._calibrate(split.support, self.noise, priors=priors)
            query = self._calibrate(queries, self.noise, psd=support.reference_psd, priors=known)
            return Fold(support, (query,), TimeDomainScore(self.noise))
        noises = support_noises(self.noise, split.support_recordings, split.index)
        support = self._calibrate(split.support, noises, priors=priors)
        shared: dict[str, Any] = {"conditions": "original", "psd": support.reference_psd, "priors": known}
        by_probe = tuple(
            self._calibrate(queries, noises, probe=probe, snr_db=snr_db, **shared)
            for probe, noises in query_probes(self.noise, split).items()
            for snr_db in SNRS_DB
        )
        return Fold(support, by_probe, TimeDomainScore(self.noise.of(split.query_recordings, ("white", "pink"))))

    def _priors(self, listeners: tuple[str, ...]) -> dict[str, PathPrior] | None:
        """Return per listener the prior of the others; None for the paper's calibration."""
        if self.configuration.calibration == "paper":
            return None
        return priors_of_others(self.dataset.of(listeners))

    def _calibrate(
        self, listeners: tuple[str, ...], noise: NoiseSet, *, conditions: str | None = None, **others: Any
    ) -> Measurements:
        return Measurements.calibrate(
            replace(self.dataset, pairs=self.dataset.of(listeners)),
            noise,
            window=self.configuration.window,
            conditions=conditions or self.configuration.conditions,
            **others,
        )

    def queries(self, split: Split) -> tuple[str, ...]:
        """Return the held-out listeners of a split, only a few in a quick run."""
        return split.query[:QUICK_QUERIES] if self.configuration.quick else split.query

    def training_set(
        self, measurements: Measurements, support: tuple[str, ...], config: TrainingConfig, seed: int
    ) -> TrainingSet:
        """Return the cases of a support."""
        return self._training_set(measurements, support, config, self.device, seed)

    def settings(self) -> dict[str, Any]:
        """Return the settings that determine a task's results, without the choice of tasks and machine."""
        return {
            "dataset": self.dataset.name,
            "data_fingerprint": self.dataset.fingerprint,
            "simulated": self.dataset.is_simulated,
            "noise_fingerprint": self.noise.fingerprint,
            "simulated_noise": self.noise.is_simulated,
            **self.configuration.model_dump(mode="json", include=set(DETERMINING)),
            "training": {
                kind: self.configuration.training(kind).model_dump(mode="json") for kind in ("prime", "prime-log")
            },
        }


@lru_cache(maxsize=1)
def open_data(configuration: Configuration) -> Data:
    """Open the data of an experiment; cached, so that they are read and calibrated once per process."""
    return Data(configuration)


def open_dataset(
    kind: DatasetKind,
    folder: str | Path | None = None,
    *,
    n_listeners: int = N_SIMULATED_LISTENERS,
) -> PathDataset:
    """Open the data set of a command line.

    Parameters
    ----------
    kind
        ``pandar``, ``index``, ``ten-path`` (recordings, or an index) or ``simulated``.
    folder
        Folder of the measurements; None for simulated ones.
    n_listeners
        Number of simulated listeners (``simulated`` only).

    Raises
    ------
    DatasetError
        A folder is missing or superfluous, or the reader finds a fault.
    """
    if folder is None and kind != "simulated":
        raise DatasetError(f"data set {kind}: no folder is given; give one with its files")
    if folder is not None and kind == "simulated":
        raise DatasetError(f"data set simulated: the folder {folder} would not be read; give none")
    if folder is None:
        return simulate_listeners(n_listeners, seed=0)
    if kind == "pandar":
        return read_pandar(folder)
    # Recordings, not an index of paths.
    return read_ten_path(Path(folder)) if (Path(folder) / TABLE).is_file() else read_index(folder, kind)


def default_n_support(n_listeners: int, dataset: DatasetKind) -> int:
    """Return the default number of support listeners.

    Persons: seven of at least fourteen, else the paper's share (7 of 23). Ten-path: the paper's share (3 of 10). At
    least one.
    """
    n_support, n_all = (3, 10) if dataset == "ten-path" else (7, 23)
    if dataset != "ten-path" and n_listeners >= FULL_SUPPORT_FROM:
        return n_support
    return max(1, round(n_listeners * n_support / n_all))


def make_splits(
    listeners: Iterable[str],
    n_splits: int = 10,
    n_support: int | None = None,
    seed: int = 0,
    dataset: DatasetKind = "pandar",
) -> list[Split]:
    """Draw different random splits of the listeners.

    The draw is by listener, never by ear or condition. Split i depends on the listeners, the seed and i
    only: more splits leave the first ones unchanged.

    Parameters
    ----------
    listeners
        Identities; order and repetitions do not matter.
    n_splits
        Number of splits, at least 1.
    n_support
        Support listeners per split, or None for `default_n_support`.
    seed
        Seed of the draw.
    dataset
        Decides the default of `n_support`.

    Raises
    ------
    DatasetError
        Fewer than two listeners, no room for `n_support`, or fewer different splits than requested.
    """
    names = tuple(sorted(set(listeners)))
    if len(names) < 2:
        raise DatasetError(f"splits: found {len(names)} listeners, expected at least 2 (one to hold out)")
    if n_support is None:
        n_support = default_n_support(len(names), dataset)
    if not 1 <= n_support < len(names):
        raise DatasetError(
            f"splits: found n_support = {n_support}, expected 1 to {len(names) - 1} of {len(names)} listeners"
        )
    if n_splits > comb(len(names), n_support):
        raise DatasetError(
            f"splits: found n_splits = {n_splits}, expected at most {comb(len(names), n_support)}, "
            f"the number of different splits of {len(names)} listeners with {n_support} in support"
        )
    generator = np.random.default_rng(seed)
    supports: list[tuple[str, ...]] = []
    while len(supports) < n_splits:
        chosen = generator.permutation(len(names))[:n_support]
        support = tuple(names[i] for i in sorted(chosen))
        if support not in supports:
            supports.append(support)
    return [
        Split(index, support, tuple(name for name in names if name not in support))
        for index, support in enumerate(supports)
    ]


def with_recordings(splits: Sequence[Split], recordings: Sequence[str], seed: int = 0) -> list[Split]:
    """Put half of the recordings on either side of the splits.

    Splits 2 i and 2 i + 1 exchange the sides of one draw, so that every recording is held out once. The draw of a pair
    depends only on the recordings, the seed and i.

    Raises
    ------
    DatasetError
        There are fewer than two recordings.
    """
    names = tuple(sorted(recordings))
    if len(names) < 2:
        raise DatasetError(f"splits: found {len(names)} recordings, expected at least 2 (one to hold out)")
    folded = []
    for split in splits:
        order = np.random.default_rng([seed, split.index // 2]).permutation(len(names))
        half = len(names) // 2
        sides = [tuple(names[i] for i in sorted(part)) for part in (order[:half], order[half:])]
        support, query = sides if split.index % 2 == 0 else sides[::-1]
        folded.append(replace(split, support_recordings=support, query_recordings=query))
    return folded


def support_noises(noise: NoiseSet, recordings: tuple[str, ...], seed: int) -> NoiseSet:
    """Return noises for training: these recordings and synthetic noises, without white and pink."""
    parts = (noise.of(recordings), synthetic_noise(N_SYNTHETIC, seed))
    n_samples = min(part.signals.shape[1] for part in parts)
    return NoiseSet(
        names=tuple(name for part in parts for name in part.names),
        signals=np.concatenate([part.signals[:, :n_samples] for part in parts]),
        n_recordings=sum(part.n_recordings for part in parts),
        fingerprint=fingerprint([(part.fingerprint, b"") for part in parts]),
        is_simulated=noise.is_simulated,
    )


def query_probes(noise: NoiseSet, split: Split) -> dict[str, NoiseSet]:
    """Return held-out listeners' probes: white, pink, the held-out recordings together and singly, an airplane."""
    held_out = split.query_recordings
    airplane = replace(
        noise.of(held_out[:1]), names=(AIRPLANE,), signals=airplane_noise(AIRPLANE_SEED)[None], fingerprint=AIRPLANE
    )
    chosen = {"white": ("white",), "pink": ("pink",), "pool": held_out} | {name: (name,) for name in held_out}
    return {name: noise.of(names) for name, names in chosen.items()} | {AIRPLANE: airplane}


def choose_device(name: str) -> torch.device:
    """Return the device named `auto`, `cpu` or `cuda`.

    Raises
    ------
    ValueError
        There is no CUDA device.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device: torch sees no CUDA device; use cpu or auto")
    return torch.device("cuda" if torch.cuda.is_available() and name != "cpu" else "cpu")
