"""Wait for a result until its deadline, or until nobody waits any more."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

# Gives an awaitable that returns when the client has disconnected.
Disconnected = Callable[[], Awaitable[object]]


class ClientGone(Exception):
    """The client disconnected while its work was waiting."""


async def done_in_time(answer: asyncio.Future[Any], due: float, disconnected: Disconnected | None) -> bool:
    """Return whether `answer` is done by `due` (perf_counter, s); ClientGone if the client hangs up before.

    `answer` is neither cancelled nor read.
    """
    watch = None if disconnected is None else asyncio.ensure_future(disconnected())
    timeout = None if math.isinf(due) else max(due - perf_counter(), 0.0)
    try:
        both = [answer] if watch is None else [answer, watch]
        await asyncio.wait(both, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if watch is not None and watch.done() and not answer.done():
            raise ClientGone
        return answer.done()
    finally:
        if watch is not None:
            watch.cancel()
