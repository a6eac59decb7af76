"""Long JSON in a process of its own: the same outcome, nothing of it in the event loop, a dead one replaced."""

import asyncio
import os
import pickle
import pickletools
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator
from time import perf_counter
from typing import Any

import httpx
import numpy as np
import orjson
import pytest
from fastapi import FastAPI

from service.app import create_app
from service.designs import Ear
from service.errors import Problem
from service.formats import json_numbers, side_lane, wire
from service.formats.side_lane import SideLane
from service.settings import Settings
from tests.service.bodies import as_lists, as_responses
from tests.service.conftest import connected
from tests.service.http.test_problems import assert_problem

pytestmark = pytest.mark.anyio

JSON_BODY = {"Content-Type": "application/json"}
LONG_BODY = orjson.dumps({"x": list(range(30_000))})


@pytest.fixture
async def lane() -> AsyncIterator[SideLane]:
    """With one process."""
    lane = SideLane(1)
    lane.start()
    yield lane
    await lane.close()


def processes(lane: SideLane) -> list[int]:
    """Their ids."""
    assert lane._pool is not None
    return list(lane._pool._processes)


def refuse(*_: object) -> None:
    """In place of what this process should leave to another."""
    pytest.fail("read in the event loop")


async def test_long_bodies_go_to_a_process_and_short_ones_do_not(
    lane: SideLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = json_numbers.load(LONG_BODY)
    found: Any = await lane.load(bytearray(LONG_BODY))
    assert np.array_equal(found["x"].values, expected["x"].values)  # type: ignore[index]
    monkeypatch.setattr(side_lane.SideLane, "_run", refuse)
    assert await lane.load(b"[1]") == [1]
    assert await lane.dump([[1]]) == [b"[1]"]
    with pytest.raises(pytest.fail.Exception):
        await lane.load(LONG_BODY)
    with pytest.raises(pytest.fail.Exception):
        await lane.dump([[1]] * 16)


async def test_many_answers_are_written_there_too(lane: SideLane) -> None:
    documents = [{"x": np.full(2048, number, np.float32), "n": np.float32(number)} for number in range(16)]
    assert await lane.dump(documents) == json_numbers.dump(documents)


async def test_the_loop_goes_on_while_a_body_is_read(lane: SideLane) -> None:
    """The long body is begun first and is done last; in the event loop it would be the other way round."""
    await lane.load(LONG_BODY)  # the process has started
    body = orjson.dumps({"x": list(range(1_000_000))})
    done: list[str] = []

    async def read(name: str, content: bytes) -> None:
        await lane.load(content)
        done.append(name)

    await asyncio.gather(read("long", body), *(read("short", b"[1]") for _ in range(100)))
    assert done == ["short"] * 100 + ["long"]


async def test_a_long_body_is_copied_in_portions_and_not_in_the_loop(
    lane: SideLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of all of it at once would hold the lock, and so the loop, whichever thread makes it."""
    body, handed_over = bytearray(os.urandom(20_000_000)), []

    async def done(_: SideLane, __: object, given: object) -> tuple[object, float]:
        handed_over.append(given)
        return None, 1.0

    monkeypatch.setattr(SideLane, "_done", done)
    tracemalloc.start()
    await lane.load(body)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < len(body) / 10
    pickled = pickle.dumps(handed_over[0])
    assert pickle.loads(pickled) == body
    portions = [part for _, part, _ in pickletools.genops(pickled) if isinstance(part, bytes)]
    assert max(map(len, portions)) <= side_lane.PORTION


async def test_without_processes_the_loop_reads_everything() -> None:
    lane = SideLane(0)
    lane.start()
    found: Any = await lane.load(LONG_BODY)
    assert len(found["x"]) == 30_000
    await lane.close()


@pytest.mark.parametrize("body", [b"[" + b"1," * 50_000, b"[" * 100_000, b"[" * 20 + b" " * 99_999 + b"]" * 20])
async def test_a_refusal_is_the_same_on_both_ways(lane: SideLane, body: bytes) -> None:
    refused = []
    for each in (lane, SideLane(0)):
        with pytest.raises(Problem) as problem:
            await each.load(body)
        refused.append(problem.value.document())
    assert refused[0] == refused[1]


async def test_a_process_that_died_is_replaced_and_the_body_read_again(lane: SideLane) -> None:
    await lane.load(LONG_BODY)
    (first,) = processes(lane)
    reading = [asyncio.ensure_future(lane.load(LONG_BODY)) for _ in range(8)]
    os.kill(first, signal.SIGKILL)
    found: list[Any] = await asyncio.gather(*reading)
    assert [len(each["x"]) for each in found] == [30_000] * 8
    os.kill(processes(lane)[0], signal.SIGKILL)  # while it waits
    assert len((await lane.load(LONG_BODY))["x"]) == 30_000  # type: ignore[index]
    assert first not in processes(lane)


async def test_too_many_bodies_are_shed(lane: SideLane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_lane, "MAX_WAITING", 2)
    found = await asyncio.gather(*(lane.load(LONG_BODY) for _ in range(5)), return_exceptions=True)
    refused = [each for each in found if isinstance(each, Problem)]
    assert [each.code for each in refused] == ["overloaded"] * 3
    assert len((await lane.load(LONG_BODY))["x"]) == 30_000  # type: ignore[index]


async def test_what_cannot_be_read_in_time_is_shed_at_once(lane: SideLane) -> None:
    await lane.load(LONG_BODY)  # now it knows how long a byte takes
    longer = asyncio.create_task(lane.load(orjson.dumps({"x": list(range(1_000_000))})))
    await asyncio.sleep(0)
    with pytest.raises(Problem) as problem:
        await lane.load(LONG_BODY, perf_counter() + 1e-3)
    assert not longer.done()
    assert problem.value.code == "overloaded"
    assert problem.value.headers is not None
    assert int(problem.value.headers["Retry-After"]) >= 1
    assert len((await lane.load(LONG_BODY, perf_counter() + 100))["x"]) == 30_000  # type: ignore[index]
    await longer


async def test_what_is_not_read_in_time_is_given_up(lane: SideLane) -> None:
    """An idle lane tries, whatever it expects: or one bad moment could keep long bodies out for good."""
    for _ in range(2):
        with pytest.raises(Problem) as problem:
            await lane.load(LONG_BODY, perf_counter())
        assert problem.value.code == "deadline-passed"
        assert len((await lane.load(LONG_BODY))["x"]) == 30_000  # type: ignore[index]


async def test_a_process_does_not_outlive_the_service() -> None:
    """Not even one that is killed."""
    code = (
        "import asyncio, sys; from service.formats.side_lane import SideLane\n"
        "async def main():\n"
        "    lane = SideLane(1); lane.start()\n"
        "    await lane.load(b'[' + b'1,' * 50_000 + b'1]')\n"
        "    print(*lane._pool._processes, flush=True); sys.stdin.read()\n"
        "if __name__ == '__main__': asyncio.run(main())"
    )
    service = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert service.stdout is not None
    assert service.stdin is not None
    process = int(service.stdout.readline())
    service.kill()
    service.wait()
    service.stdout.close()
    service.stdin.close()
    given_up = time.monotonic() + 20
    while time.monotonic() < given_up:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        await asyncio.sleep(0.02)
    pytest.fail("the process lives on")


def test_a_process_imports_no_pytorch() -> None:
    code = (
        "import sys; import service.formats.json_numbers, service.formats.side_process; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.fixture(scope="module")
async def both(settings: Settings, anyio_backend: str) -> AsyncIterator[list[FastAPI]]:
    """Two services: one with the side lane, one without."""
    apps = [create_app(settings.model_copy(update={"json_processes": n})) for n in (1, 0)]
    async with apps[0].router.lifespan_context(apps[0]), apps[1].router.lifespan_context(apps[1]):
        for app in apps:
            await app.state.service.engine.started()
        yield apps


async def ask_both(apps: list[FastAPI], path: str, content: bytes) -> list[httpx.Response]:
    answers = []
    for app in apps:
        async with connected(app) as client:
            answers.append(await client.post(path, content=content, headers=JSON_BODY))
    return answers


async def test_designs_are_the_same_on_both_ways(both: list[FastAPI], ear: Ear) -> None:
    assert ear.coherence is not None
    request = as_lists(ear, coherence=ear.coherence.tolist(), reference_psd=[1e-9] * 16_385)
    for body in (request, {"items": [request, request]}, {"items": [as_responses(ear)] * 16}):
        content = orjson.dumps(body)
        assert len(content) > side_lane.SMALL_BYTES
        beside, within = (answer.json() for answer in await ask_both(both, "/refine?k=1", content))
        for one, other in zip(beside.get("items", [beside]), within.get("items", [within]), strict=True):
            assert one["fir"] == other["fir"]
            assert one["prediction"] == other["prediction"]


@pytest.mark.parametrize(
    "change",
    [
        {"primary": {"impulse_response": [0.5] * 9000 + [True]}},
        {"primary": {"impulse_response": [[0.5, 1.0]] * 9000}},
        {"primary": {"real": [0.5] * 9000, "imag": [0.5] * 9001}},
        {"primary": {"real": [0.5] * 9000, "imag": [1e39] * 9000}},
        {"primary": [0.5] * 9000},
        {"primary": {"impulse_response": [0.5] * 40_000}},
        {"coherence": [0.5] * 9000},
        {"coherence": "0.5" * 9000},
        {"reference_psd": ["x"] * 16_385},
        {"model": list(range(9000))},
        {"colour": list(range(9000))},
        {"max_gain_db": {"a": list(range(9000))}},
        {"items": list(range(9000))},
        {str(number): 0 for number in range(9000)},
    ],
)
async def test_problems_are_the_same_on_both_ways(both: list[FastAPI], ear: Ear, change: dict[str, Any]) -> None:
    content = orjson.dumps(as_responses(ear) | {"sample_rate": 48_000} | change) + b" " * side_lane.SMALL_BYTES
    beside, within = await ask_both(both, "/refine", content)
    assert beside.status_code == within.status_code == 422
    assert beside.json() == within.json()
    assert_problem(beside, beside.json()["type"].rsplit(":")[-1], beside.json().get("field"))


async def test_binary_bodies_never_go_there(both: list[FastAPI], ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_lane.SideLane, "_run", refuse)
    paths = (np.fft.rfft(each, 32_768).astype(np.complex64) for each in (ear.primary, ear.secondary))
    async with connected(both[0]) as client:
        headers = {"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"}
        answer = await client.post("/synthesize", content=wire.encode(*paths), headers=headers)
    assert answer.status_code == 200
