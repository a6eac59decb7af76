"""Devices that learn themselves: their listeners' calibrations, and the models made from them.

A device NAME is a model of that name. Beside its versions lies NAME/listeners.safetensors, with the estimated paths of
the ears added so far; the model is published anew when that file changes. It has the generator of `generic` until one
is trained on the listeners (`training.train_device`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from model_store.checkpoint import Checkpoint, sha256
from model_store.errors import CorruptCheckpoint, CorruptStore, InvalidName, ModelNotFound, PublishFailed
from model_store.manifest import Manifest, check_name, parse_reference
from model_store.store import ModelStore, ModelVersion
from prime_anc.measure.device import MIN_LISTENERS, ListenerEar, learn_device
from prime_anc.method.conventions import N_BINS
from prime_anc.method.types import Float32

FILE = "listeners.safetensors"
# Ears of a device; further ones change hardly anything.
MAX_EARS = 64
# Largest relative distance of both paths between two measurements of one ear as it is worn, in the lags that windows of
# all lengths hold: with white noise at 20 to 45 dB SNR, with a prior and without, up to 0.22, between 15 persons at
# least 0.44.
SAME_EAR, SAME_EAR_SAMPLES = 0.3, 1024
BASE = "generic"
LICENCE = "not for distribution: measurements of the operator's own listeners"


@dataclass(frozen=True)
class Device:
    """A device and what is known of it."""

    name: str
    # Its listeners, in the order in which they were added.
    listeners: tuple[str, ...]
    n_ears: int
    # Its newest sound model; None below MIN_LISTENERS.
    model: ModelVersion | None


class Devices:
    """The devices of a store in a folder, of which one program at a time changes any."""

    def __init__(self, store: ModelStore) -> None:
        """Open the devices of a store; PublishFailed for object storage, which has no lock."""
        if not isinstance(store.root, Path):
            raise PublishFailed(
                "device: object storage has no lock; keep devices in a folder, and copy their models there"
            )
        self.store = store
        self._root = store.storage

    def add(self, name: str, ears: Sequence[ListenerEar]) -> Device:
        """Add ears and publish the device's model anew.

        An ear that is known already is left out, also if it was measured again without reseating, as are those beyond
        MAX_EARS.

        Parameters
        ----------
        name
            Name of the device.
        ears
            Estimates of calibrations that passed.

        Returns
        -------
        Device
            The device with the ears.

        Raises
        ------
        InvalidName
            The name is malformed, that of a bundled model or an alias.
        CorruptCheckpoint
            The device's file is damaged.
        PublishFailed
            Another program holds the lock.
        """
        check_name(name)
        with self._root.locked():
            if self.store.is_bundled(name) or name in self.store.aliases():
                detail = f"device: {name!r} is an alias or a model of the package; choose a name that is free"
                raise InvalidName(detail)
            known = self.ears(name)
            kept = list(known)
            for ear in ears:
                if len(kept) < MAX_EARS and not any(_is_same(ear, other) for other in kept):
                    kept.append(ear)
            if len(kept) > len(known):
                self._root.write(f"{name}/{FILE}", _to_bytes(kept))
                if len(_listeners(kept)) >= MIN_LISTENERS:
                    self.publish(name)
            return self.device(name)

    def publish(
        self, name: str, trained: Checkpoint | None = None, trained_on: Sequence[ListenerEar] = ()
    ) -> ModelVersion:
        """Publish a device's model with the statistics of its listeners.

        Parameters
        ----------
        name
            Name of the device.
        trained
            Model with a generator trained on listeners; None keeps the generator that the device has, at first that of
            `generic`.
        trained_on
            Ears that it was trained on.

        Returns
        -------
        ModelVersion
            The version.

        Raises
        ------
        ModelNotFound
            There is no such device.
        PublishFailed
            A listener was removed since the training began, or another program holds the lock.
        """
        with self._root.locked():
            ears = self.ears(name)
            if not ears:
                raise ModelNotFound(f"device: there is no {name!r}; add a listener first")
            if set(_listeners(trained_on)) - set(_listeners(ears)):
                raise PublishFailed(f"device: a listener of {name} was removed during the training; train again")
            base = trained or self.model_of(name) or self.store.load(BASE)
            parameters, statistics = learn_device(ears, base.parameters)
            manifest = Manifest(
                device=name,
                dataset="device",
                split=None,
                seed=base.manifest.seed,
                support=_listeners(ears),
                training=base.manifest.training,
                data_fingerprint=sha256(_to_bytes(ears)),
                support_traits=statistics,
                licence=LICENCE,
                attribution=f"{len(ears)} ears of {len(_listeners(ears))} listeners with {name}",
            )
            # Generator and reference noise are the base's, and with them its golden case.
            return self.store.publish(name, Checkpoint(manifest, parameters, base.golden))

    def device(self, name: str) -> Device:
        """Return a device; ModelNotFound if there is none."""
        ears = self.ears(name)
        if not ears:
            raise ModelNotFound(f"device: there is no {name!r}; there are: {', '.join(self.names()) or 'none'}")
        model = self.store.resolve(name) if self.store.versions(name) else None
        return Device(name, _listeners(ears), len(ears), model)

    def model_of(self, name: str) -> Checkpoint | None:
        """Load a device's newest sound model; None if there is none yet."""
        return self.store.load(name) if self.store.versions(name) else None

    def names(self) -> list[str]:
        """List the names of the devices."""
        return sorted(folder for folder in self._root.folders() if FILE in self._root.files(folder))

    def ears(self, name: str) -> list[ListenerEar]:
        """Read the ears of a device; none if there is no such device. CorruptCheckpoint for a damaged file."""
        data = self._root.read(f"{name}/{FILE}")
        return [] if data is None else _from_bytes(data, f"{name}/{FILE}")

    def remove(self, name: str, listener: str | None = None) -> ModelVersion | None:
        """Delete a device with its models, or one of its listeners with all that was made of their ears.

        A listener's versions give way to a new one, which aliases of theirs then stand for. Its generator is that of
        the newest version without the listener, else of `generic`.

        Returns
        -------
        ModelVersion | None
            The new version, if enough listeners are left.

        Raises
        ------
        ModelNotFound
            There is no such device or listener.
        InvalidName
            No version would be left for an alias. Nothing is deleted.
        CorruptCheckpoint
            A version is damaged, so that its listeners are unknown. Nothing is deleted.
        PublishFailed
            Another program holds the lock. Nothing is deleted.
        """
        with self._root.locked():
            known, old = self.ears(name), self._versions_of(name, listener)
            rest = [ear for ear in known if listener is not None and ear.listener != listener]
            if len(rest) == len(known) and not old:  # some are left if an earlier removal was interrupted
                what = f"there is no {name!r}" if listener is None else f"{name} has no listener {listener!r}"
                raise ModelNotFound(f"device: {what}")
            has_heir, heir = len(_listeners(rest)) >= MIN_LISTENERS, None
            for alias, target in {} if has_heir else self.store.aliases().items():
                if parse_reference(target).name == name:
                    raise InvalidName(
                        f"alias {alias}: it stands for {target}; let it stand for another model first"
                    )
            if rest:
                self._root.write(f"{name}/{FILE}", _to_bytes(rest))
            elif known:
                self._root.remove(f"{name}/{FILE}")
            if has_heir:
                others = [version for version in self.store.versions(name) if version not in old]
                heir = self.publish(name, self.store.load(others[-1].reference if others else BASE))
            for version in old:
                self.store.remove(version, heir)
            return heir

    def _versions_of(self, name: str, listener: str | None) -> list[ModelVersion]:
        """Return the versions made of a listener's ears; without a listener, all."""
        versions = self.store.versions(name)
        if listener is None:
            return versions
        try:
            return [item for item in versions if listener in self.store.manifest(item.reference).support]
        except CorruptCheckpoint as error:
            expected = f"{error.expected}; nothing was erased: delete this file, then repeat"
            raise CorruptStore(error.file, error.found, expected) from error


