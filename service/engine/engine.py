"""The engine: resident models, a job queue that respects deadlines, and the worker threads that design filters."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Thread, get_native_id
from time import perf_counter
from typing import Any

from model_store.store import ModelStore
from prime_anc.method.errors import DeviceLost, Interrupted, SynthesisError, interruption_check
from prime_anc.method.methods import METHODS
from prime_anc.method.profiles import PROFILES
from prime_anc.method.types import (
    Complex64,
    Design,
    DesignOptions,
    Evaluation,
    Fallback,
    Float32,
    Problem,
    backend_class,
)
from service.engine.job_queue import Batch, Job, JobQueue, stopping
from service.engine.readiness import STALLED_AFTER_S, Readiness
from service.engine.resident_model import ResidentModel
from service.engine.resident_models import ResidentModels
from service.engine.types import Designs, Disconnected, RefusedJob
from service.engine.waiting import GRACE_S, done_in_time

logger = logging.getLogger(__name__)


# Added to the process's niceness for the workers: if cores are scarce, the event loop, whose work is short, comes
# first.
NICENESS = 5

# Expected work above which a running job's connection is watched; shorter work ends before that is worth it.
WATCHED_FROM_S = 0.02


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
    """Designs filters in worker threads. Its coroutines run in the event loop that called `start`.

    A thread-safe backend (CPU) has `n_threads` workers, which solve one problem at a time: the compiled core
    releases Python's lock, and the problems of one call are spread over the workers. Any other backend (GPU) has one
    worker, which solves batches of up to `max_batch` problems, also from different calls. Models are loaded in a
    separate thread (`ResidentModels`).
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
        self.device = device
        self.models = ResidentModels(
            store,
            device,
            default_model,
            fallback or Fallback(),
            max_resident_models,
        )
        self.models.on_device_lost = self._lose_device
        backend = backend_class(device)
        n_workers, max_batch = (n_threads, 1) if backend.is_thread_safe else (1, backend.max_batch)
        self._queue = JobQueue(n_workers, max_batch)
        self._queue.on_late = self._give_up
        self._threads = [Thread(target=self._work, name=f"design-{n}", daemon=True) for n in range(n_workers)]
        self.readiness = Readiness(
            self.models,
            self._check,
            budget_s=ready_budget_s,
            every_s=recheck_s,
        )
        self._tasks: list[asyncio.Task[None]] = []
        # Whether the GPU has failed in a way that only a new process can recover from.
        self.is_device_lost = False
        # Calls that are waiting or running.
        self.n_pending = 0
        # Called in a worker with the number of problems of a finished batch.
        self.on_batch: Callable[[int], None] = lambda n_problems: None
        # Called once, in any thread. By default: SIGTERM to this process, which its supervisor restarts.
        self.on_device_lost: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGTERM)

    @property
    def ready(self) -> bool:
        """Return whether `require_ready` raises nothing."""
        try:
            self.require_ready()
        except RefusedJob:
            return False
        return True

    def require_live(self) -> None:
        """Raise RefusedJob (`not-ready`) if probably only a new process designs right filters again: the GPU has
        failed, or the default model misses its golden case even with a new backend (`ResidentModel.recheck`)."""
        if self.is_device_lost:
            raise _device_lost()
        if self.models.default is not None and not self.models.default.is_sound:
            raise RefusedJob(
                "not-ready", "the default model no longer reproduces its golden case; use another replica"
            )

    def require_ready(self) -> None:
        """Raise RefusedJob (`not-ready`, `model-unavailable`) unless this replica should receive requests."""
        if self.readiness.draining:
            raise stopping()
        self.sound_default()
        readiness = self.readiness
        if readiness.verdict == "slow":
            raise RefusedJob(
                "not-ready",
                f"the golden case takes {1e3 * readiness.golden_s:.0f} ms, more than the "
                f"{1e3 * readiness.budget_s:.0f} ms that the operator allows; send requests to another replica",
            )
        if readiness.verdict == "stalled" or self._queue.longest_running_s() > STALLED_AFTER_S:
            raise RefusedJob(
                "not-ready", f"a design has not finished in {STALLED_AFTER_S:.0f} s; use another replica"
            )

    def drain(self) -> None:
        """Report not ready from now on, but continue to design."""
        self.readiness.draining = True

    def start(self) -> None:
        """Start the workers and begin to load the default model. Returns at once; see `started` and `ready`."""
        self._loop = asyncio.get_running_loop()
        for thread in self._threads:
            thread.start()
        self._tasks = [asyncio.create_task(self._start()), asyncio.create_task(self.readiness.watch())]

    async def _start(self) -> None:
        await self.models.reload()
        if self.models.default is not None:
            await self._seed_latency_estimates(self.models.default)
            await self.readiness.check()

    async def _seed_latency_estimates(self, model: ResidentModel) -> None:
        """Run all methods and profiles once, so that latency estimates exist before the first request."""
        for options in [
            *map(DesignOptions, METHODS),
            *(DesignOptions("prime", 1, profile) for profile in PROFILES),
        ]:
            await self._run(Job(model.design, options, [model.golden_problem], self._loop.create_future()))

    async def started(self) -> None:
        """Wait until the default model was loaded or failed to load."""
        await asyncio.wait(self._tasks[:1])

    async def close(self) -> None:
        """Finish running batches, refuse waiting jobs and end the threads; a thread that hangs is abandoned."""
        for task in self._tasks:
            task.cancel()
        for job in self._queue.close():
            _fail(job, stopping())
        for thread in self._threads:
            await asyncio.to_thread(thread.join, STALLED_AFTER_S)
        await self.models.close()

    def sound_default(self) -> ResidentModel:
        """Return the default model; raise RefusedJob if it cannot be trusted: `not-ready` while it is loading,
        or as `require_live` does; `model-unavailable` if it cannot be loaded."""
        self.require_live()
        if self.models.default_failed:
            raise RefusedJob(
                "model-unavailable", "the default model cannot be loaded; see the service's log for the reason"
            )
        if self.models.default is None:
            raise RefusedJob("not-ready", "the default model is still being loaded; retry in a moment")
        return self.models.default

    def reject_if_overloaded(self, due: float) -> None:
        """Raise RefusedJob if no design can finish by `due`: `overloaded` if the queued work takes longer, `not-ready`
        or `model-unavailable` if nothing can be designed at all."""
        self.sound_default()
        self._queue.reject_if_overloaded(due)

    async def design(
        self,
        model: str | None,
        options: DesignOptions,
        problems: Sequence[Problem],
        due: float = math.inf,
        disconnected: Disconnected | None = None,
        *,
        is_continued: bool = False,
    ) -> Designs:
        """Design filters for one or more problems with the same options.

        Parameters
        ----------
        model
            Name, name@version or alias in the store; None: the default model.
        options
            Of all designs.
        problems
            What to design for.
        due
            Deadline in `perf_counter` seconds; if there is not enough time for all updates, fewer are applied
            (`stopped`: `deadline`).
        disconnected
            Gives an awaitable that returns when the client has disconnected; problems that no worker has begun are
            then dropped.
        is_continued
            Whether this is the second part of a request, whose first part was long: it comes before other jobs and
            is not refused for load.

        Returns
        -------
        Designs
            A SynthesisError replaces a failed design.

        Raises
        ------
        RefusedJob
            `not-ready`, `overloaded`, `deadline-passed` or `model-unavailable`.
        UnknownModel, InvalidName
            For another model than the store has.
        ClientDisconnected
            If nobody waits any more.
        """
        resident = self.sound_default()
        if model is not None:
            resident = await self.models.model(model, due, disconnected)
        job = Job(resident.design, options, problems, self._loop.create_future(), due=due)
        return Designs(resident.version, await self._run(job, disconnected, is_continued=is_continued))

    async def evaluate(
        self,
        model: str | None,
        problems: Sequence[Problem],
        taps: Sequence[Float32 | Complex64],
        due: float = math.inf,
        disconnected: Disconnected | None = None,
        *,
        is_continued: bool = False,
    ) -> list[Evaluation | SynthesisError]:
        """Predict the effect of existing filters as `predict_all`; otherwise as `design`."""
        resident = self.sound_default()
        if model is not None:
            resident = await self.models.model(model, due, disconnected)
        given = list(zip(problems, taps, strict=True))
        job = Job(resident.evaluate, None, given, self._loop.create_future(), due=due)
        return await self._run(job, disconnected, is_continued=is_continued)

    async def _run(
        self, job: Job, disconnected: Disconnected | None = None, *, is_continued: bool = False
    ) -> list[Any]:
        """Queue a job and await its answer; raise RefusedJob if there is none at its deadline, ClientDisconnected if
        nobody waits for it any more. A worker that has begun it then stops at its next step."""
        put = self._queue.put_first if is_continued else self._queue.put
        put(job)
        self.n_pending += 1
        try:
            # A short job that a worker takes at once needs neither a timeout nor a watch on the connection.
            if job.had_to_wait or job.problem_s * len(job.problems) > WATCHED_FROM_S:
                in_time = await done_in_time(job.answer, job.due, disconnected)
                if not in_time and job.n_taken:
                    in_time = await done_in_time(job.answer, job.due + GRACE_S, disconnected)
                if not in_time:
                    raise self._too_late(job)
            return await job.answer
        finally:
            self.n_pending -= 1
            job.is_abandoned = True
            if job.n_taken < len(job.problems):
                self._queue.withdraw(job)

    def _give_up(self, job: Job) -> None:
        """Fail a job that is past its deadline, in a worker."""
        self._loop.call_soon_threadsafe(_fail, job, self._too_late(job))

    def _too_late(self, job: Job) -> RefusedJob:
        waited_ms = 1e3 * (perf_counter() - job.since)
        return RefusedJob(
            "deadline-passed",
            f"the deadline passed after {waited_ms:.0f} ms; retry later, or allow more time",
            retry_after_s=self._queue.backlog_s(),
        )

    async def _check(self, model: ResidentModel) -> float:
        """Have the next free worker check a model, and rebuild its backend if need be; return how many seconds its
        golden design took."""
        job = Job(lambda ears, options: [model.recheck()], None, [None], self._loop.create_future())
        self._queue.put_first(job)
        try:
            (spent_s,) = await job.answer
        finally:
            self._queue.withdraw(job)
        return float(spent_s)

    def _lose_device(self, error: DeviceLost) -> None:
        """Called in a worker, or in the event loop if loading a model has failed."""
        if not self.is_device_lost:
            self.is_device_lost = True
            logger.critical("The GPU has failed; this process ends for its supervisor to restart it: %s", error)
            self.on_device_lost()

    def _work(self) -> None:
        """Main loop of a worker thread."""
        with suppress(OSError, AttributeError):  # on systems without niceness per thread
            thread = get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)
        while (batch := self._queue.take()) is not None:
            answers: list[Any] | Exception
            try:
                if batch.has_waited:
                    batch.check()
                interruption_check.set(batch.check)
                answers = batch.run(batch.problems, batch.options)
            except Interrupted as error:
                answers = [error] * len(batch.places)
            except MemoryError:
                answers = RefusedJob("overloaded", "there is not enough memory for this batch; retry in a moment")
            except DeviceLost as error:
                answers = _device_lost()
                self._lose_device(error)
            except Exception as error:
                answers = error
            interruption_check.set(None)  # or the batch would stay in memory
            if not isinstance(answers, Exception) and any(isinstance(answer, Interrupted) for answer in answers):
                self._queue.interrupted(batch)
            else:
                self._queue.done(batch, _refine_s(answers))
            self.on_batch(len(batch.places))
            self._loop.call_soon_threadsafe(_deliver, batch, answers)


