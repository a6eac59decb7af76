"""Which models are in memory, and how they come and go without holding up a design.

A model is loaded, verified, warmed up, recorded and checked against its golden case in a thread of its own, over
buffers of its own. It is then published by one assignment in the event loop: designs handed over before keep the
model that they were given, later ones get the new one. A retired model is freed when its last design has let go
of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import torch

from model_store.errors import InvalidName, UnknownModel
from model_store.names import parse_reference
from model_store.store import ModelStore, ModelVersion
from service.engine.resident import ResidentModel
from service.errors import Problem
from service.threads import prepare_thread

logger = logging.getLogger(__name__)

MAX_WAITING = 64
"""Requests that may wait for models to be loaded: each keeps its body in memory."""


class Residency:
    """The models in memory, by version and by the references that they go by.

    Everything but the loading itself happens in the event loop, so the tables need no lock. A reference is looked
    up in the store when it is first asked for and again by `reload`: until then an alias or a name without a
    version means what it meant, and a design of a resident model touches no file.
    """

    def __init__(
        self,
        store: ModelStore,
        device: torch.device,
        default_model: str,
        max_resident: int,
        refresh: Callable[[], None] | None = None,
    ) -> None:
        """max_resident: at least 2. One more is in memory while it is being loaded. refresh: called before an
        operator's look-ups, where the store is a copy of one elsewhere; never for a client's request."""
        self.store = store
        self._refresh = refresh
        self.device = device
        self.default_model = default_model
        self.n_loads: Counter[str] = Counter(loaded=0, failed=0)
        self.last_load_s = 0.0
        self.default_failed = False
        """Whether the default model could not be loaded and none is in its place."""
        self.n_waiting = 0
        """Requests that wait for a model to be loaded."""
        self._max_resident = max_resident
        self._models: OrderedDict[ModelVersion, ResidentModel] = OrderedDict()  # the least recently used first
        self._versions: dict[str, ModelVersion] = {}  # by reference
        self._loading: dict[ModelVersion, asyncio.Task[ResidentModel]] = {}
        self._refused: set[ModelVersion] = set()
        self._loader = ThreadPoolExecutor(1, "load", initializer=prepare_thread, initargs=(1,))

    @property
    def default(self) -> ResidentModel | None:
        """The default model; None until it is loaded."""
        return self.find(self.default_model)

    def find(self, reference: str) -> ResidentModel | None:
        """The resident model that goes by this reference."""
        version = self._versions.get(reference)
        return None if version is None else self._models[version]

    def scored_noise_reduction_db(self, version: ModelVersion, n_updates: int) -> float | None:
        """What a resident version's manifest says its designs scored on unseen listeners, dB."""
        model = self._models.get(version)
        return None if model is None else model.scored_noise_reduction_db[n_updates]

    def models(self) -> list[ResidentModel]:
        """Every resident model, the default one first, then the most recently used."""
        default = self.default
        others = [model for model in reversed(self._models.values()) if model is not default]
        return [default, *others] if default else others

    def versions(self) -> list[ModelVersion]:
        """Their versions, in the same order."""
        return [model.version for model in self.models()]

    async def model(self, reference: str | None) -> ResidentModel:
        """The model that a request names, loaded first if need be; designs of other models go on meanwhile.

        Raises UnknownModel or InvalidName, and Problem `model-unavailable` for a checkpoint that is damaged or
        does not pass its golden case.
        """
        reference = self.default_model if reference is None else reference
        model = self.find(reference) or await self._wait_for(reference)
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
        """Look every reference up again, the default one first, and load what changed.

        Returns what could not be followed (references, or "the store" itself); what was meant before serves on.
        """
        self._refused.clear()
        failed = [] if await self._refreshed() else ["the store"]
        for reference in dict.fromkeys((self.default_model, *self._versions)):
            try:
                await self._bring(reference)
            except (UnknownModel, InvalidName) as error:
                self._refusal(reference, error)
                failed.append(reference)
            except Problem:
                failed.append(reference)
        self.default_failed = self.default is None
        return failed

    def unload(self, reference: str) -> list[ModelVersion]:
        """Retire what goes by `reference`, a name standing for all its versions; returns what was retired.

        Raises UnknownModel where nothing resident goes by it, Problem `default-model` for the default model.
        """
        name, number = parse_reference(reference)
        gone = [
            version
            for version in self._models
            if version == self._versions.get(reference)
            or (version.name == name and number in (None, version.version))
        ]
        if not gone:
            raise UnknownModel(f"model: found no resident {reference!r}")
        default = self.default
        if default is not None and default.version in gone:
            raise Problem("default-model", "found the default model, expected one of the others", "model")
        for version in gone:
            self._retire(version)
        return gone

    def drop(self, model: ResidentModel) -> None:
        """Retire a model that has gone wrong, unless it is gone already; the default one stays where it is."""
        if model is not self.default and self._models.get(model.version) is model:
            self._retire(model.version)

    async def close(self) -> None:
        """Wait for a load that runs, and end the thread."""
        await asyncio.to_thread(self._loader.shutdown, wait=True, cancel_futures=True)
        if self._loading:  # whose results nobody will fetch any more
            await asyncio.wait(self._loading.values())

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

    async def _wait_for(self, reference: str) -> ResidentModel:
        """Bring a model that a request has named, if not too many wait for one."""
        if self.n_waiting >= MAX_WAITING:
            raise Problem("overloaded", f"found {self.n_waiting} requests waiting for a model, expected fewer")
        self.n_waiting += 1
        try:
            return await self._bring(reference)
        finally:
            self.n_waiting -= 1

    async def _bring(self, reference: str) -> ResidentModel:
        """Let `reference` mean what it means in the store now, loading that if it is not in memory."""
        try:
            version = await asyncio.to_thread(self.store.resolve, reference)
        except (UnknownModel, InvalidName):
            raise
        except Exception as error:  # a damaged store
            raise self._refusal(reference, error) from error
        model = self._models.get(version) or await self._loaded(version)
        self._models[version] = model
        before = self._versions.get(reference)
        self._versions[reference] = version  # the swap
        if before is not None and before not in self._versions.values():
            self._retire(before)
        self._make_room(keep=version)
        return model

    async def _loaded(self, version: ModelVersion) -> ResidentModel:
        """The model of that version, loaded once for all who wait for it."""
        if version in self._refused:
            raise Problem(*_UNUSABLE)
        if version not in self._loading:
            task = self._loading[version] = asyncio.create_task(self._load(version))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # if nobody waits any more
        return await asyncio.shield(self._loading[version])  # who is cancelled does not take it along

    async def _load(self, version: ModelVersion) -> ResidentModel:
        began = perf_counter()
        try:
            model = await asyncio.get_running_loop().run_in_executor(
                self._loader, ResidentModel.load, self.store, version, self.device
            )
        except Exception as error:
            self._refused.add(version)
            raise self._refusal(str(version), error) from error
        finally:
            del self._loading[version]
        self.n_loads["loaded"] += 1
        self.last_load_s = perf_counter() - began
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

    def _make_room(self, keep: ModelVersion) -> None:
        """Retire the least recently used beyond the limit, but neither `keep` nor the default model."""
        default = self._versions.get(self.default_model)
        for version in [each for each in self._models if each not in (keep, default)]:
            if len(self._models) <= self._max_resident:
                return
            self._retire(version)

    def _retire(self, version: ModelVersion) -> None:
        """Forget a model and its references. Whatever design still runs on it holds the last reference to it."""
        del self._models[version]
        self._versions = {name: each for name, each in self._versions.items() if each != version}
        logger.info("Retired %s version %d", version.name, version.version)


_UNUSABLE = (
    "model-unavailable",
    "found a published checkpoint that does not pass its checks, expected a whole one",
    "model",
)
