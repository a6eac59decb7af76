"""The engine: one worker that does all designs, and a queue bounded by time in front of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Any

import torch
from starlette.requests import ClientDisconnect

from model_store.store import ModelStore
from service.admission.deadlines import Gone
from service.designs import Design, Ear, Evaluation, Float32, Recipe
from service.engine.design_process import ENDS_WITHIN_S, DesignProcess, DesignProcessDied
from service.engine.design_queue import DesignQueue, Job
from service.engine.model import Model
from service.engine.net import USUAL, Net
from service.engine.readiness import Readiness, Verdict
from service.engine.residency import Residency
from service.engine.resident import ResidentModel
from service.errors import Problem, retry_after
from service.threads import prepare_thread
from synthesis.errors import SynthesisError
from synthesis.gauss_newton import PROFILES
from synthesis.synthesizer import METHODS

EVALUATE = "evaluate"
"""The method of a recipe that evaluates filters instead of designing them."""

N_REHEARSALS = 3
"""Designs of each kind from which the engine learns their times before anybody asks."""


def choose_device(name: str) -> torch.device:
    """`auto`, `cpu` or `cuda` -> a device; ValueError where the one asked for is not there."""
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise ValueError("device: found no CUDA device that torch can use, expected one (or device cpu or auto)")
    return torch.device("cuda" if there and name != "cpu" else "cpu")


class Engine:
    """Designs filters for the event loop that it was started in.

    All design work is one thread's, the only one to use a model once it is resident; where models live `apart`, it
    asks them in their process. The loop only counts what it has handed over. More work in parallel would not be
    faster: the stages fill the device, and on a CPU their operators already use all the threads that they were
    given. Models are loaded in another thread (`residency`).
    What waits and is alike is designed together, which takes less than one after the other.
    """

    def __init__(
        self,
        store: ModelStore,
        device: torch.device,
        *,
        default_model: str = "default",
        n_threads: int = 1,
        apart: bool = False,
        net: Net = USUAL,
        max_resident_models: int = 4,
        refresh: Callable[[], None] | None = None,
        ready_budget_s: float = 1.0,
        recheck_s: float = 15.0,
    ) -> None:
        """apart: whether models live in a process of their own, which the worker asks; n_threads: of one design.
        net: under the generators. max_resident_models: at least 2. refresh: brings the store's folder up to date,
        where it is a copy.
        ready_budget_s, recheck_s: see `Readiness`."""
        self.device = device
        self.process = DesignProcess(n_threads, net) if apart else None
        load = partial(ResidentModel.load, net=net) if self.process is None else self.process.load
        self.residency = Residency(store, device, default_model, max_resident_models, refresh, load)
        self._queue = DesignQueue(spares_rows=device.type == "cuda")
        self._worker = ThreadPoolExecutor(1, "design", initializer=prepare_thread, initargs=(n_threads,))
        self._recheck_s = recheck_s
        self.readiness = Readiness(
            self.residency,
            self._worker,
            budget_s=ready_budget_s,
            every_s=recheck_s,
            on_stall=self.process.kill if self.process else lambda: None,
        )
        self._starting: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._beginning_again: asyncio.Task[Verdict] | None = None
        self._is_called = False
        self._calling = Lock()
        self.n_queued = 0
        """Calls that wait or run now."""
        self.on_batch: Callable[[int], None] = lambda n_ears: None
        """Told, in the worker, how many ears each batch has."""

    @property
    def ready(self) -> bool:
        """Whether requests should be sent here."""
        return self.readiness.ready

    @property
    def is_busy(self) -> bool:
        """Whether a design runs or waits."""
        return self._queue.has_work()

    def require_ready(self) -> None:
        """Raise Problem (`not-ready`, `model-unavailable`) unless what is designed now would be right."""
        self.readiness.require_sound()

    def start(self) -> None:
        """Begin to load the default model. Returns at once; `ready` says when it is done."""
        if self.process is not None:
            self.process.on_death = partial(asyncio.get_running_loop().call_soon_threadsafe, self._begin_again)
            self.process.start()
        self._starting = asyncio.create_task(self._start())
        self._watching = asyncio.create_task(self.readiness.watch())

    async def _start(self) -> None:
        n_deaths = 0
        await self.residency.reload()
        while self.residency.default_failed and self.process and self.process.n_deaths > n_deaths:
            n_deaths = self.process.n_deaths  # which says nothing against the model
            await asyncio.sleep(self._recheck_s)
            await self.residency.reload()
        if self.residency.default is not None:
            await asyncio.get_running_loop().run_in_executor(self._worker, self._rehearse, self.residency.default)
            await self.readiness.check()

    def _rehearse(self, model: Model) -> None:
        """In the worker: learn what a design of each method and an update of each profile take."""
        kinds = [Recipe(method=each) for each in METHODS] + [Recipe(n_updates=1, profile=each) for each in PROFILES]
        for recipe in kinds:
            for _ in range(N_REHEARSALS):
                began = perf_counter()
                self._learn(recipe, model.design(recipe, [model.golden_ear]), perf_counter() - began)

    def _begin_again(self) -> None:
        """The design process has died. The golden check has the default model loaded into another one, before
        somebody asks who would have to wait for it. One such check at a time, which may end two processes: with
        one for each there would be ever more."""
        self.readiness.n_replaced += 1
        if self._beginning_again is None or self._beginning_again.done():
            self._beginning_again = asyncio.create_task(self.readiness.check())

    async def started(self) -> None:
        """Wait until loading the default model has succeeded or failed."""
        if self._starting is not None:
            await self._starting

    async def close(self) -> None:
        """Finish what runs, refuse what waits, end the threads. For a process that hangs nobody waits long."""
        patience = asyncio.get_running_loop().call_later(ENDS_WITHIN_S, self.abandon)
        for task in (self._starting, self._watching, self._beginning_again):
            if task is not None:
                task.cancel()
        await asyncio.to_thread(self._worker.shutdown, wait=True, cancel_futures=True)
        stopping = Problem("not-ready", "found the service about to stop, expected it to be running")
        _deliver([(job, stopping) for job in self._queue.withdraw_all()])
        await self.residency.close()
        patience.cancel()
        if self.process is not None:
            await asyncio.to_thread(self.process.close)

    def abandon(self) -> None:
        """Wait no longer for the design process, whose answers nobody fetches any more."""
        if self.process is not None:
            self.process.abandon()

    def refuse_hopeless(self, due: float) -> None:
        """Raise Problem where nothing can be designed by `due`, whatever is asked for: `overloaded` where the work
        that is here lasts longer, `not-ready`, `model-unavailable`."""
        self.require_ready()
        self._queue.refuse_hopeless(due)

    async def design(
        self, recipe: Recipe, ears: Sequence[Ear], due: float = math.inf, gone: Gone | None = None
    ) -> list[Design | SynthesisError]:
        """Design ears (1 to 32) of one recipe as one batch, in order.

        due: when the answer is worth nothing any more, as `perf_counter` counts; where the recipe's updates would
        last beyond it, fewer are made (`stopped`: `deadline`). gone: returns when nobody waits for the answer any
        more; what has not been begun then is not, and ClientDisconnect is raised.

        Raises Problem (`not-ready`, `overloaded`, `deadline-passed`, `model-unavailable`) and UnknownModel or
        InvalidName. An ear that no filter can be designed for has the reason in its place. `queue` is added to the
        times.
        """
        return await self._run(recipe, ears, None, due, gone)

    async def evaluate(
        self,
        model: str | None,
        ears: Sequence[Ear],
        filters: Sequence[Float32],
        due: float = math.inf,
        gone: Gone | None = None,
    ) -> list[Evaluation | SynthesisError]:
        """Predict what given filters would do; due, gone and errors as for `design`."""
        return await self._run(Recipe(model, EVALUATE), ears, filters, due, gone)

    async def _run(
        self,
        recipe: Recipe,
        ears: Sequence[Ear],
        filters: Sequence[Float32] | None,
        due: float,
        gone: Gone | None,
    ) -> list[Any]:
        """Queue a job, wake the worker, await the answer; a job that still waits when it is due is given up."""
        self.require_ready()
        model = await self.residency.model(recipe.model, due, gone)
        loop = asyncio.get_running_loop()
        job = Job(model, recipe, ears, due, loop.create_future(), filters)
        self._queue.put(job)
        self.n_queued += 1
        # One that the worker takes at once is not worth watching.
        watch = asyncio.ensure_future(gone()) if gone is not None and job.waits else None
        alarm = loop.call_later(job.due - perf_counter(), self._give_up, job) if job.due < math.inf else None
        try:
            self._call(loop)
            if watch is not None:
                watch.add_done_callback(lambda _: _settle(job, ClientDisconnect()))
            return await job.answer
        finally:
            self.n_queued -= 1
            self._queue.withdraw(job)
            if watch is not None:
                watch.cancel()
            if alarm is not None:
                alarm.cancel()

    def _give_up(self, job: Job) -> None:
        """In the loop, when a job is due: what the worker has begun is finished, what still waits is not begun."""
        if self._queue.withdraw(job):
            _settle(job, self._too_late(job))

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the worker serve the queue, unless it has been called already.

        One call at a time, which calls again while jobs wait: a call for each job would leave as many behind as
        jobs go in one batch, and while work keeps coming each of them finds some, so that they would pile up
        without end, with the model's own check behind them.
        """
        with self._calling:
            if self._is_called:
                return
            self._is_called = True
        self._worker.submit(self._serve, loop)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """In the worker: make one batch of what waits, and see that the rest is served after what else is there."""
        try:
            self._serve_batch(loop)
        finally:
            with self._calling:
                self._is_called = self._queue.has_jobs()
            if self._is_called:
                with suppress(RuntimeError):  # about to stop: what waits is refused
                    self._worker.submit(self._serve, loop)

    def _serve_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        batch, late = self._queue.take()
        if late:
            loop.call_soon_threadsafe(_deliver, [(job, self._too_late(job)) for job in late])
        outcomes: list[Outcome] = []
        if batch:
            began = perf_counter()
            self.on_batch(sum(len(job.ears) for job in batch))
            try:
                answers = _make(batch)
            except torch.OutOfMemoryError:
                outcomes += [(job, Problem(*_NO_ROOM)) for job in batch]
                with suppress(RuntimeError):  # not while a model that is loaded captures graphs
                    torch.cuda.empty_cache()
            except DesignProcessDied:
                outcomes += [(job, Problem(*_DIED)) for job in batch]
            except Exception as error:
                outcomes += [(job, error) for job in batch]
            else:
                outcomes += _shared_out(batch, answers, began)
                self._learn(batch[0].recipe, answers, perf_counter() - began)
            self._queue.done()
        if outcomes:
            loop.call_soon_threadsafe(_deliver, outcomes)

    def _learn(self, recipe: Recipe, answers: Sequence[Any], total_s: float) -> None:
        """In the worker: a batch is an observation where all of it was made."""
        if not any(isinstance(answer, SynthesisError) for answer in answers):
            refine_s = answers[0].times_ms.get("refine", 0.0) / 1e3
            self._queue.times.observe(recipe, len(answers), total_s, refine_s)

    def _too_late(self, job: Job) -> Problem:
        waited_ms = 1e3 * (perf_counter() - job.since)
        return Problem(
            "deadline-passed",
            f"found the deadline past after {waited_ms:.0f} ms in the queue, expected a design to begin before it",
            headers=retry_after(self._queue.backlog_s()),
        )


