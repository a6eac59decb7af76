"""What an experiment consists of: pieces of work that are done whole or not at all, each giving rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Literal

import pandas as pd
import torch
from pydantic import BaseModel, ConfigDict

from model_store.checkpoint import Checkpoint, GoldenCase
from model_store.errors import UnknownModel
from model_store.manifest import Manifest, Scores
from model_store.store import ModelStore
from synthesis.cpu import served
from synthesis.generator import Generator
from training.baselines.adaptive import WeightedFxLms
from training.config import TrainingConfig
from training.datasets import open_dataset
from training.datasets.noise import read_noise, simulated_noise
from training.datasets.splits import Split, make_splits
from training.measurements import Measurements
from training.methods import (
    BOTH_PROFILES,
    FITTED,
    GENERATORS,
    GROUPS,
    UNTRAINED,
    Fitting,
    GeneratorDesign,
    Recipe,
    objective,
)
from training.protocol import Method, Row, score_method, score_weighted_fxlms
from training.report import COLUMNS, as_design, design_name, split_means
from training.report.designs import own_profile
from training.run_folder import RunError, RunFolder, device_name
from training.scoring import TimeDomainScore
from training.trainer import GroupTrainer, Trainer
from training.training_set import TrainingSet

SPLIT_SEED = 0
QUICK_UPDATES = {"prime": 12, "prime-log": 120}
QUICK_QUERIES = 2
REPORT_EVERY_UPDATES = 250


class Options(BaseModel):
    """All that a worker needs to know; see `run_splits.parse` for what each one means."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: Literal["pandar", "ten-path", "simulated"]
    data: Path | None
    noise: Path | None
    window: int
    regularisation: float
    conditions: Literal["original", "all"]
    n_splits: int
    support: int | None
    updates: int | None
    quick: bool
    device: str
    store: Path
    out: Path


@dataclass(frozen=True)
class Piece:
    """A piece of work: a method on one listener, or fitted on one split (and seed) and scored on its queries."""

    method: str
    listener: str | None = None
    split: int | None = None
    seed: int | None = None

    @property
    def name(self) -> str:
        """METHOD/LISTENER or METHOD/splitNN-seedN, the path of its rows."""
        if self.listener is not None:
            return f"{self.method}/{self.listener}"
        return f"{self.method}/split{self.split:02d}" + ("" if self.seed is None else f"-seed{self.seed}")

    @property
    def stage(self) -> int:
        """Pieces of one stage need only those of earlier ones."""
        if self.method in UNTRAINED:
            return 0
        return 1 if self.generator is None else 2

    @property
    def generator(self) -> Piece | None:
        """The standard PRIME of the same split and seed, where the method is made of it."""
        if self.method in FITTED and FITTED[self.method].needs_generator:
            return Piece("prime", split=self.split, seed=self.seed)
        return None


@lru_cache(maxsize=1)
def open_experiment(options: Options) -> Experiment:
    """The experiment of this process: data are read and calibrated once."""
    return Experiment(options)


