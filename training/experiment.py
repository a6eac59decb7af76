"""Section 3 of the paper: for all splits and methods, fit on the support, score on the held-out listeners.

A design sees estimated paths and its score the true ones. The exceptions are adaptive filters (FxLMS), which adapt
on the true paths; their rows say so. A task is a method on one split (and seed), or, where a method needs no
support, on one listener. Tasks whose rows exist are skipped, so that repeating a run resumes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import pandas as pd
import torch
from joblib import Parallel, delayed

from model_store.checkpoint import Checkpoint, GoldenCase
from model_store.manifest import Manifest, Scores
from model_store.store import ModelStore
from prime_anc.method.bands import nominal_hz
from prime_anc.method.conventions import N_TAPS
from prime_anc.method.design import predict_all
from prime_anc.method.errors import SynthesisError
from prime_anc.method.types import Model, Paths, Problem
from training.config import Configuration
from training.data import Data, Split, open_data
from training.machine import commit, describe, device_name
from training.measurements import Measurements, wearing_of
from training.methods import BY_RECORDING, GROUPS, METHODS, Designer, Filter, chosen_methods, measured_paths
from training.report import mean_figures, write_report
from training.rows import Row, RunFolder, exclusive
from training.scoring import SCORED_BANDS, Score, TimeDomainScore
from training.support import SupportSet


@dataclass(frozen=True)
class Task:
    """A method on one listener, or fitted on one split's (and seed's) support and scored on its held-out listeners."""

    method: str
    listener: str | None = None
    split: int | None = None
    seed: int | None = None

    @property
    def name(self) -> str:
        """Return METHOD/LISTENER or METHOD/splitNN-seedN, the path of its rows."""
        if self.listener is not None:
            return f"{self.method}/{self.listener}"
        return f"{self.method}/split{self.split:02d}" + ("" if self.seed is None else f"-seed{self.seed}")


def run(configuration: Configuration) -> str:
    """Run an experiment, or what is left of it, and return the text of its tables.

    Raises
    ------
    DatasetError, RunError, ModelStoreError, ValueError, OSError
        The configuration, the data or the environment cannot be used; the message says what is wrong.
    """
    methods = chosen_methods(configuration.methods)
    data = open_data(configuration)
    splits = chosen_splits(data, configuration.split)
    tasks = list_tasks(data, methods, splits)
    folder = RunFolder(configuration.out)
    with exclusive(configuration.out):
        start = {"options": configuration.model_dump(mode="json"), "environment": describe(data.device.type)}
        folder.open(data.settings(), start)
        announce(data, methods, splits)
        # Methods that use a generator come last, so that no two tasks train the same one.
        for needs_generator in (False, True):
            stage = [task for task in tasks if METHODS[task.method].needs_generator is needs_generator]
            run_tasks(configuration, stage)
        folder.collect({split.index: data.queries(split) for split in data.splits})
        return write_report(configuration.out)


def run_tasks(configuration: Configuration, tasks: Sequence[Task]) -> None:
    """Run unfinished tasks in processes."""
    folder = RunFolder(configuration.out)
    left = [task for task in tasks if not folder.has(task.name)]
    if len(left) < len(tasks):
        print(f"{len(tasks) - len(left)} of {len(tasks)} tasks were already finished", flush=True)
    work = Parallel(configuration.workers, return_as="generator_unordered")
    for n, message in enumerate(work(delayed(run_task)(configuration, task) for task in left), start=1):
        print(f"{message}; {n} of {len(left)} tasks", flush=True)


def run_task(configuration: Configuration, task: Task) -> str:
    """Fit a method, score it and keep its rows; a generator is published where a store is named."""
    data, method = open_data(configuration), METHODS[task.method]
    support = support_of(data, task)
    designer = method.fit(support)
    rows = list(score_task(data, task, support, designer))
    if method.recipe is not None and configuration.store is not None:
        rows = publish(data, task, support, rows)
    table = pd.DataFrame(rows).assign(commit=commit())
    RunFolder(configuration.out).write(task.name, table)
    return f"{task.name}: {len(table)} rows"


def support_of(data: Data, task: Task) -> SupportSet:
    """Return the data that a task's method may use: its split's support, or all other listeners."""
    if task.split is None:
        others = tuple(name for name in data.dataset.listeners if name != task.listener)
        return SupportSet(data, data.everybody.support, others, (), 0, 0, task.name)
    split = data.splits[task.split]
    fold = data.fold(split)
    return SupportSet(data, fold.support, split.support, split.query, split.index, task.seed or 0, task.name)


def score_task(data: Data, task: Task, support: SupportSet, designer: Designer) -> Iterator[Row]:
    """Yield rows of a fitted method for all calibrations of its held-out listeners."""
    labels: Row = {}
    listeners: tuple[str, ...]
    if task.split is None:
        assert task.listener is not None
        listeners, fold = (task.listener,), data.everybody
    else:
        split = data.splits[task.split]
        listeners, fold = data.queries(split), data.fold(split)
        labels = {"split": task.split, "seed": task.seed, "support": " ".join(split.support)}
        if split.support_recordings:
            labels["support_recordings"] = " ".join(split.support_recordings)
    for measurements in fold.queries:
        yield from score_method(measurements, fold.score, task.method, designer, support, listeners, labels)


def score_method(
    measurements: Measurements,
    score: TimeDomainScore,
    name: str,
    designer: Designer,
    support: SupportSet,
    listeners: tuple[str, ...],
    labels: Row,
) -> Iterator[Row]:
    """Yield the rows of a method on some listeners: one per ear and filter.

    Parameters
    ----------
    measurements, score
        The listeners' calibrations, and the score on their true paths.
    name, designer, support
        Name in METHODS, the fitted method, and what predictions may know.
    labels
        Columns that all rows share.
    """
    method, model = METHODS[name], Model.on("cpu", support.untrained())
    device = device_name(support.data.device.type)
    updates = method.updates
    if measurements.probe is not None and updates:
        updates = BY_RECORDING
    for index in measurements.indices(listeners):
        filters = list(designer.filters(measurements, index, updates))
        if not filters:
            continue
        pair = measurements.pairs[index]
        scores = score(pair, torch.stack([item.taps for item in filters]))
        paths = measured_paths(measurements, index)
        for made, scored in zip(filters, scores, strict=True):
            yield {
                **labels,
                **case_columns(measurements, index),
                "method": name,
                "k": made.k,
                "profile": made.profile,
                "paths": "true" if method.true_paths else "estimated",
                **figure_columns(scored),
                **prediction(model, paths, made),
                "core_ms": made.core_ms,
                "device": device,
            }


def case_columns(measurements: Measurements, index: int) -> Row:
    """Return the columns that describe a case."""
    pair = measurements.pairs[index]
    return {
        "dataset": measurements.dataset.name,
        "simulated": measurements.dataset.is_simulated or measurements.noise.is_simulated,
        "window": measurements.window,
        "listener": pair.listener,
        "ear": pair.place,
        "condition": pair.condition,
        "fit": pair.fit,
        "variant": json.dumps(pair.variant, sort_keys=True),
        **({} if measurements.probe is None else {"probe": measurements.probe, "snr_db": measurements.snr_db}),
    }


def figure_columns(score: Score) -> Row:
    """Return the columns of a filter's scored figures."""
    values = asdict(score)
    bands = values.pop("band_db")
    return values | {f"band_{nominal_hz(n):g}_db": value for n, value in zip(SCORED_BANDS, bands, strict=True)}


