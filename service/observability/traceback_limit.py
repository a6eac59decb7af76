"""Limit tracebacks in the log, which a client might otherwise fill."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from time import monotonic

PER_S = 60.0


class TracebackLimit(logging.Filter):
    """Writes a few tracebacks per minute; further records keep only their message."""

    def __init__(self, n: int = 10, clock: Callable[[], float] = monotonic) -> None:
        """Allow n tracebacks in PER_S seconds."""
        super().__init__()
        self._written: deque[float] = deque(maxlen=n)
        self._clock = clock

    def filter(self, record: logging.LogRecord) -> bool:
        """Remove the traceback from a record beyond the limit; the record itself is always written."""
        if record.exc_info:
            now = self._clock()
            if len(self._written) == self._written.maxlen and now - self._written[0] < PER_S:
                record.exc_info = record.exc_text = None
                record.msg = f"{record.msg} (traceback left out: {len(self._written)} others within {PER_S:g} s)"
            else:
                self._written.append(now)
        return True
