"""Long JSON is parsed in a worker process, and whatever becomes of that, requests are answered."""

import asyncio
import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from time import perf_counter

import numpy as np
import orjson
import pytest

from service.api import json_workers
from service.api.json_parsing import LongList
from service.api.json_workers import SHORT_BYTES, JsonWorkerPool
from service.engine.types import ClientDisconnected
from service.errors import HttpProblem

pytestmark = pytest.mark.anyio

NUMBERS = np.random.default_rng(0).standard_normal(20_000)
LONG_JSON = orjson.dumps({"x": NUMBERS.tolist()})


async def stay() -> None:
    """A client that never hangs up."""
    await asyncio.Event().wait()


async def read(pool: JsonWorkerPool, body: bytes = LONG_JSON, within_s: float = math.inf) -> object:
    """What the pool makes of a body."""
    return await pool.parse(body, perf_counter() + within_s, stay)


def assert_numbers(document: object) -> None:
    assert isinstance(document, dict)
    assert isinstance(document["x"], LongList)
    assert document["x"].values is not None
    assert np.array_equal(document["x"].values, NUMBERS)


@pytest.fixture
async def pool() -> AsyncIterator[JsonWorkerPool]:
    """One of each test's own, with a process that has started."""
    pool = JsonWorkerPool()
    assert_numbers(await read(pool))
    assert pool._is_up is not None
    await asyncio.wrap_future(pool._is_up)
    yield pool
    async with asyncio.timeout(20):
        await pool.close()


async def test_short_bodies_start_no_process() -> None:
    pool = JsonWorkerPool()
    assert len(LONG_JSON) > SHORT_BYTES
    assert await read(pool, b'{"a": [1]}') == {"a": [1]}
    assert pool._pool is None


@pytest.mark.parametrize("body", [b"{" * (SHORT_BYTES + 1), b"[" + b"{}," * SHORT_BYTES + b"1]", b"{"])
async def test_what_is_no_request_is_refused_alike(pool: JsonWorkerPool, body: bytes) -> None:
    with pytest.raises(HttpProblem) as refused:
        await read(pool, body)
    assert refused.value.code in ("malformed-json", "invalid-field")
    assert_numbers(await read(pool))


async def test_the_first_bodies_do_not_wait_for_the_process() -> None:
    pool = JsonWorkerPool()
    pool._start()
    (worker,) = pool._workers
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    assert_numbers(await read(pool, within_s=30))
    await pool.close()


async def test_a_worker_that_is_killed_is_replaced(pool: JsonWorkerPool) -> None:
    (worker,) = pool._workers
    worker.kill()
    worker.join()
    async with asyncio.timeout(60):
        assert_numbers(await read(pool))
    assert pool._workers != [worker]


def _die_while_answering() -> object:
    """In the worker: write half of the answer, then be killed."""

    def send_half(self: Connection, data: bytes, *more: object) -> None:
        os.write(self.fileno(), bytes(data)[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    Connection._send = send_half  # type: ignore[attr-defined]
    return bytes(1_000_000)


async def test_a_worker_that_is_killed_while_it_answers_is_replaced(pool: JsonWorkerPool) -> None:
    """The rest of an answer that never comes once kept all long JSON waiting, and the service from ending."""
    assert pool._pool is not None
    pool._pool.submit(_die_while_answering)
    async with asyncio.timeout(60):
        assert_numbers(await read(pool))


async def test_nobody_waits_beyond_a_deadline_or_for_nobody(pool: JsonWorkerPool) -> None:
    (worker,) = pool._workers
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(HttpProblem) as refused:
        await read(pool, within_s=0.05)
    assert refused.value.code == "deadline-passed"
    hung_up = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, hung_up.set)
    with pytest.raises(ClientDisconnected):
        await pool.parse(LONG_JSON, math.inf, hung_up.wait)
    assert pool.n_waiting == 0


async def test_who_waits_behind_a_client_that_hung_up_is_answered_though_the_worker_dies(
    pool: JsonWorkerPool,
) -> None:
    (worker,) = pool._workers
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    hung_up = asyncio.Event()
    leaving = [asyncio.ensure_future(pool.parse(LONG_JSON, math.inf, hung_up.wait)) for _ in range(4)]
    staying = asyncio.ensure_future(read(pool))
    await asyncio.sleep(0.05)
    hung_up.set()
    left = await asyncio.gather(*leaving, return_exceptions=True)
    assert all(isinstance(each, ClientDisconnected) for each in left)
    worker.kill()
    async with asyncio.timeout(60):
        assert_numbers(await staying)


async def test_few_bodies_wait(pool: JsonWorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_workers, "MAX_WAITING", 2)
    found = await asyncio.gather(*(read(pool) for _ in range(4)), return_exceptions=True)
    refused = [each for each in found if isinstance(each, HttpProblem)]
    assert [each.code for each in refused] == ["overloaded"] * 2


def test_the_worker_imports_the_parser_alone() -> None:
    code = "import json, sys, service.api.json_parsing; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"fastapi", "pydantic", "prometheus_client", "torch", "uvicorn"} & set(orjson.loads(done.stdout))
