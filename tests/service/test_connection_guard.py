"""Designs that are refused by their heads, with an application that would answer everything."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from uvicorn.server import ServerState

from service.admission.admission import MANAGEMENT, Admission, Gate
from service.api.call import Service
from service.connection_guard import LINGER_S, MAX_DROPPED_BYTES, LoadShedder, guarded
from service.engine.types import Refused
from service.settings import Settings
from tests.service.test_server import digest

pytestmark = pytest.mark.anyio


def busy_service(settings: Settings, counted: Counter[tuple[str, int, str]]) -> Service:
    """An engine that has work for 10 s, and makes what is due after that."""

    def reject(due: float) -> None:
        if due < perf_counter() + 10:
            raise Refused("overloaded", "ten seconds of work are queued; retry later", retry_after_s=10.0)

    def count(endpoint: str, method: str, status: int, code: str) -> None:
        counted[endpoint, status, code] += 1

    engine = SimpleNamespace(is_idle=False, readiness=SimpleNamespace(draining=False))
    admission, metrics = Admission(settings, {Gate.DESIGN: reject}), SimpleNamespace(count=count)
    return cast(Service, SimpleNamespace(engine=engine, admission=admission, metrics=metrics))


@asynccontextmanager
async def connected(
    service: Service, settings: Settings, **state: Any
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server in front of an application that answers 200."""
    kind = guarded(settings, lambda problem: None, LoadShedder(service))
    options: dict[str, Any] = {"http": kind, "timeout_keep_alive": 1, "log_config": None}
    config = uvicorn.Config(PlainTextResponse("the application"), **options)
    config.load()
    loop, server_state = asyncio.get_running_loop(), ServerState()
    listener = await loop.create_server(
        lambda: kind(config=config, server_state=server_state, app_state=state), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
    try:
        async with asyncio.timeout(20):
            yield reader, writer
    finally:
        writer.close()
        listener.close()


def request(n_bytes: int, *lines: str, target: str = "/refine?k=1") -> bytes:
    head = [f"POST {target} HTTP/1.1", "Host: x", f"Content-Length: {n_bytes}", *lines]
    return "\r\n".join([*head, "", ""]).encode() + bytes(n_bytes)


async def status(reader: asyncio.StreamReader) -> int:
    """Of the next answer, which is read whole."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
    fields = dict(line.split(b": ", 1) for line in head[1:-2])
    await reader.readexactly(int(fields[b"content-length"]))
    found = int(head[0].split()[1])
    assert (fields.get(b"retry-after") == b"10") == (found == 503)
    return found


async def test_what_is_refused_by_its_head_keeps_its_connection_and_leaves_no_body() -> None:
    settings, counted = Settings(), Counter[tuple[str, int, str]]()
    with_time = request(50_000, "X-Deadline-Ms: 60000")
    async with connected(busy_service(settings, counted), settings) as (reader, writer):
        writer.write(request(50_000) + request(0) + with_time)
        assert [await status(reader) for _ in range(3)] == [503, 503, 200]
        writer.write(request(50_000)[:90])
        assert await status(reader) == 503
        writer.write(request(50_000)[90:] + request(3) + request(3, target="/calibrate"))
        assert [await status(reader) for _ in range(2)] == [503, 200]
        assert await reader.read() == b""  # closed where nothing more comes, as after any answer
    assert counted == {("/refine", 503, "overloaded"): 4}


async def test_a_long_body_is_not_waited_for() -> None:
    settings = Settings()
    async with connected(busy_service(settings, Counter()), settings) as (reader, writer):
        began = asyncio.get_running_loop().time()
        writer.write(request(MAX_DROPPED_BYTES + 1)[:200])
        assert await status(reader) == 503
        assert await reader.read() == b""
        assert asyncio.get_running_loop().time() - began < LINGER_S + 5


@pytest.mark.parametrize(
    "lines",
    [
        ["Expect: 100-continue"],
        ["Connection: close"],
        ["X-Deadline-Ms: soon"],
        ["X-Deadline-Ms: 1", "X-Deadline-Ms: 1"],
        ["Authorization: Bearer other"],
    ],
)
async def test_all_but_load_is_left_to_the_application(lines: list[str]) -> None:
    settings, counted = Settings(api_keys=[digest("first")]), Counter[tuple[str, int, str]]()
    key = [] if lines[0].startswith("Authorization") else ["Authorization: Bearer first"]
    async with connected(busy_service(settings, counted), settings) as (reader, writer):
        writer.write(request(3, *lines, *key))
        found = await reader.readuntil(b"\r\n\r\n")
        assert found.startswith((b"HTTP/1.1 200", b"HTTP/1.1 100"))
    assert not counted


async def test_the_operator_is_not_refused_for_load() -> None:
    settings = Settings()
    async with connected(busy_service(settings, Counter()), settings, **{MANAGEMENT: True}) as (reader, writer):
        writer.write(request(3))
        assert await status(reader) == 200
