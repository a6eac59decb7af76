"""Models in memory, loaded and replaced without delaying a design.

A separate thread loads a model, verifies it and checks it against its golden case. One assignment in the event loop
then replaces the old one: designs that were queued before keep their model, later ones use the new one. An unloaded
model is freed after its last design.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from model_store.controller import PublishedController
from model_store.errors import InvalidName, ModelNotFound
from model_store.manifest import parse_reference
from model_store.store import ModelStore, ModelVersion
from prime_anc.answers import ModelReference
from prime_anc.method.errors import DeviceLost
from prime_anc.method.types import Fallback
from prime_anc.tasks.models import require_digest, split_reference
from service.errors import HttpProblem, retry_after
from service.models.resident_model import ResidentModel
from service.queue.estimates import RecentTimes
from service.queue.waiting import Disconnected, done_in_time

logger = logging.getLogger(__name__)

# Limit on requests that wait for models, since all keep their bodies in memory.
MAX_WAITING = 64


class ResidentModels:
    """Models in memory, by version and by reference (name, name@version or alias).

    Everything except the loading runs in the event loop, so that the tables need no lock. A reference is resolved in
    the store at its first use and again by `load` and `reload`: in between it keeps its version, even if that model was
    unloaded to make room, and a design with a resident model reads no file.
    """

    def __init__(
        self,
        store: ModelStore,
        device: str,
        default_model: str,
        fallback: Fallback,
        max_resident: int,
    ) -> None:
        """Set the number of resident models, at least 2; one more is in memory during a load."""
        self._store = store
        self._device = device
        # When a Wiener filter replaces the generator's.
        self.fallback = fallback
        self.default_model = default_model
        self.n_loads: Counter[str] = Counter(loaded=0, failed=0)
        self.last_load_s = 0.0
        # The default model; None until it is loaded. It stays in memory.
        self.default: ResidentModel | None = None
        # Whether the default model could not be loaded and has no replacement.
        self.default_failed = False
        # Called in the event loop if the GPU fails while a model is loaded.
        self.on_device_lost: Callable[[DeviceLost], None] = lambda error: None
        self._max_resident = max_resident
        self._models: OrderedDict[ModelVersion, ResidentModel] = OrderedDict()  # least recently used first
        self._versions: dict[str, ModelVersion] = {}  # by reference, including models unloaded to make room
        self._loading: dict[ModelVersion, asyncio.Task[ResidentModel]] = {}  # in order; the first one runs
        self._waiting_for: set[asyncio.Task[ResidentModel]] = set()
        self._refused: set[ModelVersion] = set()
        self._outdated: set[str] = set()  # references whose newest version is damaged
        self._controllers: dict[str, PublishedController] = {}  # by reference
        self._n_waiting = 0
        self._load_s = RecentTimes()
        self._loader = ThreadPoolExecutor(1, "load")

    def find(self, reference: str) -> ResidentModel | None:
        """Return the resident model of a reference; None if it is not in memory."""
        version = self._versions.get(reference)
        return None if version is None else self._models.get(version)

    def models(self) -> list[ResidentModel]:
        """Return all resident models, the default one first, then the most recently used."""
        default = self.default
        others = [model for model in reversed(self._models.values()) if model is not default]
        return [default, *others] if default else others

    def versions(self) -> list[ModelVersion]:
        """Return their versions, in the same order."""
        return [model.version for model in self.models()]

    async def model(
        self, reference: str | None, due: float = math.inf, disconnected: Disconnected | None = None
    ) -> ResidentModel:
        """Return the model of a request, loading it if necessary; designs with other models continue.

        A reference may end with a colon and the digest that the model must have. Loading continues after a refusal,
        for later requests.

        Raises
        ------
        UnknownModel
            The store has no such model.
        InvalidName
            The name is malformed.
        HttpProblem
            `unknown-model` for another digest; `model-unavailable` for a damaged checkpoint or one that fails its
            golden case; `overloaded` if loading is
            expected to end after `due` (`perf_counter`, s), `deadline-passed` if it did.
        ClientGone
            The client has gone.
        """
        reference, digest = split_reference(self.default_model if reference is None else reference)
        model = self.find(reference) or await self._wait_for(reference, due, disconnected)
        require_digest(digest, model.loaded.reference)
        if model.version in self._models:  # it may have been retired meanwhile
            self._models.move_to_end(model.version)
        return model

    async def controller(self, reference: str) -> PublishedController | None:
        """Return a published controller, read at its first use and again after `reload`; None if there is none.

        Raises
        ------
        HttpProblem
            `model-unavailable` if its file is damaged.
        """
        if reference not in self._controllers:
            try:
                self._controllers[reference] = await asyncio.to_thread(self._store.controller, reference)
            except (ModelNotFound, InvalidName):
                return None
            except Exception as error:  # a damaged store
                raise self._failure(reference, error, "controller") from error
        return self._controllers[reference]

    async def load(self, reference: str) -> ModelVersion:
        """Resolve `reference` in the store again and load that version; errors as `model`.

        The previous version stays in use until then, and also if loading fails.
        """
        self._refused.clear()  # an operator who repeats the request may have repaired it
        return (await self._assign(reference, await self._resolved(reference))).version

    async def reload(self) -> list[str]:
        """Resolve all references again, the default one first, and load what changed or could not be loaded.

        Versions that were deleted are unloaded, even the default model's: they may be of a listener who is to be
        forgotten. A reference without a resident model that is no longer published is forgotten.

        Returns
        -------
        list[str]
            References that failed; versions before theirs are used, if there are any.
        """
        refused, self._refused = self._refused, set()
        self._controllers.clear()
        self._store.forget()
        removed = {version for version in [*self._models] if await self._is_removed(version)}
        failed: list[str] = []
        for reference in dict.fromkeys((self.default_model, *self._versions)):
            before = self._versions.get(reference)
            is_used = reference == self.default_model or before in self._models
            try:
                version = await self._resolved(reference)
                if reference in self._outdated:
                    failed.append(reference)
                if is_used or version != before or version in refused:
                    await self._assign(reference, version, is_used)
            except (ModelNotFound, InvalidName) as error:
                if reference == self.default_model or (is_used and before not in removed):
                    self._failure(reference, error)
                    failed.append(reference)
                else:
                    self._versions.pop(reference, None)
            except HttpProblem:
                if reference not in self._outdated:
                    failed.append(reference)
        for version in removed & self._models.keys():
            if self._models[version] is self.default:
                logger.error("The default model %s was deleted; start the service with another --model", version)
            self._versions = {key: item for key, item in self._versions.items() if item != version}
            self._unload(version)
        self.default = self.find(self.default_model)
        self.default_failed = self.default is None
        return failed

    def unload(self, reference: str) -> list[ModelVersion]:
        """Unload the model of a reference, or all versions of a name, and forget their references.

        Returns
        -------
        list[ModelVersion]
            The unloaded versions.

        Raises
        ------
        HttpProblem
            `unknown-model` if none is in memory, `default-model` for the default model.
        """
        name, number = parse_reference(reference)
        named = self._versions.get(reference)

        def is_named(version: ModelVersion) -> bool:
            return version == named or (version.name == name and number in (None, version.version))

        unloaded = [version for version in self._models if is_named(version)]
        if not unloaded:
            raise HttpProblem(
                "unknown-model", "no such model is in memory; GET /models lists those that are", "model"
            )
        default = self.default
        if default is not None and default.version in unloaded:
            raise HttpProblem("default-model", "the default model stays in memory; unload another one", "model")
        for version in unloaded:
            self._unload(version)
        self._versions = {key: version for key, version in self._versions.items() if not is_named(version)}
        return unloaded

    def drop(self, model: ResidentModel) -> None:
        """Unload a model that failed its check, if still resident; the default model stays."""
        if model is not self.default and self._models.get(model.version) is model:
            self._unload(model.version)

    async def close(self) -> None:
        """Wait for a running load, then end the thread."""
        await asyncio.to_thread(self._loader.shutdown, wait=True, cancel_futures=True)
        left = [*self._loading.values(), *self._waiting_for]
        if left:  # their results are no longer needed
            await asyncio.wait(left)

    async def _wait_for(self, reference: str, due: float, disconnected: Disconnected | None) -> ResidentModel:
        """Load a model for a request, if not too many wait for one."""
        if self._n_waiting >= MAX_WAITING:
            raise HttpProblem(
                "overloaded",
                f"{self._n_waiting} requests already wait for models to be loaded; ask again later",
                headers=retry_after(self._load_s.expected),
            )
        self._n_waiting += 1
        try:
            if reference not in self._versions:
                self._versions.setdefault(reference, await self._resolved(reference))
            version = self._versions[reference]
            wait_s = self._expected_s(version)
            following = asyncio.create_task(self._assign(reference, version))
            self._waiting_for.add(following)  # it continues even if no longer awaited
            following.add_done_callback(self._waiting_done)
            left_s = due - perf_counter()
            if wait_s > left_s:
                raise HttpProblem(
                    "overloaded",
                    f"to load the model takes {1e3 * wait_s:.0f} ms, more than the {max(1e3 * left_s, 0):.0f} ms "
                    "left of the deadline; ask again once it is loaded",
                    headers=retry_after(wait_s),
                )
            if not await done_in_time(following, due, disconnected):
                raise HttpProblem(
                    "deadline-passed",
                    "the deadline passed while the model was being loaded; ask again once it is",
                    headers=retry_after(wait_s),
                )
            return following.result()
        finally:
            self._n_waiting -= 1

    def _waiting_done(self, done: asyncio.Task[ResidentModel]) -> None:
        self._waiting_for.discard(done)
        if not done.cancelled():
            done.exception()  # mark as retrieved

    def _expected_s(self, version: ModelVersion) -> float:
        """Estimate the time (s) until a version is in memory; loads are sequential."""
        if version in self._models or version in self._refused:
            return 0.0
        before = list(self._loading)
        n_loads = before.index(version) + 1 if version in self._loading else len(before) + 1
        return n_loads * self._load_s.expected

    async def _resolved(self, reference: str) -> ModelVersion:
        """Return the current version of a reference in the store, and count a newer one that is damaged."""

        def find() -> tuple[ModelVersion, bool]:
            version = self._store.resolve(reference)
            return version, self._store.fault_after(version) is not None

        try:
            version, is_outdated = await asyncio.to_thread(find)
        except (ModelNotFound, InvalidName):
            raise
        except Exception as error:  # a damaged store
            raise self._failure(reference, error) from error
        self.n_loads["failed"] += is_outdated
        (self._outdated.add if is_outdated else self._outdated.discard)(reference)
        return version

    async def _is_removed(self, version: ModelVersion) -> bool:
        """Return whether the store has lost a version; not if it cannot be read."""
        try:
            return await asyncio.to_thread(self._store.is_removed, version)
        except Exception:  # a damaged store, of which `_resolved` has told
            return False

    async def _assign(self, reference: str, version: ModelVersion, is_used: bool = True) -> ResidentModel:
        """Assign a version to `reference`, loading it if it is not in memory or fails its checks.

        If not is_used, it replaces no resident model.
        """
        model = self._models.get(version)
        if model is None or not model.is_sound:
            model = await self._loaded(version)
        if self._models.get(version) is not model:
            self._models[version] = model
            self._models.move_to_end(version, last=is_used)
        before = self._versions.get(reference)
        self._versions[reference] = version  # the swap
        self.default = self.find(self.default_model)
        if before is not None and before in self._models and before not in self._versions.values():
            self._unload(before)
        self._make_room(keep=version if is_used else None)
        return model

    async def _loaded(self, version: ModelVersion) -> ResidentModel:
        """Return the model of a version, loaded once for all requests that wait for it."""
        if version in self._refused:
            raise _unusable()
        if version not in self._loading:
            self._loading[version] = asyncio.create_task(self._load(version))
        return await asyncio.shield(self._loading[version])  # cancelling one request does not cancel the load

    async def _load(self, version: ModelVersion) -> ResidentModel:
        def load() -> tuple[ResidentModel, float]:
            began = perf_counter()
            model = ResidentModel(version, self._store.load(str(version)), self._device, self.fallback)
            return model, perf_counter() - began

        try:
            model, spent_s = await asyncio.get_running_loop().run_in_executor(self._loader, load)
        except Exception as error:
            if isinstance(error, DeviceLost):
                self.on_device_lost(error)
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

    def _failure(self, reference: str, error: Exception, field: str = "model") -> HttpProblem:
        """Count and log a failure with its cause; return the error that a client may see."""
        self.n_loads["failed"] += 1
        logger.error("Model %a cannot be used; resident models stay in use", reference, exc_info=error)
        return _unusable(field)

    def _make_room(self, keep: ModelVersion | None) -> None:
        """Unload the least recently used models beyond the limit, except `keep` and the default model."""
        default = self._versions.get(self.default_model)
        for version in [item for item in self._models if item not in (keep, default)]:
            if len(self._models) <= self._max_resident:
                return
            self._unload(version)

    def _unload(self, version: ModelVersion) -> None:
        """Unload a model. It is freed after the last design with it."""
        del self._models[version]
        logger.info("Unloaded %s version %d", version.name, version.version)


def _unusable(field: str = "model") -> HttpProblem:
    return HttpProblem(
        "model-unavailable",
        "the published checkpoint does not pass its checks; contact the operator, whose log has the reason",
        field,
    )


def reference_of(version: ModelVersion) -> ModelReference:
    """Return a version as answers name it."""
    return ModelReference(name=version.name, version=version.version, digest=version.digest)
