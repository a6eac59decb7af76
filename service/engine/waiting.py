"""Waiting no longer than somebody waits for the answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

from service.engine.types import ClientDisconnected, Disconnected
from synthesis.errors import Interrupted

# Expected wait above which work is refused, however late its deadline: who comes with most of the time left must
# not fill a queue in which others, whose body took long to read, would be too late. One piece of work may wait for
# each worker, however long the work before it is expected to take.
LONGEST_WAIT_S = 0.5

# Time after its deadline in which work that has begun may notice it; then the request is answered without it.
GRACE_S = 0.25


class Awaited(Protocol):
    """Work that somebody waits for until `due` (`perf_counter`, seconds), unless it is abandoned."""

    due: float
    is_abandoned: bool


@dataclass(eq=False)
class Budget:
    """Work of one request, as `Awaited`."""

    due: float = math.inf
    is_abandoned: bool = False


def raise_if_unwanted(works: Iterable[Awaited]) -> None:
    """Raise Interrupted if each of these is abandoned or past its deadline."""
    now = perf_counter()
    if all(each.is_abandoned or each.due <= now for each in works):
        raise Interrupted(
            "the deadline passed before the work was done; allow more time, or ask for less: fewer conditions, "
            "no leave_one_out, fewer sections"
        )


async def done_in_time(answer: asyncio.Future[Any], due: float, disconnected: Disconnected | None) -> bool:
    """Whether `answer` is done by `due` (perf_counter, seconds); ClientDisconnected if the client hangs up before.

    `answer` is neither cancelled nor read.
    """
    watch = None if disconnected is None else asyncio.ensure_future(disconnected())
    timeout = None if math.isinf(due) else max(due - perf_counter(), 0.0)
    try:
        both = [answer] if watch is None else [answer, watch]
        await asyncio.wait(both, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if watch is not None and watch.done() and not answer.done():
            raise ClientDisconnected
        return answer.done()
    finally:
        if watch is not None:
            watch.cancel()
