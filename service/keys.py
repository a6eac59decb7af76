"""API keys, known only by their SHA-256 digests, from a file that may change at any time."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from starlette.datastructures import Headers

from service.errors import HttpProblem

logger = logging.getLogger(__name__)

# Interval (s) of checks for a change of the file.
LOOK_EVERY_S = 1.0

# A hundred thousand keys and their names.
MAX_FILE_BYTES = 2**24

_LINE = re.compile(r"([^:#\s][^:]*):([0-9a-f]{64})")


class Keys:
    """Keys of one kind of client.

    A line of the file is `name:sha256`, the digest in hexadecimal; empty lines and lines that start with `#` are
    skipped, later also malformed ones, so that none of these keeps a removed key valid. Names appear in metrics and the
    access log. While the file cannot be read, or is empty without a comment, the keys read last remain valid.
    """

    def __init__(self, file: Path | None, clock: Callable[[], float] = monotonic) -> None:
        """Read the keys; ValueError for an unreadable file or a malformed line."""
        self._file = file
        # Whether these keys are set up; with an empty file there are none.
        self.are_required = file is not None
        self._clock = clock
        self._looked_at = clock()
        self._stamp = self._file_stamp()
        self._names = _read(file) if file else {}

    def require(self, headers: Headers) -> str:
        """Return the key's name in the file, after checking the key in `Authorization: Bearer`, if `are_required`.

        Only digests are kept and compared, so that neither memory nor timing reveals a key.

        Raises
        ------
        HttpProblem
            `unauthorised`.
        """
        self._reload_if_changed()
        # Several headers are read as one (RFC 9110, 5.3), which is no key.
        scheme, _, key = ",".join(headers.getlist("authorization")).partition(" ")
        # Headers are decoded as Latin-1; this restores the bytes, whose digest is compared.
        digest = hashlib.sha256(key.strip(" \t").encode("latin-1")).hexdigest()
        if scheme.lower() == "bearer" and (name := self._names.get(digest)) is not None:
            return name
        wrong = "the key is not known here" if scheme else "the request has no key"
        raise HttpProblem(
            "unauthorised",
            f"{wrong}; send Authorization: Bearer with a key that the operator gave you for this",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def _reload_if_changed(self) -> None:
        now = self._clock()
        if self._file is None or now < self._looked_at + LOOK_EVERY_S:
            return
        self._looked_at = now
        stamp = self._file_stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._names = _read(self._file, is_start=False)
        except ValueError as error:
            logger.error("%s; the keys that were read before remain valid", error)
        else:
            logger.info("Keys read again: %d", len(self._names))

    def _file_stamp(self) -> tuple[int, int, int] | None:
        """Return values that change with the file."""
        try:
            status = self._file.stat() if self._file else None
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size, status.st_ino) if status else None


def _read(file: Path, is_start: bool = True) -> dict[str, str]:
    """Read a file's names by digest; ValueError if it is unreadable, at the start also for a malformed line."""
    names = {}
    text = _text(file)
    # A file that is being rewritten is empty for a moment.
    if not (is_start or text.strip() or file == Path(os.devnull)):
        raise ValueError(f"keys: {file} is empty; write a line that starts with # if there are to be no keys")
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if not line or line.startswith("#"):
            continue
        if found := _LINE.fullmatch(line):
            names[found.group(2)] = found.group(1).strip()
            continue
        fault = f"keys: line {number} of {file} is malformed; write name:sha256"
        if is_start:
            raise ValueError(fault)
        logger.error("%s; it is ignored, and the other lines count", fault)
    return names


def _text(file: Path) -> str:
    """Return a regular file's text; none for the null device, so that keys are required and unknown.

    The event loop reads it, so nothing that could block is opened: a FIFO waits for a writer, and other devices may
    never end.
    """
    if file == Path(os.devnull):
        return ""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as opened:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
                raise ValueError(f"keys: {file} is not a regular file of at most {MAX_FILE_BYTES} bytes")
            return opened.read(MAX_FILE_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"keys: {file} cannot be read as text: {error}") from error