class Experiment:
    """Data, splits and calibration of a run, and the work on them."""

    def __init__(self, options: Options) -> None:
        """Reads the data; raises DatasetError for what is wrong with them."""
        self.options = options
        self.device = choose_device(options.device)
        self.dataset = open_dataset(options.dataset, options.data)
        self.noise = read_noise(options.noise) if options.noise else simulated_noise()
        self.splits = make_splits(
            self.dataset.listeners, options.n_splits, options.support, SPLIT_SEED, self.dataset.name
        )
        self.store = ModelStore(options.store)
        self.folder = RunFolder(options.out)
        self._trained: dict[str, Generator] = {}
        self._latest_set: tuple[object, TrainingSet] | None = None

    @cached_property
    def measurements(self) -> Measurements:
        """Every pair's calibration: made when first needed."""
        return Measurements.calibrate(
            self.dataset,
            self.noise,
            window=self.options.window,
            conditions=self.options.conditions,
            regularisation=self.options.regularisation,
        )

    @cached_property
    def score(self) -> TimeDomainScore:
        """The judge."""
        return TimeDomainScore(self.noise)

    def settings(self) -> dict[str, object]:
        """What decides the results of a piece; not which pieces are run, nor where."""
        options = self.options
        return {
            "dataset": self.dataset.name,
            "data_fingerprint": self.dataset.fingerprint,
            "simulated": self.dataset.is_simulated,
            "noise_fingerprint": self.noise.fingerprint,
            "simulated_noise": self.noise.is_simulated,
            "window": options.window,
            "regularisation": options.regularisation,
            "conditions": options.conditions,
            "support": options.support,
            "updates": options.updates,
            "quick": options.quick,
            "generators": {
                name: {
                    "layout": recipe.layout(self.dataset.n_fft).to_dict(),
                    "training": self.configuration(recipe).model_dump(),
                }
                for name, recipe in GENERATORS.items()
            },
        }

    def configuration(self, recipe: Recipe) -> TrainingConfig:
        """A recipe's configuration with the command line's changes."""
        options = self.options
        return recipe.configuration(
            window=options.window,
            regularisation=options.regularisation,
            n_updates=options.updates or (QUICK_UPDATES[recipe.kind] if options.quick else None),
            conditions="original" if options.conditions == "original" else None,
        )

    def queries(self, split: Split) -> tuple[str, ...]:
        """The split's held-out listeners, a few of them in a quick run."""
        return split.query[:QUICK_QUERIES] if self.options.quick else split.query

    def pieces(self, methods: tuple[str, ...], splits: list[Split], n_seeds: int) -> list[Piece]:
        """All the work, stage after stage; within a stage one split and seed after the other."""
        held_out = sorted({name for split in splits for name in self.queries(split)})
        found = [Piece(method, listener=name) for method in methods if method in UNTRAINED for name in held_out]
        for split in splits:
            for method in methods:
                for seed in range(n_seeds):
                    if method in GENERATORS or (method in FITTED and FITTED[method].rests_on == "seed"):
                        found.append(Piece(method, split=split.index, seed=seed))
                    elif method in FITTED and seed == 0:
                        found.append(Piece(method, split=split.index))
        return sorted(found, key=lambda piece: piece.stage)

    def run(self, piece: Piece) -> list[Row]:
        """Do a piece of work; a generator is published as well."""
        if piece.method in UNTRAINED:
            return self._untrained(piece)
        return self._generator(piece) if piece.method in GENERATORS else self._fitted(piece)

    def _untrained(self, piece: Piece) -> list[Row]:
        assert piece.listener is not None
        if piece.method == WeightedFxLms.name:
            return score_weighted_fxlms(self.measurements, self.score, piece.listener)
        entry = UNTRAINED[piece.method]
        method = entry.make(self.measurements.reference_psd.float())
        indices = self.measurements.indices((piece.listener,))
        return score_method(self.measurements, self.score, method, entry.refined, indices, {})

    def _fitted(self, piece: Piece) -> list[Row]:
        assert piece.split is not None
        entry, split = FITTED[piece.method], self.splits[piece.split]
        method = self.fit(piece, self._state_file(piece))
        labels: Row = {"split": split.index, "seed": piece.seed, "support": " ".join(split.support)}
        indices = self.measurements.indices(self.queries(split))
        return score_method(self.measurements, self.score, method, entry.refined, indices, labels)

    def fit(self, piece: Piece, state_file: Path, n_updates: int | None = None) -> Method:
        """A fitted method, taught by its split's support. n_updates: of a network, instead of the recipe's."""
        assert piece.split is not None
        entry, split = FITTED[piece.method], self.splits[piece.split]
        seed = piece.seed or 0
        config = self.configuration(Recipe("prime"))
        if n_updates is not None:
            config = config.model_copy(update={"n_updates": n_updates})
        generator = None
        if piece.generator is not None:
            generator = self.store.load(self.published(piece.generator)).synthesizer().generator
        fitting = Fitting(
            measurements=self.measurements,
            support=split.support,
            query=split.query,
            split=split.index,
            seed=seed,
            config=config,
            device=self.device,
            state_file=state_file,
            progress=progress_line(piece.name),
            generator=generator,
        )
        return entry.fit(fitting)

    def _generator(self, piece: Piece) -> list[Row]:
        """Train, score what would be served, publish."""
        assert piece.split is not None
        assert piece.seed is not None
        recipe, split = GENERATORS[piece.method], self.splits[piece.split]
        config = self.configuration(recipe)
        generator = self.train(recipe, config, split.support, split.index, piece.seed, piece.name)
        candidate = self.candidate(generator, config, split.support, split.index, piece.seed)
        method = GeneratorDesign(piece.method, served(candidate.synthesizer()))
        queries = self.queries(split)
        rows = score_method(
            self.measurements,
            self.score,
            method,
            BOTH_PROFILES,
            self.measurements.indices(queries),
            {"split": split.index, "seed": piece.seed, "support": " ".join(split.support)},
            candidate.band_uncertainty,
        )
        beside = self.folder.rows(
            Piece(name, listener=each).name for name in GROUPS["standard"] for each in queries
        )
        held_out = figures(pd.concat([beside, pd.DataFrame(rows)], ignore_index=True))
        candidate.manifest = candidate.manifest.model_copy(update={"scores": Scores(held_out=held_out)})
        published = self.store.publish(self.model_name(piece.method, split.index, piece.seed), candidate)
        reference = f"{published.name}@{published.version}"
        print(f"{piece.name}: published as {reference}", flush=True)
        return [row | {"checkpoint": reference, "digest": published.digest} for row in rows]

    def training_set(self, support: tuple[str, ...], config: TrainingConfig, seed: int) -> TrainingSet:
        """The support's cases; kept until another split asks, since its seeds share them."""
        key = (support, config.model_dump_json(), seed)
        if self._latest_set is None or self._latest_set[0] != key:
            self._latest_set = key, self.measurements.training_set(support, config, self.device, seed=seed)
        return self._latest_set[1]

    def train_together(self, pieces: list[Piece], group_size: int) -> None:
        """Train generators as one program, group_size at a time; `run` then finds them trained.

        pieces: all of the run's, finished or not, so that the groups are the same whenever it is started again.
        """
        for method in GENERATORS:
            own = [piece for piece in pieces if piece.method == method]
            for group in (own[i : i + group_size] for i in range(0, len(own), group_size)):
                # Its state belongs to just these models: another request makes other groups.
                members = sha256(" ".join(piece.name for piece in group).encode()).hexdigest()
                name = f"{method}/group-{members[:12]}"
                if all(self.folder.is_finished(piece.name) for piece in group):
                    self.folder.state_file(name).unlink(missing_ok=True)
                else:
                    self._train_group(GENERATORS[method], group, name)

    def _train_group(self, recipe: Recipe, group: list[Piece], name: str) -> None:
        config = self.configuration(recipe)
        splits = [self.splits[piece.split or 0] for piece in group]
        sets = {split.index: self.training_set(split.support, config, split.index) for split in splits}
        trainer = GroupTrainer(
            config,
            recipe.layout(self.dataset.n_fft),
            [sets[split.index] for split in splits],
            objective(config, self.measurements, self.device),
            seeds=[piece.seed or 0 for piece in group],
            device=self.device,
            state_file=self.folder.state_file(name),
        )
        show = progress_line(name)
        generators = trainer.train_all(lambda now: show(now.update, now.n_updates, now.loss))
        self._trained |= {piece.name: each.cpu() for piece, each in zip(group, generators, strict=True)}

    def train(
        self,
        recipe: Recipe,
        config: TrainingConfig,
        support: tuple[str, ...],
        mixture_seed: int,
        seed: int,
        name: str,
    ) -> Generator:
        """One model, from its last state if it has one, or from the group it was trained in."""
        if name in self._trained:
            return self._trained[name]
        trainer = Trainer(
            config,
            recipe.layout(self.dataset.n_fft),
            self.training_set(support, config, mixture_seed),
            objective(config, self.measurements, self.device),
            seed=seed,
            device=self.device,
            state_file=self.folder.state_file(name),
        )
        if trainer.update:
            print(f"{name}: goes on from update {trainer.update}", flush=True)
        show = progress_line(name)
        return trainer.train(lambda now: show(now.update, now.n_updates, now.loss)).cpu()

    def candidate(
        self,
        generator: Generator,
        config: TrainingConfig,
        support: tuple[str, ...],
        split: int | None,
        seed: int,
    ) -> Checkpoint:
        """What will be published, its scores still missing. The golden question is the first support ear's."""
        measurements, dataset = self.measurements, self.dataset
        psd, uncertainty = measurements.reference_psd.float(), measurements.support_uncertainty(support).float()
        first = measurements.indices(support)[0]
        estimates = measurements.estimates
        golden = GoldenCase.make(
            generator,
            psd,
            uncertainty,
            estimates.primary[first],
            estimates.secondary[first],
            estimates.coherence[first],
        )
        manifest = Manifest(
            dataset=dataset.name,
            split=split,
            seed=seed,
            support=support,
            training=config.model_dump(mode="json"),
            data_fingerprint=dataset.fingerprint,
            support_statistics=measurements.support_statistics(support),
            licence=dataset.licence,
            attribution=dataset.attribution,
        )
        return Checkpoint(manifest, generator, psd, uncertainty, golden)

    def model_name(self, method: str, split: int, seed: int) -> str:
        """The name that a generator is published under."""
        return f"{self.dataset.name}-{method}-split{split:02d}-seed{seed}"

    def published(self, piece: Piece) -> str:
        """The store reference of a finished generator of this run.

        Raises RunError where it is not finished, or the store does not hold the very model that its rows are of:
        another one of that name would be scored in its place without a word.
        """
        rows = self.folder.rows([piece.name])
        if rows.empty:
            raise RunError(f"{self.options.out}: found no rows of {piece.name}, expected it to be finished")
        reference, expected = str(rows.checkpoint.iloc[0]), rows.digest.iloc[0]
        try:
            found = self.store.resolve(reference).digest
        except UnknownModel:
            found = "no such model"
        if found != expected:
            raise RunError(
                f"model {reference}: found {found} in {self.store.root}, expected {expected}; name the store that "
                f"holds it, or delete {self.folder.rows_file(piece.name)} and start without --from to train it anew"
            )
        return reference

    def has_model(self, piece: Piece) -> bool:
        """Whether a generator is finished and the store holds the very model that its rows are of."""
        try:
            self.published(piece)
        except RunError:
            return False
        return True

    def _state_file(self, piece: Piece) -> Path:
        file = self.folder.state_file(piece.name)
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    def device_name(self) -> str:
        """For records and tables."""
        return device_name(self.device)


