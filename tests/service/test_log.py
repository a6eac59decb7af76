"""Tracebacks in the log are limited in number."""

import logging

from service.log import PER_S, TracebackLimit


def record() -> logging.LogRecord:
    """The log record of a failure."""
    fault = ValueError("wrong")
    return logging.LogRecord("service", logging.ERROR, "", 1, "%s", ("failed",), (ValueError, fault, None))


def test_tracebacks_are_limited_per_minute() -> None:
    now = [0.0]
    limit = TracebackLimit(2, lambda: now[0])
    records = [record() for _ in range(4)]
    assert all(map(limit.filter, records))
    assert [item.exc_info is not None for item in records] == [True, True, False, False]
    assert records[3].getMessage().startswith("failed (traceback left out")
    now[0] = PER_S
    later = record()
    assert limit.filter(later)
    assert later.exc_info is not None