_NO_ROOM = ("overloaded", "found no room on the device for this batch, expected some once others are done")
_DIED = ("overloaded", "found the process that designs dead, twice over this batch, expected it to answer")

Outcome = tuple[Job, list[Any] | Exception]


def _make(batch: Sequence[Job]) -> list[Any]:
    """The answers to all ears of a batch, in order."""
    recipe, model = batch[0].recipe, batch[0].model
    ears = [ear for job in batch for ear in job.ears]
    if recipe.method == EVALUATE:
        return list(model.evaluate(ears, [taps for job in batch for taps in job.filters or ()]))
    return list(model.design(recipe, ears))


def _shared_out(batch: Sequence[Job], answers: list[Any], began: float) -> list[Outcome]:
    """Each job's own answers, with the time that it waited and the updates that it asked for."""
    outcomes: list[Outcome] = []
    for job in batch:
        own, answers = answers[: len(job.ears)], answers[len(job.ears) :]
        for answer in own:
            if isinstance(answer, Design | Evaluation):
                answer.times_ms["queue"] = 1e3 * (began - job.since)
            if isinstance(answer, Design) and job.n_asked > job.recipe.n_updates:
                answer.refinement["requested"] = job.n_asked
                if answer.refinement["stopped"] == "budget":
                    answer.refinement["stopped"] = "deadline"
        outcomes.append((job, own))
    return outcomes


def _deliver(outcomes: Sequence[Outcome]) -> None:
    """In the loop: hand the answers over."""
    for job, outcome in outcomes:
        _settle(job, outcome)


def _settle(job: Job, outcome: list[Any] | Exception) -> None:
    """Answer a job, unless it has been answered or given up."""
    if job.answer.done():
        return
    if isinstance(outcome, Exception):
        job.answer.set_exception(outcome)
    else:
        job.answer.set_result(outcome)
