"""The engine: models in memory, and the queue of all work with them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from model_store.store import ModelStore
from prime_anc.method.errors import DeviceLost, answer_or_raise
from prime_anc.method.types import Design, Fallback, backend_class
from prime_anc.tasks.problem import DesignRequest
from service.errors import HttpProblem
from service.models.readiness import STALLED_AFTER_S, Readiness
from service.models.resident_model import ResidentModel
from service.models.resident_models import ResidentModels
from service.queue.costs import design_cost
from service.queue.estimates import Cost
from service.queue.lane import Work
from service.queue.waiting import Disconnected
from service.queue.work_queue import WorkQueue, device_lost, stopping

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")


def check_device(name: str) -> None:
    """Raise ValueError if `cuda` is requested but not available; for `cpu` torch is not imported."""
    if name == "cpu":
        return
    try:
        import torch

        has_cuda = torch.cuda.is_available()
    except ImportError:
        has_cuda = False
    if not has_cuda:
        raise ValueError(
            "device: torch finds no CUDA device; install prime-anc[gpu] and the NVIDIA driver, or use cpu"
        )


class Engine:
    """Designs filters, and does all other work, in worker threads. Its coroutines run in one event loop.

    On a thread-safe backend (CPU) each worker solves one problem at a time: the compiled core releases Python's lock.
    Any other backend (GPU) has one worker, which solves batches of designs, also from different requests; everything
    but designs is the core's work on every device.
    """

    def __init__(
        self,
        store: ModelStore,
        device: str,
        *,
        default_model: str = "generic",
        n_threads: int = 1,
        fallback: Fallback | None = None,
        max_resident_models: int = 4,
        ready_budget_s: float = 1.0,
        recheck_s: float = 15.0,
    ) -> None:
        """Create an engine that has yet to be started.

        Parameters
        ----------
        store
            Published models.
        device
            As for `Model.on`.
        default_model
            Name, name@version or alias of the model that requests without one get.
        n_threads
            Workers of a thread-safe backend.
        fallback
            When Wiener filters replace the generator's; None: by default.
        max_resident_models
            At least 2.
        ready_budget_s, recheck_s
            As for `Readiness`.
        """
        self.device, self.store = device, store
        self.models = ResidentModels(store, device, default_model, fallback or Fallback(), max_resident_models)
        self.models.on_device_lost = self._lose_device
        backend = backend_class(device)
        n_light, max_batch = (n_threads, 1) if backend.is_thread_safe else (1, backend.max_batch)
        # Where designs go whatever they cost, because their backend belongs to one thread.
        self._design_lane = None if backend.is_thread_safe else "light"
        self.queue = WorkQueue(n_light, max(n_threads - 1, 1), max_batch)
        self.queue.on_device_lost = self._lose_device
        self.readiness = Readiness(self.models, self._check, budget_s=ready_budget_s, every_s=recheck_s)
        self._tasks: list[asyncio.Task[None]] = []
        # Whether the GPU has failed in a way that only a new process can recover from.
        self.is_device_lost = False
        # Called once, in any thread. By default: SIGTERM to this process, which its supervisor restarts.
        self.on_device_lost: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGTERM)

    @property
    def ready(self) -> bool:
        """Return whether `require_ready` raises nothing."""
        try:
            self.require_ready()
        except HttpProblem:
            return False
        return True

    def require_live(self) -> None:
        """Raise HttpProblem (`not-ready`) if probably only a new process designs right filters again: the GPU has
        failed, or the default model misses its golden case even with a new backend (`ResidentModel.recheck`)."""
        if self.is_device_lost:
            raise device_lost()
        if self.models.default is not None and not self.models.default.is_sound:
            raise HttpProblem(
                "not-ready", "the default model no longer reproduces its golden case; use another replica"
            )

    def require_ready(self) -> None:
        """Raise HttpProblem (`not-ready`, `model-unavailable`) unless this replica should receive requests."""
        if self.readiness.draining:
            raise stopping()
        self.require_default()
        readiness = self.readiness
        if readiness.verdict == "slow":
            raise HttpProblem(
                "not-ready",
                f"the golden case takes {1e3 * readiness.golden_s:.0f} ms, more than the "
                f"{1e3 * readiness.budget_s:.0f} ms that are allowed; send requests to another replica",
            )
        if readiness.verdict == "stalled" or self.queue.longest_running_s() > STALLED_AFTER_S:
            raise HttpProblem(
                "not-ready", f"a design has not finished in {STALLED_AFTER_S:.0f} s; use another replica"
            )

    def require_default(self) -> None:
        """Raise HttpProblem if the default model cannot be trusted: `not-ready` while it is loading, or as
        `require_live` does; `model-unavailable` if it cannot be loaded."""
        self.require_live()
        if self.models.default_failed:
            raise HttpProblem(
                "model-unavailable", "the default model cannot be loaded; see the service's log for the reason"
            )
        if self.models.default is None:
            raise HttpProblem("not-ready", "the default model is still being loaded; retry in a moment")

    def drain(self) -> None:
        """Report not ready from now on, but continue to work."""
        self.readiness.draining = True

    def start(self) -> None:
        """Start the workers and begin to load the default model. Returns at once; see `started` and `ready`."""
        self.queue.start()
        self._tasks = [asyncio.create_task(self._start()), asyncio.create_task(self.readiness.watch())]

    async def _start(self) -> None:
        await self.models.reload()
        if self.models.default is not None:
            await self.readiness.check()

    async def started(self) -> None:
        """Wait until the default model was loaded or failed to load."""
        await asyncio.wait(self._tasks[:1])

    async def close(self) -> None:
        """Finish running work, refuse waiting work and end the threads; a thread that hangs is abandoned."""
        for task in self._tasks:
            task.cancel()
        await self.queue.close()
        await self.models.close()

    async def model(
        self, reference: str | None, due: float, disconnected: Disconnected | None = None
    ) -> ResidentModel:
        """Return the model of a request, which is loaded if need be.

        Parameters
        ----------
        reference
            Name, name@version or alias in the store; None: the default model.
        due
            Deadline in `perf_counter` seconds.
        disconnected
            Gives an awaitable that returns when the client has disconnected.

        Raises
        ------
        HttpProblem
            `not-ready`, `overloaded`, `deadline-passed` or `model-unavailable`.
        UnknownModel, InvalidName
            For another model than the store has.
        """
        self.require_default()
        return await self.models.model(reference, due, disconnected)

    async def design(
        self,
        resident: ResidentModel,
        requested: DesignRequest,
        key: str = "",
        due: float = float("inf"),
        disconnected: Disconnected | None = None,
    ) -> Design:
        """Design a filter.

        If there is not enough time for all updates, fewer are applied (`stopped`: `deadline`).

        Raises
        ------
        HttpProblem, ClientGone
            As `WorkQueue.run`.
        SynthesisError
            The design fails.
        """
        design, options = resident.design, requested.options

        def run(problems: Any, n_updates: int) -> list[Any]:
            return design(problems, replace(options, n_updates=n_updates))

        work = Work(run, requested.problem, design_cost(requested), key, due, group=(design, options))
        made = answer_or_raise(await self.queue.run(work, disconnected, lane=self._design_lane))
        made.times_ms["queue"] = 1e3 * (work.began - work.since)
        if work.n_updates == options.n_updates:
            return made
        refinement = made.refinement
        if refinement.stopped == "budget":
            refinement = replace(refinement, stopped="deadline")
        return replace(made, n_requested=options.n_updates, refinement=refinement)

    async def run(
        self,
        task: Callable[[], Answer],
        cost: Cost,
        key: str = "",
        due: float = float("inf"),
        disconnected: Disconnected | None = None,
    ) -> tuple[Answer, float]:
        """Run a task on the core; returns its answer, and its time in the queue (s). Errors as of `design`."""
        work = Work(lambda items, n_updates: [task()], None, cost, key, due)
        answer: Answer = await self.queue.run(work, disconnected)
        return answer, work.began - work.since

    async def _check(self, model: ResidentModel) -> float:
        """Have the next free worker check a model, and rebuild its backend if need be; return how many seconds its
        golden design took."""
        work = Work(lambda items, n_updates: [model.recheck()], None, Cost("golden case", 0.01))
        return float(await self.queue.run(work, lane="light", first=True))

    def _lose_device(self, error: DeviceLost) -> None:
        """Called in a worker, or in the event loop if loading a model has failed."""
        if not self.is_device_lost:
            self.is_device_lost = True
            logger.critical("The GPU has failed; this process ends for its supervisor to restart it: %s", error)
            self.on_device_lost()
