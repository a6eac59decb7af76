"""The log as lines of JSON."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import orjson


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
