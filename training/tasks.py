"""The tasks of a run: each is done as a whole or not at all, and yields rows.

An untrained method's task is one listener, or one split where splits differ in more than their listeners; any
other's is one split (and seed).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from training.baselines.adaptive import WeightedFxLms
from training.datasets.splits import Split
from training.methods import FITTED, GENERATORS, UNTRAINED
from training.run_data import RunData


@dataclass(frozen=True)
class Task:
    """A method on one listener, or on one split's (and seed's) held-out listeners, fitted on its support."""

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
        """Tasks of one stage need only those of earlier ones."""
        if self.method in UNTRAINED:
            return 0
        return 1 if self.generator is None else 2

    @property
    def generator(self) -> Task | None:
        """The standard PRIME of the same split and seed, where the method is made of it."""
        if _needs_generator(self.method):
            return Task("prime", split=self.split, seed=self.seed)
        return None


def list_tasks(data: RunData, methods: tuple[str, ...], splits: list[Split], n_seeds: int) -> list[Task]:
    """All tasks, stage after stage; within a stage one split and seed after the other.

    Raises ValueError for a method that a protocol has no cases for.
    """
    if not data.shares_estimates:
        refused = [name for name in methods if name == WeightedFxLms.name or _needs_generator(name)]
        if refused:
            raise ValueError(
                f"--methods: {', '.join(refused)}: only by person and with the paper's calibration; leave them out"
            )
    named = dict.fromkeys(
        task
        for method in methods
        if method in UNTRAINED
        for split in splits
        for task in untrained_tasks(data, method, split)
    )
    tasks = sorted(named, key=lambda task: methods.index(task.method))
    for split in splits:
        for method in methods:
            for seed in range(n_seeds):
                if method in GENERATORS or (method in FITTED and FITTED[method].rests_on == "seed"):
                    tasks.append(Task(method, split=split.index, seed=seed))
                elif method in FITTED and seed == 0:
                    tasks.append(Task(method, split=split.index))
    return sorted(tasks, key=lambda task: task.stage)


def untrained_tasks(data: RunData, method: str, split: Split) -> list[Task]:
    """The tasks that evaluate an untrained method on a split's held-out listeners."""
    if data.shares_estimates:
        return [Task(method, listener=name) for name in data.queries(split)]
    return [Task(method, split=split.index)]


def _needs_generator(method: str) -> bool:
    return method in FITTED and FITTED[method].needs_generator


def stages(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """The tasks stage by stage."""
    for stage in sorted({task.stage for task in tasks}):
        yield [task for task in tasks if task.stage == stage]
