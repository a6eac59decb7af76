"""What a task does, from top to bottom.

A generator's task is the whole way: training set -> trainer -> checkpoint -> evaluation -> publication, with the
evaluation in the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import groupby
from pathlib import Path

import torch

from model_store.manifest import Scores
from synthesis.backends.reference import build_generator, build_synthesizer
from synthesis.generator import Generator
from training.baselines.adaptive import WeightedFxLms
from training.checkpoints import load_model, make_checkpoint, mean_figures, model_name
from training.datasets.splits import Split
from training.evaluation import Method, Row, Updates, evaluate, evaluate_weighted_fxlms
from training.measurements import Measurements
from training.methods import (
    BOTH_PROFILES,
    FITTED,
    GENERATORS,
    GROUPS,
    UNTRAINED,
    Fitting,
    GeneratorDesign,
    GeneratorSetup,
    objective,
)
from training.run_data import Options, RunData, open_run
from training.tasks import Task, untrained_tasks
from training.trainer import GroupTrainer

REPORT_EVERY_UPDATES = 250
UPDATES_BY_RECORDING = (Updates("paper", (3,)), Updates("fast", (1, 3)))
"""There are two dozen calibrations of each ear."""


def run_task(options: Options, task: Task) -> list[Row]:
    """Do a task in this process; a generator is published as well."""
    data = open_run(options)
    if task.method in UNTRAINED:
        return _evaluate_untrained(data, task)
    return _train_and_publish(data, task) if task.method in GENERATORS else _fit_and_evaluate(data, task)


def _evaluate_untrained(data: RunData, task: Task) -> list[Row]:
    entry = UNTRAINED[task.method]
    if task.listener is None:
        known, support = data.support_measurements(split_of(data, task)), split_of(data, task).support
        method = entry.make(known.reference_psd.float())
        # Predicted as a model of this split predicts, so that the two can be compared as the fallback does.
        uncertainty = known.support_uncertainty(support).float()
        return evaluate_on_queries(data, task, method, entry.updates, uncertainty)
    if task.method == WeightedFxLms.name:
        return evaluate_weighted_fxlms(data.measurements, data.score_of_all, task.listener)
    method = entry.make(data.measurements.reference_psd.float())
    indices = data.measurements.indices((task.listener,))
    return evaluate(data.measurements, data.score_of_all, method, entry.updates, indices)


def _fit_and_evaluate(data: RunData, task: Task) -> list[Row]:
    method = fit(data, task, data.folder.state_file(task.name))
    return evaluate_on_queries(data, task, method, FITTED[task.method].updates)


def evaluate_on_queries(
    data: RunData,
    task: Task,
    method: Method,
    updates: tuple[Updates, ...],
    band_uncertainty: torch.Tensor | None = None,
) -> list[Row]:
    """Rows of a method on its split's held-out listeners, in every way that they are calibrated."""
    split = split_of(data, task)
    labels = _labels(data, task)
    if split.query_recordings and updates:
        updates = UPDATES_BY_RECORDING
    return [
        row
        for measurements in data.query_measurements(split)
        for row in evaluate(
            measurements,
            data.score(split),
            method,
            updates,
            measurements.indices(data.queries(split)),
            labels,
            band_uncertainty,
        )
    ]


def _train_and_publish(data: RunData, task: Task) -> list[Row]:
    setup, split, seed = GENERATORS[task.method], split_of(data, task), task.seed or 0
    measurements = data.support_measurements(split)
    generator = train_generator(data, measurements, setup, split.support, split.index, seed, task.name)
    checkpoint = make_checkpoint(data, measurements, setup, generator, split.support, split.index, seed)
    rows = evaluate_on_queries(
        data,
        task,
        GeneratorDesign(task.method, build_synthesizer(checkpoint.parameters)),
        BOTH_PROFILES,
        torch.from_numpy(checkpoint.parameters.band_uncertainty),
    )
    beside = [each.name for name in GROUPS["standard"] for each in untrained_tasks(data, name, split)]
    scores = Scores(held_out=mean_figures(data.folder.rows(beside), rows))
    checkpoint.manifest = checkpoint.manifest.model_copy(update={"scores": scores})
    published = data.store.publish(model_name(data, task.method, split.index, seed), checkpoint)
    print(f"{task.name}: published as {published.reference}", flush=True)
    return [row | {"checkpoint": published.reference, "digest": published.digest} for row in rows]


def split_of(data: RunData, task: Task) -> Split:
    """The split that a task is fitted on."""
    assert task.split is not None
    return data.splits[task.split]