def _device_lost() -> RefusedJob:
    return RefusedJob("not-ready", "the GPU of this replica has failed; send requests to another replica")


def _refine_s(answers: list[Any] | Exception) -> float | None:
    """Return the time (s) of a batch's updates; None, which estimates ignore, if any problem failed."""
    if isinstance(answers, Exception) or not all(isinstance(answer, Design | Evaluation) for answer in answers):
        return None
    first = answers[0]
    return first.times_ms.get("refine", 0.0) / 1e3 if isinstance(first, Design) else 0.0


def _deliver(batch: Batch, answers: list[Any] | Exception) -> None:
    """Hand answers to their jobs, in the event loop."""
    if isinstance(answers, Exception):
        for job, _ in batch.places:
            _fail(job, answers)
        return
    for (job, place), answer in zip(batch.places, answers, strict=True):
        job.answers[place] = _completed(answer, job, batch)
        if len(job.answers) == len(job.problems) and not job.answer.done():
            job.answer.set_result([job.answers[number] for number in range(len(job.problems))])


def _completed(answer: Any, job: Job, batch: Batch) -> Any:
    """Return the answer with its time in the queue, and with the number of requested updates if the deadline allowed
    fewer."""
    queue_ms = 1e3 * (batch.began - job.since)
    if isinstance(answer, Design | Evaluation):
        answer.times_ms["queue"] = queue_ms
    if not isinstance(answer, Design):
        return answer
    assert job.options is not None
    assert batch.options is not None
    if batch.options.n_updates == job.options.n_updates:
        return answer
    refinement = answer.refinement
    if refinement.stopped == "budget":
        refinement = replace(refinement, stopped="deadline")
    return replace(answer, n_requested=job.options.n_updates, refinement=refinement)


def _fail(job: Job, error: Exception) -> None:
    if not job.answer.done():
        job.answer.set_exception(error)
        job.answer.exception()  # marks it as retrieved, in case it is not awaited
