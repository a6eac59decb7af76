"""Devices that learn themselves: their listeners' calibrations, and the models made from them.

A device NAME is a model of that name. Beside its versions lies NAME/listeners.safetensors, with the estimated paths of
the ears added so far; the model is published anew when that file changes. It has the generator of `generic` until one
is trained on the listeners (`training.train_device`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from model_store.checkpoint import Checkpoint, sha256
from model_store.errors import CorruptStore, InvalidName, ModelNotFound, PublishFailed
from model_store.listeners import DATASET, FILE, names_of, read_ears, to_bytes
from model_store.manifest import Manifest, check_name, is_name, parse_reference
from model_store.store import ModelStore, ModelVersion
from prime_anc.measure.device import MIN_LISTENERS, ListenerEar, learn_device

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
        self.store = store

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
        CorruptStore
            The device's file is damaged.
        PublishFailed
            Another program holds the lock, the disk refuses, or the store is a URL.
        """
        check_name(name)
        with self.store.storage.locked():
            if self.store.versions(name, bundled=True) or name in self.store.aliases():
                detail = f"device: {name!r} is an alias or a model of the package; choose a name that is free"
                raise InvalidName(detail)
            known = self.ears(name)
            kept = list(known)
            for ear in ears:
                if len(kept) < MAX_EARS and not any(_is_same(ear, other) for other in kept):
                    kept.append(ear)
            if len(kept) > len(known):
                self.store.storage.write(f"{name}/{FILE}", to_bytes(kept))
                if len(names_of(kept)) >= MIN_LISTENERS:
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
            Model with a generator trained on listeners; None keeps that of the newest version made of present
            listeners alone, or else of `generic`.
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
            A listener was removed since the training began, or as `add`.
        """
        with self.store.storage.locked():
            ears = self.ears(name)
            if not ears:
                raise ModelNotFound(f"device: there is no {name!r}; add a listener first")
            listeners = names_of(ears)
            base = trained or self._base(name, set(listeners))
            parameters, statistics = learn_device(ears, base.parameters)
            manifest = Manifest(
                device=name,
                dataset=DATASET,
                split=None,
                seed=base.manifest.seed,
                support=names_of([*ears, *trained_on]),
                training=base.manifest.training,
                data_fingerprint=sha256(to_bytes(ears)),
                support_traits=statistics,
                licence=LICENCE,
                attribution=f"{len(ears)} ears of {len(listeners)} listeners with {name}",
            )
            # Generator and reference noise are the base's, and with them its golden case.
            return self.store.publish(name, Checkpoint(manifest, parameters, base.golden))

    def _base(self, name: str, listeners: set[str]) -> Checkpoint:
        """Load the newest sound version that was made of these listeners alone; else `generic`."""
        for version in reversed(self.store.versions(name)):
            if self.store.fault(version) is None and listeners.issuperset(
                self.store.manifest(str(version)).support
            ):
                return self.store.load(str(version))
        return self.store.load(BASE)

    def device(self, name: str) -> Device:
        """Return a device; ModelNotFound if there is none."""
        ears = self.ears(name)
        if not ears:
            raise ModelNotFound(f"device: there is no {name!r}; there are: {', '.join(self.names()) or 'none'}")
        model = self.store.resolve(name) if self.store.versions(name) else None
        return Device(name, names_of(ears), len(ears), model)

    def model_of(self, name: str) -> Checkpoint | None:
        """Load a device's newest sound model; None if there is none yet."""
        return self.store.load(name) if self.store.versions(name) else None

    def names(self) -> list[str]:
        """List the names of the devices."""
        storage = self.store.storage
        return sorted(name for name in filter(is_name, storage.names()) if FILE in storage.names(name))

    def ears(self, name: str) -> list[ListenerEar]:
        """Read the ears of a device; none if there is no such device. CorruptStore for a damaged file."""
        return read_ears(self.store.storage, name)

    def remove(self, name: str, listener: str | None = None) -> ModelVersion | None:
        """Delete a device with all that was made of it, or one of its listeners with all that was made of their ears.

        A listener's versions give way to a new one, which aliases of theirs then stand for; controllers, and copies
        under other names, are deleted. The order is such that a removal that was interrupted can be repeated: first
        nothing more can be published of the listener, then nothing is left.

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
        PublishFailed
            One of its versions is damaged, so that its listeners are unknown; another program holds the lock, or the
            disk refuses.
        """
        with self.store.storage.locked():
            known, old = self.ears(name), self._made_of(name, listener)
            rest = [ear for ear in known if listener is not None and ear.listener != listener]
            if len(rest) == len(known) and not old:  # some are left if an earlier removal was interrupted
                what = f"there is no {name!r}" if listener is None else f"{name} has no listener {listener!r}"
                raise ModelNotFound(f"device: {what}")
            heir, has_heir = None, len(names_of(rest)) >= MIN_LISTENERS
            for alias, target in self.store.read_aliases().items():
                wanted = parse_reference(target)
                if (wanted.name != name or not has_heir) and any(
                    item.name == wanted.name and wanted.version in (None, item.version) for item in old
                ):
                    detail = f"alias {alias}: it stands for {target}; let it stand for another model first"
                    raise InvalidName(detail)
            if rest:
                self.store.storage.write(f"{name}/{FILE}", to_bytes(rest))
            elif known:
                self.store.storage.remove(f"{name}/{FILE}")
            if has_heir:
                heir = self.publish(name)
            for version in old:
                self.store.remove(version, heir if version.name == name else None)
            return heir

    def _made_of(self, name: str, listener: str | None) -> list[ModelVersion]:
        """Return the versions of the root made of a device's ears, of a listener's if one is named.

        PublishFailed if one of the device's is damaged: its listeners are unknown.
        """
        manifest = self.store.manifest
        own, others = self.store.versions(name), [item for item in self.store.all_versions() if item.name != name]
        # What is damaged no reader can load.
        sound = [item for item in others if not item.is_bundled and self.store.fault(item) is None]
        own += [
            item for item in sound if (manifest(str(item)).dataset, manifest(str(item)).device) == (DATASET, name)
        ]
        try:
            return [item for item in own if listener is None or listener in manifest(str(item)).support]
        except CorruptStore as error:
            raise PublishFailed(f"{error}, or delete it; nothing was erased") from error


def _is_same(ear: ListenerEar, other: ListenerEar) -> bool:
    """Return whether two measurements are of one ear, by the distance of their paths."""
    n = SAME_EAR_SAMPLES
    for response, reference in ((ear.secondary, other.secondary), (ear.primary, other.primary)):
        here, there = (np.pad(item[:n], (0, max(n - len(item), 0))) for item in (response, reference))
        if np.linalg.norm(here - there) >= SAME_EAR * np.linalg.norm(there):
            return False
    return True
