"""The file of a device's listeners, NAME/listeners.safetensors: the estimated paths of their ears."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import safetensors.numpy

from model_store.checkpoint import read_safetensors
from model_store.errors import CorruptStore, PublishFailed
from model_store.manifest import Published, check_name
from model_store.storage import Storage
from prime_anc.measure.device import ListenerEar
from prime_anc.method.conventions import N_BINS

FILE = "listeners.safetensors"
# `dataset` in the manifests of what is made of a device's listeners.
DATASET = "device"
PATHS = ("primary", "secondary", "coherence")


def names_of(ears: Sequence[ListenerEar]) -> tuple[str, ...]:
    """Return the listeners of ears, each once, in their order."""
    return tuple(dict.fromkeys(ear.listener for ear in ears))


def to_bytes(ears: Sequence[ListenerEar]) -> bytes:
    """Write the file of these ears."""
    arrays = {
        f"{n}.{path}": np.ascontiguousarray(getattr(ear, path), np.float32)
        for n, ear in enumerate(ears)
        for path in PATHS
    }
    return safetensors.numpy.save(arrays, {"listeners": json.dumps([ear.listener for ear in ears])})


def read_ears(storage: Storage, device: str) -> list[ListenerEar]:
    """Read a device's ears; none if there is no such device. CorruptStore for a damaged file."""
    data = storage.read(f"{check_name(device)}/{FILE}")
    if data is None:
        return []
    try:
        metadata, arrays = read_safetensors(data)
        listeners = json.loads(metadata["listeners"])
        ears = [
            ListenerEar(str(who), *(arrays[f"{n}.{path}"] for path in PATHS)) for n, who in enumerate(listeners)
        ]
        if any(array.ndim != 1 or not np.isfinite(array).all() for array in arrays.values()):
            raise ValueError("a response that is not finite")
        if any(len(ear.coherence) != N_BINS for ear in ears):
            raise ValueError("a coherence of another length")
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptStore(
            f"{device}/{FILE}", f"no listeners ({str(error)[:100]})", "a file of `device add`"
        ) from error
    return ears


def refuse_erased(storage: Storage, manifest: Published) -> None:
    """Raise PublishFailed for what was made of a listener whom its device does not have."""
    if manifest.dataset == DATASET:
        device = manifest.device or ""
        if set(manifest.support) - set(names_of(read_ears(storage, device))):
            raise PublishFailed(f"device: {device} lacks listeners that this was made of; train again without them")