def _listeners(ears: Sequence[ListenerEar]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(ear.listener for ear in ears))


def _is_same(ear: ListenerEar, other: ListenerEar) -> bool:
    """Return whether two measurements are of one ear, by the distance of their paths."""

    def is_near(response: Float32, reference: Float32) -> bool:
        n = SAME_EAR_SAMPLES
        here, there = (np.pad(item[:n], (0, max(n - len(item), 0))) for item in (response, reference))
        return bool(np.linalg.norm(here - there) < SAME_EAR * np.linalg.norm(there))

    return is_near(ear.secondary, other.secondary) and is_near(ear.primary, other.primary)


def _to_bytes(ears: Sequence[ListenerEar]) -> bytes:
    arrays = {
        f"{n}.{name}": np.ascontiguousarray(getattr(ear, name), np.float32)
        for n, ear in enumerate(ears)
        for name in ("primary", "secondary", "coherence")
    }
    return safetensors.numpy.save(arrays, {"listeners": json.dumps([ear.listener for ear in ears])})


def _from_bytes(data: bytes, file: str) -> list[ListenerEar]:
    try:
        arrays = safetensors.numpy.load(data)
        size = int.from_bytes(data[:8], "little")
        listeners = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["listeners"])
        ears = [
            ListenerEar(listener, *(arrays[f"{n}.{name}"] for name in ("primary", "secondary", "coherence")))
            for n, listener in enumerate(listeners)
        ]
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CorruptStore(file, f"no listeners ({str(error)[:100]})", "a file of `device add`") from error
    for ear in ears:
        paths = ear.primary, ear.secondary, ear.coherence
        if ear.coherence.shape != (N_BINS,) or not all(
            item.ndim == 1 and np.isfinite(item).all() for item in paths
        ):
            raise CorruptStore(file, f"an unusable ear of {ear.listener!r}", "responses and a coherence")
    return ears
