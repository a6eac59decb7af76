"""One engine for the tests that do not change it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from model_store.store import ModelStore
from prime_anc.method.types import Design
from service.engine.engine import Engine
from service.engine.types import Designs
from tests.service import models


@asynccontextmanager
async def running(store: ModelStore, default_model: str = "ears", **options: Any) -> AsyncIterator[Engine]:
    """Run an engine until its default model is loaded or found unusable; checks run on request."""
    options = {"n_threads": 2, "fallback": models.NO_FALLBACK, "recheck_s": 1e6, "ready_budget_s": 1e6} | options
    engine = Engine(store, models.DEVICE, default_model=default_model, **options)
    engine.start()
    await engine.started()
    yield engine
    await engine.close()


@pytest.fixture(scope="session")
async def engine(store_folder: Path, anyio_backend: str) -> AsyncIterator[Engine]:
    """An engine over the shared store, with at most two workers and two models."""
    async with running(ModelStore(store_folder, include_bundled=False), max_resident_models=2) as engine:
        yield engine


def only(answers: Designs | list[Any]) -> Design:
    """Return the only design among the answers."""
    (answer,) = answers.designs if isinstance(answers, Designs) else answers
    assert isinstance(answer, Design)
    return answer
