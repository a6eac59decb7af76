"""The engine: one worker thread that owns every model, and a bounded queue in front of it."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TypeVar

import torch

from model_store.errors import InvalidName, UnknownModel
from model_store.store import ModelStore, ModelVersion
from service.designs import Design, Ear, Evaluation, Float32, Recipe
from service.errors import Problem
from service.resident import ResidentModel
from synthesis.errors import SynthesisError

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")


def choose_device(name: str) -> torch.device:
    """`auto`, `cpu` or `cuda` -> a device; ValueError where the one asked for is not there."""
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise ValueError("device: found no CUDA device that torch can use, expected one (or device cpu or auto)")
    return torch.device("cuda" if there and name != "cpu" else "cpu")


def _prepare_worker(n_threads: int) -> None:
    """In the worker: the threads of one operator on the CPU, and convolutions in full float32 on a GPU, where TF32
    would keep 10 bits of them and miss the golden case."""
    torch.set_num_threads(n_threads)
    torch.backends.cudnn.allow_tf32 = False


class Engine:
    """Designs filters for the event loop that it was started in.

    All design work runs in one thread, which owns the models and their static buffers; the loop only counts what
    it has handed over. More work in parallel would not be faster: the stages fill the device, and on a CPU their
    operators already use all the threads that they were given.
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
    ) -> None:
        """queue_size: calls that may wait or run at once. max_resident_models: at least 2."""
        self.store = store
        self.device = device
        self.default_model = default_model
        self._n_threads = n_threads
        self._queue_size = queue_size
        self._max_resident = max_resident_models
        self._worker = ThreadPoolExecutor(1, "design", initializer=_prepare_worker, initargs=(n_threads,))
        self._default: ResidentModel | None = None
        self._failed = False
        self._others: OrderedDict[ModelVersion, ResidentModel] = OrderedDict()
        self._loading: asyncio.Future[None] | None = None
        self.n_queued = 0
        """Calls that wait or run now."""

    @property
    def ready(self) -> bool:
        """Whether the default model is resident, warmed up and checked."""
        return self._default is not None

    def require_ready(self) -> None:
        """Raise Problem unless ready: `not-ready` while the default model loads, `model-unavailable` for good
        once loading it has failed, so that whoever waits can give up."""
        if self._failed:
            raise Problem(
                "model-unavailable", "found a default model that cannot be used; the service's log says why"
            )
        if not self.ready:
            raise Problem("not-ready", "found the default model not loaded yet, expected it loaded and checked")

    def resident(self) -> list[ModelVersion]:
        """Models in memory, the default one first."""
        default = [self._default.version] if self._default else []
        return [*default, *self._others]

    def start(self) -> None:
        """Begin to load the default model. Returns at once; `ready` says when it is done."""
        self._loading = asyncio.get_running_loop().run_in_executor(self._worker, self._load_default)

    async def started(self) -> None:
        """Wait until loading the default model has succeeded or failed."""
        if self._loading is not None:
            await self._loading

    async def close(self) -> None:
        """Finish what runs, drop what waits, end the thread."""
        await asyncio.to_thread(self._worker.shutdown, wait=True, cancel_futures=True)

    async def design(self, recipe: Recipe, ears: Sequence[Ear]) -> list[Design | SynthesisError]:
        """Design ears (1 to 16) of one recipe as one batch, in order.

        Raises Problem (`not-ready`, `overloaded`, `model-unavailable`) and UnknownModel or InvalidName. An ear that
        no filter can be designed for has the reason in its place. `queue` is added to the times.
        """
        return await self._run(lambda: self._model(recipe.model).design(recipe, ears))

    async def evaluate(
        self, model: str | None, ears: Sequence[Ear], filters: Sequence[Float32]
    ) -> list[Evaluation | SynthesisError]:
        """Predict what given filters would do; raises as `design` does."""
        return await self._run(lambda: self._model(model).evaluate(ears, filters))

    async def _run(self, work: Callable[[], list[Answer]]) -> list[Answer]:
        """Have the worker do it, if there is room in the queue."""
        self.require_ready()
        if self.n_queued >= self._queue_size:
            raise Problem("overloaded", f"found {self.n_queued} designs waiting, expected fewer")
        handed_over = perf_counter()

        def timed() -> list[Answer]:
            queue_ms = 1e3 * (perf_counter() - handed_over)
            answers = work()
            for answer in answers:
                if isinstance(answer, Design | Evaluation):
                    answer.times_ms["queue"] = queue_ms
            return answers

        self.n_queued += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, timed)
        finally:
            self.n_queued -= 1

    def _load_default(self) -> None:
        """In the worker. A failure leaves the service alive and not ready."""
        began = perf_counter()
        try:
            model = self._load(self.store.resolve(self.default_model))
            model.warm_up()
        except Exception:
            logger.exception("The default model %r cannot be used; the service is not ready", self.default_model)
            self._failed = True
            return
        self._default = model
        logger.info(
            "Ready: %s version %d (%s) on %s, %d threads, %.2f s",
            model.version.name,
            model.version.version,
            model.version.digest,
            self.device,
            self._n_threads,
            perf_counter() - began,
        )

    def _model(self, reference: str | None) -> ResidentModel:
        """In the worker: the model of that reference, loaded if need be. The default is never looked up again."""
        assert self._default is not None
        if reference is None or reference == self.default_model:
            return self._default
        try:
            version = self.store.resolve(reference)
            if version == self._default.version:
                return self._default
            if version in self._others:
                self._others.move_to_end(version)
                return self._others[version]
            model = self._load(version)
        except (UnknownModel, InvalidName):
            raise
        except Exception as error:
            logger.exception("Model %a cannot be used", reference)
            raise Problem(
                "model-unavailable",
                "found a published checkpoint that does not pass its checks, expected a whole one",
                "model",
            ) from error
        while len(self._others) >= self._max_resident - 1:
            retired, _ = self._others.popitem(last=False)
            logger.info("Retired %s version %d", retired.name, retired.version)
        self._others[version] = model
        return model

    def _load(self, version: ModelVersion) -> ResidentModel:
        checkpoint = self.store.load(str(version))
        return ResidentModel(version, checkpoint, self.device)
