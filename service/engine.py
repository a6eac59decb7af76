"""The engine: one worker thread that does all designs, and a bounded queue in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TypeVar

import torch

from model_store.store import ModelStore
from service.designs import Design, Ear, Evaluation, Float32, Recipe
from service.errors import Problem
from service.residency import Residency
from service.resident import ResidentModel
from service.threads import prepare_thread
from synthesis.errors import SynthesisError

Answer = TypeVar("Answer")


def choose_device(name: str) -> torch.device:
    """`auto`, `cpu` or `cuda` -> a device; ValueError where the one asked for is not there."""
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise ValueError("device: found no CUDA device that torch can use, expected one (or device cpu or auto)")
    return torch.device("cuda" if there and name != "cpu" else "cpu")


class Engine:
    """Designs filters for the event loop that it was started in.

    All design work runs in one thread, the only one to use a model once it is resident; the loop only counts what
    it has handed over. More work in parallel would not be faster: the stages fill the device, and on a CPU their
    operators already use all the threads that they were given. Models are loaded in another (`residency`).
    """

    def __init__(
        self,
        store: ModelStore,
        device: torch.device,
        *,
        default_model: str = "default",
        n_threads: int = 1,
        queue_size: int = 32,
        max_resident_models: int = 4,
        refresh: Callable[[], None] | None = None,
    ) -> None:
        """queue_size: calls that may wait or run at once. max_resident_models: at least 2. refresh: brings the
        store's folder up to date, where it is a copy."""
        self.device = device
        self.residency = Residency(store, device, default_model, max_resident_models, refresh)
        self._queue_size = queue_size
        self._worker = ThreadPoolExecutor(1, "design", initializer=prepare_thread, initargs=(n_threads,))
        self._starting: asyncio.Task[list[str]] | None = None
        self.n_queued = 0
        """Calls that wait or run now."""

    @property
    def ready(self) -> bool:
        """Whether the default model is resident, warmed up and checked."""
        return self.residency.default is not None

    def require_ready(self) -> None:
        """Raise Problem unless ready: `not-ready` while the default model loads, `model-unavailable` for good
        once loading it has failed, so that whoever waits can give up."""
        if self.residency.default_failed:
            raise Problem(
                "model-unavailable", "found a default model that cannot be used; the service's log says why"
            )
        if not self.ready:
            raise Problem("not-ready", "found the default model not loaded yet, expected it loaded and checked")

    def start(self) -> None:
        """Begin to load the default model. Returns at once; `ready` says when it is done."""
        self._starting = asyncio.create_task(self.residency.reload())

    async def started(self) -> None:
        """Wait until loading the default model has succeeded or failed."""
        if self._starting is not None:
            await self._starting

    async def close(self) -> None:
        """Finish what runs, drop what waits, end the threads."""
        await asyncio.to_thread(self._worker.shutdown, wait=True, cancel_futures=True)
        await self.residency.close()

    async def design(self, recipe: Recipe, ears: Sequence[Ear]) -> list[Design | SynthesisError]:
        """Design ears (1 to 16) of one recipe as one batch, in order.

        Raises Problem (`not-ready`, `overloaded`, `model-unavailable`) and UnknownModel or InvalidName. An ear that
        no filter can be designed for has the reason in its place. `queue` is added to the times.
        """
        return await self._run(recipe.model, lambda model: model.design(recipe, ears))

    async def evaluate(
        self, model: str | None, ears: Sequence[Ear], filters: Sequence[Float32]
    ) -> list[Evaluation | SynthesisError]:
        """Predict what given filters would do; raises as `design` does."""
        return await self._run(model, lambda resident: resident.evaluate(ears, filters))

    async def _run(self, reference: str | None, work: Callable[[ResidentModel], list[Answer]]) -> list[Answer]:
        """Have the worker do it with the model of that reference, if there is room in the queue."""
        self.require_ready()
        model = await self.residency.model(reference)
        if self.n_queued >= self._queue_size:
            raise Problem("overloaded", f"found {self.n_queued} designs waiting, expected fewer")
        handed_over = perf_counter()

        def timed() -> list[Answer]:
            queue_ms = 1e3 * (perf_counter() - handed_over)
            answers = work(model)
            for answer in answers:
                if isinstance(answer, Design | Evaluation):
                    answer.times_ms["queue"] = queue_ms
            return answers

        self.n_queued += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, timed)
        finally:
            self.n_queued -= 1
