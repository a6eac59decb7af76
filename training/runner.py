"""Where tasks run: on this machine's cores or on a Ray cluster, behind one interface.

A runner yields each task with its rows as it is finished. The task of a worker that dies is done again by another,
a training from its last state. A task that fails ends the run; the same command resumes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from training.evaluation import Row
    from training.tasks import Task

Work = Callable[["Task"], "list[Row]"]
"""What a task is: it is pickled, so a function of a module, or a `functools.partial` of one."""
Finished = tuple["Task", "list[Row]"]

MAX_DEATHS = 3


class WorkerLost(RuntimeError):
    """Workers died again and again; the message says what was left to do."""


class Runner(Protocol):
    """Runs the tasks of one stage, which need nothing of each other."""

    def run(self, tasks: Sequence[Task]) -> Iterator[Finished]:
        """Each task with its rows, in the order in which they finish."""
        ...


@dataclass(frozen=True)
class LocalRunner:
    """This process for one worker, else n_workers processes that share the machine's cores."""

    work: Work
    n_workers: int

    def run(self, tasks: Sequence[Task]) -> Iterator[Finished]:
        """Raises WorkerLost where worker processes die three times."""
        if self.n_workers == 1:
            for task in tasks:
                yield task, self.work(task)
            return
        left = list(tasks)
        for _ in range(MAX_DEATHS):
            try:
                for task, rows in self._run_in_pool(left.copy()):
                    left.remove(task)
                    yield task, rows
                return
            except BrokenProcessPool:
                print(f"a worker process died; new ones take over the {len(left)} tasks that are left", flush=True)
        raise WorkerLost(f"worker processes died {MAX_DEATHS} times; {len(left)} tasks are left")

    def _run_in_pool(self, tasks: Sequence[Task]) -> Iterator[Finished]:
        n_threads = max(1, (os.cpu_count() or 1) // self.n_workers)
        with ProcessPoolExecutor(
            self.n_workers, mp_context=get_context("spawn"), initializer=_start_worker, initargs=(n_threads,)
        ) as pool:
            futures = {pool.submit(self.work, task): task for task in tasks}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


def _start_worker(n_threads: int) -> None:
    """In a new worker: take its share of the cores, and end with its parent."""
    Thread(target=_end_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(n_threads)


def _end_with_parent() -> None:
    """A killed parent stops nobody; without this its workers would go on beside the run that takes over."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@dataclass(frozen=True)
class RayRunner:
    """A Ray cluster: the one at RAY_ADDRESS, or else one started here with n_workers cores.

    Data, OUT and the store must lie where every machine sees them. Ray retries the task of a worker that dies.
    """

    work: Work
    n_workers: int

    def run(self, tasks: Sequence[Task]) -> Iterator[Finished]:
        """Raises WorkerLost where a task's workers died three times, ImportError where ray is not installed."""
        try:
            import ray
        except ImportError as error:
            raise ImportError("--engine ray: ray is not installed; pip install .[cluster]") from error
        is_ours = not ray.is_initialized()
        if is_ours:
            # Processes of our own: never more of them than cores were granted.
            n_cores = None if os.environ.get("RAY_ADDRESS") else self.n_workers
            ray.init(num_cpus=n_cores, include_dashboard=False, log_to_driver=True)
        try:

            def run_task(task: Task) -> list[Row]:
                return self.work(task)

            remote = ray.remote(num_cpus=1, max_retries=MAX_DEATHS)(run_task)
            waiting = {remote.remote(task): task for task in tasks}
            while waiting:
                done, _ = ray.wait(list(waiting), num_returns=1)
                for reference in done:
                    yield waiting[reference], ray.get(reference)
                    del waiting[reference]
        except ray.exceptions.RayTaskError:
            raise  # the task's own failure
        except ray.exceptions.RayError as error:
            reason = str(error).partition("\n")[0]
            raise WorkerLost(f"{reason} (retried {MAX_DEATHS} times); {len(waiting)} tasks are left") from error
        finally:
            if is_ours:
                ray.shutdown()


RUNNERS: dict[str, type[LocalRunner] | type[RayRunner]] = {"local": LocalRunner, "ray": RayRunner}
