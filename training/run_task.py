"""What a task does, from top to bottom.

A generator's task is the whole way: training set -> trainer -> checkpoint -> evaluation -> publication, with the
evaluation in the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import torch

from model_store.manifest import Scores
from synthesis.backends.reference import build_generator, build_synthesizer
from synthesis.generator import Generator
from training.baselines.adaptive import WeightedFxLms
from training.checkpoints import load_model, make_checkpoint, mean_figures, model_name
from training.datasets.splits import Split
from training.evaluation import Method, Row, evaluate, evaluate_weighted_fxlms
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
from training.run_data import Options, RunData, open_run
from training.tasks import Task
from training.trainer import GroupTrainer

REPORT_EVERY_UPDATES = 250


def run_task(options: Options, task: Task) -> list[Row]:
    """Do a task in this process; a generator is published as well."""
    data = open_run(options)
    if task.method in UNTRAINED:
        return _evaluate_untrained(data, task)
    return _train_and_publish(data, task) if task.method in GENERATORS else _fit_and_evaluate(data, task)


def _evaluate_untrained(data: RunData, task: Task) -> list[Row]:
    assert task.listener is not None
    if task.method == WeightedFxLms.name:
        return evaluate_weighted_fxlms(data.measurements, data.score, task.listener)
    entry = UNTRAINED[task.method]
    method = entry.make(data.measurements.reference_psd.float())
    indices = data.measurements.indices((task.listener,))
    return evaluate(data.measurements, data.score, method, entry.updates, indices)


def _fit_and_evaluate(data: RunData, task: Task) -> list[Row]:
    method = fit(data, task, data.folder.state_file(task.name))
    return evaluate(
        data.measurements,
        data.score,
        method,
        FITTED[task.method].updates,
        data.measurements.indices(data.queries(split_of(data, task))),
        _labels(data, task),
    )


def _train_and_publish(data: RunData, task: Task) -> list[Row]:
    recipe, split, seed = GENERATORS[task.method], split_of(data, task), task.seed or 0
    generator = train_generator(data, recipe, split.support, split.index, seed, task.name)
    checkpoint = make_checkpoint(data, recipe, generator, split.support, split.index, seed)
    rows = evaluate(
        data.measurements,
        data.score,
        GeneratorDesign(task.method, build_synthesizer(checkpoint.parameters)),
        BOTH_PROFILES,
        data.measurements.indices(data.queries(split)),
        _labels(data, task),
        torch.from_numpy(checkpoint.parameters.band_uncertainty),
    )
    beside = [Task(name, listener=each).name for name in GROUPS["standard"] for each in data.queries(split)]
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
    support = " ".join(split_of(data, task).support)
    return {"split": task.split, "seed": task.seed, "support": support}


def fit(data: RunData, task: Task, state_file: Path, n_updates: int | None = None) -> Method:
    """A method fitted on its split's support. n_updates: of a network, instead of the recipe's."""
    split = split_of(data, task)
    config = data.configuration(Recipe("prime"))
    if n_updates is not None:
        config = config.model_copy(update={"n_updates": n_updates})
    generator = None
    if task.generator is not None:
        generator = build_generator(load_model(data, task.generator).parameters)
    fitting = Fitting(
        measurements=data.measurements,
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
    data: RunData, recipe: Recipe, support: tuple[str, ...], mixture_seed: int, seed: int, name: str
) -> Generator:
    """One model, on the CPU; resumed from the task's state file where there is one."""
    config = data.configuration(recipe)
    trainer = GroupTrainer(
        config,
        recipe.layout(data.dataset.n_fft),
        [data.training_set(support, config, mixture_seed)],
        objective(config, data.measurements, data.device),
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
    for method, recipe in GENERATORS.items():
        own = [task for task in tasks if task.method == method]
        for group in (own[i : i + group_size] for i in range(0, len(own), group_size)):
            if not all(_is_trained(data, recipe, task) for task in group):
                _train_group(data, recipe, group)


def _is_trained(data: RunData, recipe: Recipe, task: Task) -> bool:
    if data.folder.is_finished(task.name):
        return True
    return GroupTrainer.updates_in(data.folder.state_file(task.name)) == data.configuration(recipe).n_updates


def _train_group(data: RunData, recipe: Recipe, group: list[Task]) -> None:
    config = data.configuration(recipe)
    splits = [split_of(data, task) for task in group]
    sets = {split.index: data.training_set(split.support, config, split.index) for split in splits}
    # The state belongs to just these models: another request makes other groups.
    members = sha256(" ".join(task.name for task in group).encode()).hexdigest()
    name = f"{group[0].method}/group-{members[:12]}"
    trainer = GroupTrainer(
        config,
        recipe.layout(data.dataset.n_fft),
        [sets[split.index] for split in splits],
        objective(config, data.measurements, data.device),
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
