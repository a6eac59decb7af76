"""One checkpoint for all tests, and a fresh store with one version of it for each that asks."""

from pathlib import Path

import pytest

from model_store.checkpoint import Checkpoint
from model_store.store import ModelStore
from tests.model_store import cases


@pytest.fixture(scope="session")
def checkpoint() -> Checkpoint:
    """Not to be changed: make a copy with `dataclasses.replace`."""
    return cases.checkpoint()


@pytest.fixture
def store(tmp_path: Path, checkpoint: Checkpoint) -> ModelStore:
    """A store with `ears@1`, without the bundled models."""
    store = ModelStore(tmp_path / "store", include_bundled=False)
    store.publish("ears", checkpoint)
    return store


@pytest.fixture
def file(store: ModelStore) -> Path:
    """File of `ears@1`, which may be overwritten."""
    file = store.root / store.resolve("ears@1").file
    file.chmod(0o644)
    return file