def prediction(model: Model, paths: Paths, made: Filter) -> Row:
    """Return the column of the predicted noise reduction; none for filters of another length."""
    if made.taps.shape != (N_TAPS,):
        return {}
    (found,) = predict_all([Problem((paths,))], [made.taps.float().numpy()], model)
    return (
        {} if isinstance(found, SynthesisError) else {"predicted_noise_reduction_db": found.mean_noise_reduction_db}
    )


def publish(data: Data, task: Task, support: SupportSet, rows: list[Row]) -> list[Row]:
    """Publish a generator with its held-out scores; its rows name the checkpoint."""
    assert task.split is not None
    configuration = data.configuration
    assert configuration.store is not None
    beside = [one.name for name in GROUPS["standard"] for one in tasks_of(data, name, data.splits[task.split])]
    scores = Scores(held_out=mean_figures(RunFolder(configuration.out).read(beside), pd.DataFrame(rows)))
    checkpoint = make_checkpoint(support, task.method, task.split, scores)
    protocol = "" if configuration.protocol == "by-person" else f"-{configuration.protocol}"
    name = f"{configuration.dataset}{protocol}-{task.method}-split{task.split:02d}-seed{support.seed}"
    published = ModelStore(configuration.store).publish(name, checkpoint)
    print(f"{task.name}: published as {published}", flush=True)
    return [row | {"checkpoint": str(published), "digest": published.digest} for row in rows]


