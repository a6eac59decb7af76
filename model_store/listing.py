"""What a store holds, as answers describe it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from model_store.controller import PublishedController
from model_store.store import ModelStore, ModelVersion

Json = dict[str, Any]


def published(store: ModelStore, default: str, resident: Collection[ModelVersion] = ()) -> Json:
    """Return the fields of `ModelList`: all versions, with those in memory marked."""
    return {
        "default": default,
        "aliases": store.aliases(),
        "models": [description(store, version, resident) for version in store.list()],
        "controllers": [_manifest(store, item) for item in store.list(PublishedController.SUFFIX)],
        "broken": store.broken(),
    }


def description(store: ModelStore, version: ModelVersion, resident: Collection[ModelVersion] = ()) -> Json:
    """Return the fields of `ModelDescription`: a version's manifest, and whether it is in memory."""
    return _manifest(store, version) | {"resident": version in resident}


def _manifest(store: ModelStore, version: ModelVersion) -> Json:
    return store.manifest(str(version)).model_dump(mode="json") | {"digest": version.digest}
