"""Which models are in memory, and how they come and go without holding up a design.

A model is loaded, verified and checked against its golden case in a thread of its own. It is then published by one
assignment in the event loop: designs handed over before keep the model that they were given, later ones get the new
one. A retired model is freed when its last design has let go of it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from model_store.errors import InvalidName, UnknownModel
from model_store.names import parse_reference
from model_store.store import ModelStore, ModelVersion
from service.engine.latency import RecentTimes
from service.engine.resident_model import ResidentModel
from service.engine.types import Disconnected, Refused
from service.engine.waiting import done_in_time
from service.engine.wiener_fallback import WienerFallback

logger = logging.getLogger(__name__)

MAX_WAITING = 64
"""Requests that may wait for models to be loaded, whatever their deadlines: each keeps its body in memory."""


class ResidentModels:
    """The models in memory, by version and by the references that they go by.

    Everything but the loading itself happens in the event loop, so the tables need no lock. A reference is looked
    up in the store when it is first asked for and again by `load` and `reload`: until then an alias or a name
    without a version means what it meant, also while that model has made room for another, and a design of a
    resident model touches no file.
    """

    def __init__(
        self,
        store: ModelStore,
        device: str,
        default_model: str,
        fallback: WienerFallback,
        max_resident: int,
        refresh: Callable[[], None] | None = None,
        *,
        kernels: bool = True,
    ) -> None:
        """max_resident: at least 2. One more is in memory while it is being loaded. refresh: called before an
        operator's look-ups, where the store is a copy of one elsewhere; never for a client's request."""
        self._store = store
        self._device = device
        self._kernels = kernels
        self._fallback = fallback
        self._refresh = refresh
        self.default_model = default_model
        self.n_loads: Counter[str] = Counter(loaded=0, failed=0)
        self.last_load_s = 0.0
        self.default_failed = False
        """Whether the default model could not be loaded and none is in its place."""
        self._max_resident = max_resident
        self._models: OrderedDict[ModelVersion, ResidentModel] = OrderedDict()  # the least recently used first
        self._versions: dict[str, ModelVersion] = {}  # by reference, of models that have made room, too
        self._loading: dict[ModelVersion, asyncio.Task[ResidentModel]] = {}  # in order; the first one runs
        self._following: set[asyncio.Task[ResidentModel]] = set()
        self._refused: set[ModelVersion] = set()
        self._n_waiting = 0
        self._load_s = RecentTimes()
        self._loader = ThreadPoolExecutor(1, "load")

    @property
    def default(self) -> ResidentModel | None:
        """The default model; None until it is loaded."""
        return self.find(self.default_model)

    def find(self, reference: str) -> ResidentModel | None:
        """The resident model that goes by this reference."""
        version = self._versions.get(reference)
        return None if version is None else self._models.get(version)

    def scored_noise_reduction_db(self, version: ModelVersion, n_updates: int) -> float | None:
        """Noise reduction in dB on held-out listeners, from the manifest of a resident version."""
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

    async def model(
        self, reference: str | None, due: float = math.inf, disconnected: Disconnected | None = None
    ) -> ResidentModel:
        """The model that a request names, loaded first if need be; designs of other models go on meanwhile.

        Raises UnknownModel, InvalidName, and Refused: `model-unavailable` for a checkpoint that is damaged or does
        not pass its golden case; `overloaded` at once where loading will last beyond `due` (as `perf_counter`
        counts), `deadline-passed` where it has; ClientDisconnected. The model is loaded all the same, for whoever
        asks next.
        """
        reference = self.default_model if reference is None else reference
        model = self.find(reference) or await self._wait_for(reference, due, disconnected)
        if model.version in self._models:  # it may have been retired while it was waited for
            self._models.move_to_end(model.version)
        return model

    async def load(self, reference: str) -> ModelVersion:
        """Resolve `reference` in the store again and load that version; raises as `model` does.

        The previous version stays in use until then, and also if loading fails.
        """
        self._refused.clear()  # an operator who asks again may have mended it
        await self._refreshed()
        return (await self._follow(reference, await self._resolved(reference))).version

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
                    self._failure(reference, error)
                    failed.append(reference)
                else:
                    self._versions.pop(reference, None)
            except Refused:
                failed.append(reference)
        self.default_failed = self.default is None
        return failed

    def unload(self, reference: str) -> list[ModelVersion]:
        """Retire what goes by `reference`, a name standing for all its versions, and forget the references to it;
        returns what was retired.

        Raises Refused: `unknown-model` where nothing resident goes by it, `default-model` for the default model.
        """
        name, number = parse_reference(reference)
        meant = self._versions.get(reference)

        def is_meant(version: ModelVersion) -> bool:
            return version == meant or (version.name == name and number in (None, version.version))

        retired = [version for version in self._models if is_meant(version)]
        if not retired:
            raise Refused(
                "unknown-model", "no such model is in memory; GET /models lists those that are", field="model"
            )
        default = self.default
        if default is not None and default.version in retired:
            raise Refused("default-model", "the default model stays in memory; unload another one", field="model")
        for version in retired:
            self._retire(version)
        self._versions = {each: version for each, version in self._versions.items() if not is_meant(version)}
        return retired

    def drop(self, model: ResidentModel) -> None:
        """Retire a model that has gone wrong, unless it is gone already; the default one stays where it is."""
        if model is not self.default and self._models.get(model.version) is model:
            self._retire(model.version)

    async def close(self) -> None:
        """Wait for a load that runs, and end the thread."""
        await asyncio.to_thread(self._loader.shutdown, wait=True, cancel_futures=True)
        left = [*self._loading.values(), *self._following]
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

    async def _wait_for(self, reference: str, due: float, disconnected: Disconnected | None) -> ResidentModel:
        """Load a model that a request has named, if not too many wait for one."""
        if self._n_waiting >= MAX_WAITING:
            raise Refused(
                "overloaded",
                f"{self._n_waiting} requests already wait for models to be loaded; ask again later",
                retry_after_s=self._load_s.expected_s,
            )
        self._n_waiting += 1
        try:
            if reference not in self._versions:
                self._versions.setdefault(reference, await self._resolved(reference))
            version = self._versions[reference]
            wait_s = self._expected_s(version)
            following = asyncio.create_task(self._follow(reference, version))
            self._following.add(following)  # it goes on though nobody may wait for it any more
            following.add_done_callback(self._followed)
            left_s = due - perf_counter()
            if wait_s > left_s:
                raise Refused(
                    "overloaded",
                    f"to load the model takes {1e3 * wait_s:.0f} ms, more than the {max(1e3 * left_s, 0):.0f} ms "
                    "left of the deadline; ask again once it is loaded",
                    retry_after_s=wait_s,
                )
            if not await done_in_time(following, due, disconnected):
                raise Refused(
                    "deadline-passed",
                    "the deadline passed while the model was being loaded; ask again once it is",
                    retry_after_s=wait_s,
                )
            return following.result()
        finally:
            self._n_waiting -= 1

    def _followed(self, done: asyncio.Task[ResidentModel]) -> None:
        self._following.discard(done)
        if not done.cancelled():
            done.exception()  # seen, if nobody waits any more

    def _expected_s(self, version: ModelVersion) -> float:
        """Seconds until a version that is asked for now is in memory; they are loaded one after the other."""
        if version in self._models or version in self._refused:
            return 0.0
        before = list(self._loading)
        n_loads = before.index(version) + 1 if version in self._loading else len(before) + 1
        return n_loads * self._load_s.expected_s

    async def _resolved(self, reference: str) -> ModelVersion:
        """What it means in the store now."""
        try:
            return await asyncio.to_thread(self._store.resolve, reference)
        except (UnknownModel, InvalidName):
            raise
        except Exception as error:  # a damaged store
            raise self._failure(reference, error) from error

    async def _follow(self, reference: str, version: ModelVersion, is_used: bool = True) -> ResidentModel:
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

    async def _loaded(self, version: ModelVersion) -> ResidentModel:
        """The model of that version, loaded once for all who wait for it."""
        if version in self._refused:
            raise _unusable()
        if version not in self._loading:
            self._loading[version] = asyncio.create_task(self._load(version))
        return await asyncio.shield(self._loading[version])  # who is cancelled does not take it along

    async def _load(self, version: ModelVersion) -> ResidentModel:
        def load() -> tuple[ResidentModel, float]:
            began = perf_counter()
            model = ResidentModel.load(self._store, version, self._device, self._fallback, kernels=self._kernels)
            return model, perf_counter() - began

        try:
            model, spent_s = await asyncio.get_running_loop().run_in_executor(self._loader, load)
        except Exception as error:
            self._refused.add(version)
            raise self._failure(str(version), error) from error
        finally:
            del self._loading[version]
        self.n_loads["loaded"] += 1
        self.last_load_s = spent_s
        self._load_s.observe(spent_s)
        logger.info(
            "Loaded %s version %d (%s) on %s in %.2f s",
            version.name,
            version.version,
            version.digest,
            self._device,
            spent_s,
        )
        return model

    def _failure(self, reference: str, error: Exception) -> Refused:
        """Count and log a failure with its cause, and say as much of it as a client may know."""
        self.n_loads["failed"] += 1
        logger.error("Model %a cannot be used; resident models stay in use", reference, exc_info=error)
        return _unusable()

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


def _unusable() -> Refused:
    return Refused(
        "model-unavailable",
        "the published checkpoint does not pass its checks; contact the operator, whose log has the reason",
        field="model",
    )