def _labels(data: RunData, task: Task) -> Row:
    split = split_of(data, task)
    labels: Row = {"split": task.split, "seed": task.seed, "support": " ".join(split.support)}
    if split.support_recordings:
        labels["support_recordings"] = " ".join(split.support_recordings)
    return labels


def fit(data: RunData, task: Task, state_file: Path, n_updates: int | None = None) -> Method:
    """A method fitted on its split's support. n_updates: of a network, instead of the configuration's."""
    split = split_of(data, task)
    config = data.configuration(GeneratorSetup("prime"))
    if n_updates is not None:
        config = config.model_copy(update={"n_updates": n_updates})
    generator = None
    if task.generator is not None:
        generator = build_generator(load_model(data, task.generator).parameters)
    fitting = Fitting(
        measurements=data.support_measurements(split),
        support=split.support,
        query=split.query,
        split=split.index,
        seed=task.seed or 0,
        config=config,
        device=data.device,
        state_file=state_file,
        progress=progress_line(task.name),
        generator=generator,
    )
    return FITTED[task.method].fit(fitting)


def train_generator(
    data: RunData,
    measurements: Measurements,
    setup: GeneratorSetup,
    support: tuple[str, ...],
    mixture_seed: int,
    seed: int,
    name: str,
) -> Generator:
    """One model, on the CPU; resumed from the task's state file where there is one."""
    config = data.configuration(setup)
    print(f"{name}: simulates {config.n_calibrations} calibrations of {len(support)} listeners", flush=True)
    trainer = GroupTrainer(
        config,
        setup.layout(data.dataset.n_fft),
        [data.training_set(measurements, support, config, mixture_seed)],
        objective(config, measurements, data.device),
        seeds=[seed],
        device=data.device,
        state_file=data.folder.state_file(name),
    )
    if trainer.update:
        print(f"{name}: goes on from update {trainer.update}", flush=True)
    (generator,) = trainer.train(progress_line(name))
    return generator.cpu()


def train_groups(data: RunData, tasks: Sequence[Task], group_size: int) -> None:
    """Train the generators of the tasks as one program, group_size at a time.

    Each model's final state becomes the state file of its task, which then finds its training done. tasks: all of
    the run's, finished or not, so that the groups are the same whenever the run is started again.
    """
    for method, setup in GENERATORS.items():
        own = [task for task in tasks if task.method == method]
        # Elsewhere every split has measurements, hence an objective, of its own.
        related = [own]
        if not data.shares_estimates:
            related = [list(group) for _, group in groupby(own, lambda task: task.split)]
        groups = [each[i : i + group_size] for each in related for i in range(0, len(each), group_size)]
        for group in groups:
            if not all(_is_trained(data, setup, task) for task in group):
                _train_group(data, setup, group)


def _is_trained(data: RunData, setup: GeneratorSetup, task: Task) -> bool:
    if data.folder.is_finished(task.name):
        return True
    return GroupTrainer.updates_in(data.folder.state_file(task.name)) == data.configuration(setup).n_updates


def _train_group(data: RunData, setup: GeneratorSetup, group: list[Task]) -> None:
    config = data.configuration(setup)
    splits = [split_of(data, task) for task in group]
    known = {split.index: data.support_measurements(split) for split in splits}
    sets = {
        split.index: data.training_set(known[split.index], split.support, config, split.index) for split in splits
    }
    # The state belongs to just these models: another request makes other groups.
    members = sha256(" ".join(task.name for task in group).encode()).hexdigest()
    name = f"{group[0].method}/group-{members[:12]}"
    trainer = GroupTrainer(
        config,
        setup.layout(data.dataset.n_fft),
        [sets[split.index] for split in splits],
        objective(config, known[splits[0].index], data.device),
        seeds=[task.seed or 0 for task in group],
        device=data.device,
        state_file=data.folder.state_file(name),
    )
    trainer.train(progress_line(name))
    trainer.save_members([data.folder.state_file(task.name) for task in group])
    data.folder.state_file(name).unlink(missing_ok=True)


def progress_line(name: str) -> Callable[[int, int, float], None]:
    """Prints a line every 250 updates and at the last; called with updates done, updates in all, and the loss."""

    def show(update: int, n_updates: int, loss: float) -> None:
        if update % REPORT_EVERY_UPDATES == 0 or update == n_updates:
            print(f"{name}: {update}/{n_updates} updates, loss {loss:.2f}", flush=True)

    return show
