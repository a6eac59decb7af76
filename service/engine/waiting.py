"""End work that is no longer awaited."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from prime_anc.method.errors import Interrupted
from service.engine.types import ClientDisconnected, Disconnected

# Expected wait (s) above which work is refused, however late its deadline: requests with much time left must not fill
# the queue for requests whose body took long to read. One piece of work per worker may always wait.
LONGEST_WAIT_S = 0.5

# Time after its deadline in which running work may notice it; then the request is answered without it.
GRACE_S = 0.25


@dataclass(eq=False, kw_only=True)
class Awaited:
    """Work that is awaited until `due` (`perf_counter`, s), unless it is abandoned."""

    due: float = math.inf
    is_abandoned: bool = False


def raise_if_unwanted(works: Iterable[Awaited]) -> None:
    """Raise Interrupted if all of these are abandoned or past their deadline."""
    now = perf_counter()
    if all(work.is_abandoned or work.due <= now for work in works):
        raise Interrupted(
            "the deadline passed before the work was done; allow more time, or ask for less: fewer conditions, "
            "no leave_one_out, fewer sections"
        )


async def done_in_time(answer: asyncio.Future[Any], due: float, disconnected: Disconnected | None) -> bool:
    """Return whether `answer` is done by `due` (perf_counter, s); ClientDisconnected if the client hangs up before.

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