def make_checkpoint(support: SupportSet, method: str, split: int | None, scores: Scores) -> Checkpoint:
    """Make a checkpoint of a support's trained generator; its golden case is the first support ear.

    Parameters
    ----------
    support, method
        Whose generator, trained now where it does not exist.
    split
        Index of the split; None for a model of all listeners.
    scores
        Table for the manifest.
    """
    recipe, data, measurements = METHODS[method].recipe, support.data, support.measurements
    assert recipe is not None
    parameters = support.parameters(support.generator(method), with_prior=True)
    first = measurements.indices(support.listeners)[0]
    estimates = measurements.estimates
    question = (estimates.primary[first], estimates.secondary[first])
    manifest = Manifest(
        dataset=data.dataset.name,
        split=split,
        seed=support.seed,
        support=support.listeners,
        training=recipe.training(data.configuration).model_dump(mode="json"),
        data_fingerprint=data.dataset.fingerprint,
        support_traits=measurements.support_statistics(support.listeners),
        wearing=wearing_of(data.configuration.data, data.dataset, support.listeners),
        scores=scores,
        licence=data.dataset.licence,
        attribution=data.dataset.attribution,
    )
    return Checkpoint(manifest, parameters, GoldenCase.make(parameters, *(item.numpy() for item in question)))


def list_tasks(data: Data, methods: Sequence[str], splits: Sequence[Split]) -> list[Task]:
    """List all tasks, untrained methods first.

    Raises
    ------
    ValueError
        The protocol has no cases for a method.
    """
    if not data.configuration.shares_estimates:
        refused = [name for name in methods if name == "weighted_fxlms" or METHODS[name].needs_generator]
        if refused:
            raise ValueError(
                f"--methods: {', '.join(refused)}: only by person and with the paper's calibration; leave them out"
            )
    in_order = sorted(methods, key=lambda method: METHODS[method].rests_on != "ear")
    return list(
        dict.fromkeys(task for method in in_order for split in splits for task in tasks_of(data, method, split))
    )


def tasks_of(data: Data, method: str, split: Split) -> list[Task]:
    """Return a method's tasks for a split's held-out listeners; one per listener, if untrained, serves all splits."""
    rests_on = METHODS[method].rests_on
    if rests_on == "ear" and data.configuration.shares_estimates:
        return [Task(method, listener=name) for name in data.queries(split)]
    seeds = range(data.configuration.seeds) if rests_on == "seed" else (None,)
    return [Task(method, split=split.index, seed=seed) for seed in seeds]


def chosen_splits(data: Data, index: int | None) -> list[Split]:
    """Return all splits, or only the one with this index.

    Raises
    ------
    ValueError
        There is no such split.
    """
    chosen = [split for split in data.splits if index in (None, split.index)]
    if not chosen:
        raise ValueError(f"--split: {index} does not exist; use 0 to {len(data.splits) - 1}")
    return chosen


def announce(data: Data, methods: Sequence[str], splits: Sequence[Split]) -> None:
    """Print data, splits, device and methods."""
    dataset = data.dataset
    for what, is_simulated in (("paths", dataset.is_simulated), ("noises", data.noise.is_simulated)):
        if is_simulated:
            print(f"SIMULATED {what}: the results below are not for measured ears", flush=True)
    print(
        f"{dataset.name}: {len(dataset.listeners)} listeners, {len(dataset.pairs)} ears; "
        f"{len(splits[0].support)} in support, {len(splits[0].query)} held out; "
        f"{len(splits)} of {len(data.splits)} splits, {data.configuration.seeds} seeds, "
        f"{device_name(data.device.type)}; {', '.join(methods)}",
        flush=True,
    )