def choose_device(name: str) -> torch.device:
    """`auto`, `cpu` or `cuda` -> a device; ValueError where the one asked for is not there."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device: found no CUDA device that torch can use, expected one (or cpu, or auto)")
    return torch.device("cuda" if torch.cuda.is_available() and name != "cpu" else "cpu")


def progress_line(name: str) -> Callable[[int, int, float], None]:
    """A line for each report of a training."""

    def show(update: int, n_updates: int, loss: float) -> None:
        if update % REPORT_EVERY_UPDATES == 0 or update == n_updates:
            print(f"{name}: {update}/{n_updates} updates, loss {loss:.2f}", flush=True)

    return show


def figures(rows: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Means on the original measurements, for a manifest: of every start, of a generator's updates in its own
    profile, and of WMMSE with three updates in the paper's."""
    own_updates = rows.method.isin(GENERATORS) & (rows.profile == rows.method.map(own_profile))
    compared = (rows.method == "wmmse") & (rows.k == 3) & (rows.profile == "paper")
    chosen = rows[(rows.condition == "original") & ((rows.k == 0) | own_updates | compared)].assign(split=0)
    return {
        design_name(*as_design(key)): {str(name): round(float(value), 4) for name, value in mean.items()}
        for key, mean in split_means(chosen, list(COLUMNS)).iterrows()
    }


def stages(pieces: list[Piece]) -> Iterator[list[Piece]]:
    """The pieces stage by stage."""
    for stage in sorted({piece.stage for piece in pieces}):
        yield [piece for piece in pieces if piece.stage == stage]
