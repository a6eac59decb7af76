"""Until when an answer is worth something, and the refusal of what cannot be answered by then."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import perf_counter

from starlette.requests import ClientDisconnect, Request

from service.errors import Problem, retry_after
from service.settings import MAX_DEADLINE_MS, MIN_DEADLINE_MS

DEADLINE = "X-Deadline-Ms"

Gone = Callable[[], Awaitable[object]]
"""Returns when nobody waits for the answer any more."""

_DECIMAL = re.compile(r"[0-9]{1,6}(\.[0-9]{1,40})?")  # with as many places as a float's shortest text


def deadline_s(request: Request, default_ms: float) -> float:
    """Seconds from its receipt within which a request is to be answered: `X-Deadline-Ms`, or the default."""
    given = request.headers.getlist(DEADLINE)
    if not given:
        return default_ms / 1e3
    if len(given) > 1:
        raise Problem("invalid-field", f"{DEADLINE}: found it {len(given)} times, expected it once", DEADLINE)
    value = float(given[0]) if _DECIMAL.fullmatch(given[0]) else -1.0
    if not MIN_DEADLINE_MS <= value <= MAX_DEADLINE_MS:
        raise Problem(
            "out-of-range",
            f"{DEADLINE}: found {given[0][:40]!a}, expected {MIN_DEADLINE_MS:g} to {MAX_DEADLINE_MS:g} ms",
            DEADLINE,
        )
    return value / 1e3


def shed(work: str, before_s: float, own_s: float, due: float, share: float = 1.0) -> Problem:
    """The refusal of a request whose deadline cannot be met; to come back when the work of now is done.

    share: of the time that is left, what may be planned.
    """
    left_ms = max(1e3 * (due - perf_counter()), 0.0)
    part = "" if share == 1 else f"{share:.0%} of "
    return Problem(
        "overloaded",
        f"found {1e3 * before_s:.0f} ms of {work} before this one and {1e3 * own_s:.0f} ms of its own, expected at "
        f"most {part}the {left_ms:.0f} ms left of its deadline",
        headers=retry_after(before_s),
    )


@asynccontextmanager
async def waiting(work: str, due: float, come_back_s: float, gone: Gone | None = None) -> AsyncIterator[None]:
    """Await something of this `work` inside: it is given up at `due`, Problem `deadline-passed`, and as soon as the
    client has gone, ClientDisconnect."""
    began = perf_counter()
    has_gone = False

    async def watch(gone: Gone, limit: asyncio.Timeout) -> None:
        nonlocal has_gone
        await gone()
        has_gone = True
        limit.reschedule(asyncio.get_running_loop().time())

    try:
        async with asyncio.timeout(None if math.isinf(due) else due - began) as limit:
            watching = asyncio.ensure_future(watch(gone, limit)) if gone is not None else None
            try:
                yield
            finally:
                if watching is not None:
                    watching.cancel()
    except TimeoutError:
        if not limit.expired():
            raise
        if has_gone:
            raise ClientDisconnect from None
        waited_ms = 1e3 * (perf_counter() - began)
        raise Problem(
            "deadline-passed",
            f"found the deadline past after {waited_ms:.0f} ms of waiting for {work}, expected it done before",
            headers=retry_after(come_back_s),
        ) from None
