"""Which models are in memory, and how they come and go without holding up a design.

A model is loaded, verified, warmed up, recorded and checked against its golden case in a thread of its own, over
buffers of its own. It is then published by one assignment in the event loop: designs handed over before keep the
model that they were given, later ones get the new one. A retired model is freed when its last design has let go
of it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter

import torch

from model_store.errors import InvalidName, UnknownModel
from model_store.names import parse_reference
from model_store.store import ModelStore, ModelVersion
from service.admission.deadlines import Gone, shed, waiting
from service.admission.design_times import RecentTimes
from service.engine.design_process import DesignProcessDied
from service.engine.model import Model
from service.engine.resident import ResidentModel
from service.errors import Problem, retry_after
from service.threads import prepare_thread

logger = logging.getLogger(__name__)

MAX_WAITING = 64
"""Requests that may wait for models to be loaded, whatever their deadlines: each keeps its body in memory."""

WORK = "loading models"


class Residency:
    """The models in memory, by version and by the references that they go by.

    Everything but the loading itself happens in the event loop, so the tables need no lock. A reference is looked
    up in the store when it is first asked for and again by `load` and `reload`: until then an alias or a name
    without a version means what it meant, also while that model has made room for another, and a design of a
    resident model touches no file.
    """

    def __init__(
        self,
        store: ModelStore,
        device: torch.device,
        default_model: str,
        max_resident: int,
        refresh: Callable[[], None] | None = None,
        load: Callable[[ModelStore, ModelVersion, torch.device], Model] = ResidentModel.load,
    ) -> None:
        """max_resident: at least 2. One more is in memory while it is being loaded. load: makes one, in the
        loader's thread. refresh: called before an
        operator's look-ups, where the store is a copy of one elsewhere; never for a client's request."""
        self.store = store
        self._refresh = refresh
        self._load_model = load
        self.device = device
        self.default_model = default_model
        self.n_loads: Counter[str] = Counter(loaded=0, failed=0)
        self.last_load_s = 0.0
        self.default_failed = False
        """Whether the default model could not be loaded and none is in its place."""
        self.n_waiting = 0
        """Requests that wait for a model to be loaded."""
        self._max_resident = max_resident
        self._models: OrderedDict[ModelVersion, Model] = OrderedDict()  # the least recently used first
        self._versions: dict[str, ModelVersion] = {}  # by reference, of models that have made room, too
        self._loading: dict[ModelVersion, asyncio.Task[Model]] = {}  # in order; the first one runs
        self._load_s = RecentTimes()
        self._loading_since = 0.0
        self._bringing: dict[str, asyncio.Task[Model]] = {}  # by reference
        self._refused: set[ModelVersion] = set()
        self._loader = ThreadPoolExecutor(1, "load", initializer=prepare_thread, initargs=(1,))

    @property
    def default(self) -> Model | None:
        """The default model; None until it is loaded."""
        return self.find(self.default_model)

    def find(self, reference: str) -> Model | None:
        """The resident model that goes by this reference."""
        version = self._versions.get(reference)
        return None if version is None else self._models.get(version)

    def scored_noise_reduction_db(self, version: ModelVersion, n_updates: int) -> float | None:
        """What a resident version's manifest says its designs scored on unseen listeners, dB."""
        model = self._models.get(version)
        return None if model is None else model.scored_noise_reduction_db[n_updates]

    def models(self) -> list[Model]:
        """Every resident model, the default one first, then the most recently used."""
        default = self.default
        others = [model for model in reversed(self._models.values()) if model is not default]
        return [default, *others] if default else others

    def versions(self) -> list[ModelVersion]:
        """Their versions, in the same order."""
        return [model.version for model in self.models()]

    async def model(self, reference: str | None, due: float = math.inf, gone: Gone | None = None) -> Model:
        """The model that a request names, loaded first if need be; designs of other models go on meanwhile.

        Raises UnknownModel or InvalidName, and Problem `model-unavailable` for a checkpoint that is damaged or
        does not pass its golden case; `overloaded` at once where loading will last beyond `due` (as `perf_counter`
        counts), `deadline-passed` where it has, ClientDisconnect when the client has `gone`. The model is loaded
        all the same, for whoever asks next.
        """
        reference = self.default_model if reference is None else reference
        model = self.find(reference) or await self._wait_for(reference, due, gone)
        if model.version in self._models:  # it may have been retired while it was waited for
            self._models.move_to_end(model.version)
        return model

    async def load(self, reference: str) -> ModelVersion:
        """Have what `reference` stands for now in memory, asking the store again; raises as `model` does.

        What it stood for before serves until then, and goes on serving where this fails.
        """
        self._refused.clear()  # an operator who asks again may have mended it
        await self._refreshed()
        return (await self._bring(reference)).version

    async def reload(self) -> list[str]:
        """Look every reference up again, the default one first, and load what changed or could not be loaded.

        Returns what could not be followed (references, or "the store" itself); what was meant before serves on.
        A reference that nothing in memory goes by and that is not published any more is forgotten.
        """
        refused, self._refused = self._refused, set()
        failed = [] if await self._refreshed() else ["the store"]
        for reference in dict.fromkeys((self.default_model, *self._versions)):
            before = self._versions.get(reference)
            is_used = reference == self.default_model or before in self._models
            try:
                version = await self._resolved(reference)
                if is_used or version != before or version in refused:
                    await self._follow(reference, version, is_used)
            except (UnknownModel, InvalidName) as error:
                if is_used:
                    self._refusal(reference, error)
                    failed.append(reference)
                else:
                    self._versions.pop(reference, None)
            except Problem:
                failed.append(reference)
        self.default_failed = self.default is None
        return failed

    def unload(self, reference: str) -> list[ModelVersion]:
        """Retire what goes by `reference`, a name standing for all its versions, and forget the references to it;
        returns what was retired.

        Raises Problem: `unknown-model` where nothing resident goes by it, `default-model` for the default model.
        """
        name, number = parse_reference(reference)
        meant = self._versions.get(reference)

        def is_meant(version: ModelVersion) -> bool:
            return version == meant or (version.name == name and number in (None, version.version))

        gone = [version for version in self._models if is_meant(version)]
        if not gone:
            raise Problem("unknown-model", "found no such model in memory, expected one of GET /models", "model")
        default = self.default
        if default is not None and default.version in gone:
            raise Problem("default-model", "found the default model, expected one of the others", "model")
        for version in gone:
            self._retire(version)
        self._versions = {each: version for each, version in self._versions.items() if not is_meant(version)}
        return gone

    def drop(self, model: Model) -> None:
        """Retire a model that has gone wrong, unless it is gone already; the default one stays where it is."""
        if model is not self.default and self._models.get(model.version) is model:
            self._retire(model.version)

    async def close(self) -> None:
        """Wait for a load that runs, and end the thread."""
        await asyncio.to_thread(self._loader.shutdown, wait=True, cancel_futures=True)
        left = [*self._loading.values(), *self._bringing.values()]
        if left:  # whose results nobody will fetch any more
            await asyncio.wait(left)

    async def _refreshed(self) -> bool:
        """Bring a copied store up to date; where that fails, what was copied before is used."""
        try:
            if self._refresh is not None:
                await asyncio.to_thread(self._refresh)
        except Exception:
            self.n_loads["failed"] += 1
            logger.exception("The store's copy could not be brought up to date; it is used as it is")
            return False
        return True

    async def _wait_for(self, reference: str, due: float, gone: Gone | None) -> Model:
        """Bring a model that a request has named, if not too many wait for one."""
        if self.n_waiting >= MAX_WAITING:
            detail = f"found {self.n_waiting} requests waiting for a model, expected fewer"
            raise Problem("overloaded", detail, headers=retry_after(self._load_s.expected_s))
        self.n_waiting += 1
        try:
            if reference not in self._versions:
                version = await self._resolved(reference)
                self._versions.setdefault(reference, version)
            version = self._versions[reference]
            wait_s = self._expected_s(version)
            if reference not in self._bringing:
                self._bringing[reference] = asyncio.create_task(self._follow(reference, version))
                self._bringing[reference].add_done_callback(partial(self._brought, reference))
            bringing = self._bringing[reference]
            if perf_counter() + wait_s > due:
                raise shed(WORK, wait_s, 0.0, due)
            async with waiting(WORK, due, wait_s, gone):
                return await asyncio.shield(bringing)
        finally:
            self.n_waiting -= 1

    def _brought(self, reference: str, done: asyncio.Task[Model]) -> None:
        del self._bringing[reference]
        if not done.cancelled():
            done.exception()  # seen, if nobody waits any more

    def _expected_s(self, version: ModelVersion) -> float:
        """Seconds until a version that is asked for now is in memory; they are loaded one after the other."""
        if version in self._models or version in self._refused:
            return 0.0
        before = list(self._loading)
        n_loads = before.index(version) + 1 if version in self._loading else len(before) + 1
        load_s = self._load_s.expected_s
        passed_s = min(perf_counter() - self._loading_since, load_s) if before else 0.0
        return n_loads * load_s - passed_s

    async def _bring(self, reference: str) -> Model:
        """Let `reference` mean what it means in the store now, loading that if it is not in memory."""
        return await self._follow(reference, await self._resolved(reference))

    async def _resolved(self, reference: str) -> ModelVersion:
        """What it means in the store now."""
        try:
            return await asyncio.to_thread(self.store.resolve, reference)
        except (UnknownModel, InvalidName):
            raise
        except Exception as error:  # a damaged store
            raise self._refusal(reference, error) from error

    async def _follow(self, reference: str, version: ModelVersion, is_used: bool = True) -> Model:
        """Let `reference` mean that version, loading it if it is not in memory. What is not used takes the place of
        nothing that is."""
        model = self._models.get(version) or await self._loaded(version)
        if version not in self._models:
            self._models[version] = model
            self._models.move_to_end(version, last=is_used)
        before = self._versions.get(reference)
        self._versions[reference] = version  # the swap
        if before is not None and before in self._models and before not in self._versions.values():
            self._retire(before)
        self._make_room(keep=version if is_used else None)
        return model

    async def _loaded(self, version: ModelVersion) -> Model:
        """The model of that version, loaded once for all who wait for it."""
        if version in self._refused:
            raise Problem(*_UNUSABLE)
        if version not in self._loading:
            if not self._loading:
                self._loading_since = perf_counter()
            task = self._loading[version] = asyncio.create_task(self._load(version))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # if nobody waits any more
        return await asyncio.shield(self._loading[version])  # who is cancelled does not take it along

    async def _load(self, version: ModelVersion) -> Model:
        try:
            model = await asyncio.get_running_loop().run_in_executor(
                self._loader, self._load_model, self.store, version, self.device
            )
        except Exception as error:
            if not isinstance(error, DesignProcessDied):  # of which the next one may be spared
                self._refused.add(version)
            raise self._refusal(str(version), error) from error
        finally:
            del self._loading[version]
            spent_s = perf_counter() - self._loading_since
            self._loading_since += spent_s  # the next one begins
        self.n_loads["loaded"] += 1
        self.last_load_s = spent_s
        self._load_s.observe(spent_s)
        logger.info(
            "Loaded %s version %d (%s) on %s in %.2f s",
            version.name,
            version.version,
            version.digest,
            self.device,
            self.last_load_s,
        )
        return model

    def _refusal(self, reference: str, error: Exception) -> Problem:
        """Count and log a failure with its cause, and say as much of it as a client may know."""
        self.n_loads["failed"] += 1
        logger.error("Model %a cannot be used; what is resident goes on serving", reference, exc_info=error)
        return Problem(*_UNUSABLE)

    def _make_room(self, keep: ModelVersion | None) -> None:
        """Retire the least recently used beyond the limit, but neither `keep` nor the default model."""
        default = self._versions.get(self.default_model)
        for version in [each for each in self._models if each not in (keep, default)]:
            if len(self._models) <= self._max_resident:
                return
            self._retire(version)

    def _retire(self, version: ModelVersion) -> None:
        """Let go of a model. Whatever design still runs on it holds the last reference to it."""
        del self._models[version]
        logger.info("Retired %s version %d", version.name, version.version)


_UNUSABLE = (
    "model-unavailable",
    "found a published checkpoint that does not pass its checks, expected a whole one",
    "model",
)
