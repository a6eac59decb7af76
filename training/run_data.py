"""What the tasks of a run share: options, data, splits, calibration, configurations. Nothing here trains or scores.

Two protocols say what a split may know and what it is asked. `by-person`, the paper's: listeners are held out, and
the ten noises calibrate, train and score. `by-recording`: half of the recordings are held out too; training, the
constants that it learns and the reference spectrum know the other half and synthetic noises; held-out listeners are
calibrated with each of `training/probes.py`, and scored on what is held out, white and pink.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict

from measurement.prior import PathPrior
from model_store.store import ModelStore
from training.config import TrainingConfig
from training.datasets import open_dataset
from training.datasets.noise import NoiseSet, read_noise, simulated_noise
from training.datasets.path_pairs import DatasetKind
from training.datasets.splits import Split, make_splits, with_recordings
from training.measurements import Measurements, learn_prior, priors_of_others
from training.methods import GENERATORS, GeneratorSetup
from training.probes import query_noises, query_probes, support_noises
from training.run_folder import RunFolder, device_name
from training.scoring import TimeDomainScore
from training.training_set import TrainingSet

SPLIT_SEED = 0
QUICK_UPDATES = {"prime": 12, "prime-log": 120}
QUICK_QUERIES = 2

Protocol = Literal["by-person", "by-recording"]


class Options(BaseModel):
    """All that a worker needs to know; `run_splits.parse` says what each one means."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: DatasetKind
    data: Path | None
    noise: Path | None
    protocol: Protocol = "by-person"
    window: int
    regularisation: float
    calibration: Literal["paper", "prior"] = "paper"
    conditions: Literal["original", "all"]
    n_splits: int
    support: int | None
    updates: int | None
    quick: bool
    device: str
    store: Path
    out: Path


@lru_cache(maxsize=1)
def open_run(options: Options) -> RunData:
    """The run's data in this process: read once, calibrated once."""
    return RunData(options)


