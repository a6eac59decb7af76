"""The log: as lines of JSON, and with a limit on tracebacks, which a client might otherwise fill it with."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic

import orjson

# Time in which a number of tracebacks may be written.
PER_S = 60.0


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time, level, logger, message and, if any, `access` and error."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, "access", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


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