class RunData:
    """Data set, noises, splits, and what is computed of them when it is first needed."""

    def __init__(self, options: Options) -> None:
        """Read the data; DatasetError says what is wrong with them."""
        self.options = options
        self.device = choose_device(options.device)
        self.dataset = open_dataset(options.dataset, options.data)
        self.noise = read_noise(options.noise) if options.noise else simulated_noise()
        self.splits = make_splits(
            self.dataset.listeners, options.n_splits, options.support, SPLIT_SEED, self.dataset.name
        )
        if options.protocol == "by-recording":
            recordings = self.noise.names[: self.noise.n_recordings]
            self.splits = with_recordings(self.splits, recordings, SPLIT_SEED)
        self.store = ModelStore(options.store)
        self.folder = RunFolder(options.out)
        self._latest_set: tuple[object, TrainingSet] | None = None
        self._latest_split: tuple[Split, tuple[Measurements, list[Measurements], TimeDomainScore]] | None = None

    @cached_property
    def measurements(self) -> Measurements:
        """Every ear's simulated calibration with every recording, each listener under the others' prior or none."""
        listeners, noise = self.dataset.listeners, self.noise
        if self.options.protocol == "by-recording":
            noise = support_noises(noise, noise.names[: noise.n_recordings], SPLIT_SEED)
        return self._calibrate(listeners, noise, priors=self._support_priors(listeners))

    @property
    def shares_estimates(self) -> bool:
        """Whether an ear's estimates are the same in every split."""
        return self.options.protocol == "by-person" and self.options.calibration == "paper"

    def support_measurements(self, split: Split) -> Measurements:
        """What a split's training may know; by-person, only its support's part of it is read."""
        return self._of_split(split)[0]

    def query_measurements(self, split: Split) -> list[Measurements]:
        """Every way in which the split's held-out listeners are calibrated."""
        return self._of_split(split)[1]

    def score(self, split: Split) -> TimeDomainScore:
        """The score of every method on the split's held-out listeners."""
        return self._of_split(split)[2]

    def _of_split(self, split: Split) -> tuple[Measurements, list[Measurements], TimeDomainScore]:
        """Support, query and score; the latest split's are kept."""
        if self.shares_estimates:
            return self.measurements, [self.measurements], self.score_of_all
        if self._latest_split is None or self._latest_split[0] != split:
            self._latest_split = split, self._calibrate_split(split)
        return self._latest_split[1]

    def _calibrate_split(self, split: Split) -> tuple[Measurements, list[Measurements], TimeDomainScore]:
        """By recording, or under priors: these differ from split to split."""
        queries, priors = self.queries(split), self._support_priors(split.support)
        of_support = None if priors is None else learn_prior(self.dataset.of(split.support))
        known = None if of_support is None else dict.fromkeys(queries, of_support)
        if self.options.protocol == "by-person":
            support = self._calibrate(split.support, self.noise, priors=priors)
            asked = [self._calibrate(queries, self.noise, psd=support.reference_psd, priors=known)]
            return support, asked, self.score_of_all
        noises = support_noises(self.noise, split.support_recordings, split.index)
        support = self._calibrate(split.support, noises, priors=priors)
        asked = [
            self._calibrate(
                queries,
                probe.noises,
                conditions="original",
                psd=support.reference_psd,
                probe=probe.name,
                snr_db=probe.snr_db,
                priors=known,
            )
            for probe in query_probes(self.noise, split)
        ]
        return support, asked, TimeDomainScore(query_noises(self.noise, split))

    def _support_priors(self, listeners: tuple[str, ...]) -> dict[str, PathPrior] | None:
        """For each listener the prior of the others; None for the paper's calibration."""
        return None if self.options.calibration == "paper" else priors_of_others(self.dataset.of(listeners))

    def _calibrate(
        self, listeners: tuple[str, ...], noise: NoiseSet, *, conditions: str | None = None, **others: Any
    ) -> Measurements:
        return Measurements.calibrate(
            replace(self.dataset, pairs=self.dataset.of(listeners)),
            noise,
            window=self.options.window,
            conditions=conditions or self.options.conditions,
            regularisation=self.options.regularisation,
            **others,
        )

    @cached_property
    def score_of_all(self) -> TimeDomainScore:
        """The score on all ten noises."""
        return TimeDomainScore(self.noise)

    def settings(self) -> dict[str, object]:
        """What decides the results of a task; not which tasks run, nor where. Kept in run.json."""
        options = self.options
        return {
            "dataset": self.dataset.name,
            "data_fingerprint": self.dataset.fingerprint,
            "simulated": self.dataset.is_simulated,
            "noise_fingerprint": self.noise.fingerprint,
            "simulated_noise": self.noise.is_simulated,
            "protocol": options.protocol,
            "window": options.window,
            "regularisation": options.regularisation,
            "calibration": options.calibration,
            "conditions": options.conditions,
            "support": options.support,
            "updates": options.updates,
            "quick": options.quick,
            "generators": {
                name: {
                    "layout": setup.layout(self.dataset.n_fft).to_dict(),
                    "training": self.configuration(setup).model_dump(),
                }
                for name, setup in GENERATORS.items()
            },
        }

    def configuration(self, setup: GeneratorSetup) -> TrainingConfig:
        """A generator's training configuration with the command line's changes."""
        options = self.options
        return setup.configuration(
            window=options.window,
            regularisation=options.regularisation,
            calibration=options.calibration,
            n_updates=options.updates or (QUICK_UPDATES[setup.kind] if options.quick else None),
            conditions="original" if options.conditions == "original" else None,
        )

    def queries(self, split: Split) -> tuple[str, ...]:
        """The split's held-out listeners, a few of them in a quick run."""
        return split.query[:QUICK_QUERIES] if self.options.quick else split.query

    def training_set(
        self, measurements: Measurements, support: tuple[str, ...], config: TrainingConfig, seed: int
    ) -> TrainingSet:
        """The support's cases; the latest set is kept, because a split's seeds share it."""
        key = (id(measurements), support, config.model_dump_json(), seed)
        if self._latest_set is None or self._latest_set[0] != key:
            self._latest_set = key, measurements.training_set(support, config, self.device, seed=seed)
        return self._latest_set[1]

    def device_name(self) -> str:
        """For records and tables."""
        return device_name(self.device)


def choose_device(name: str) -> torch.device:
    """`auto`, `cpu` or `cuda` -> a device; ValueError where the one asked for is not there."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device: torch sees no CUDA device; use cpu or auto")
    return torch.device("cuda" if torch.cuda.is_available() and name != "cpu" else "cpu")
