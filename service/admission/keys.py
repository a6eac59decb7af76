"""API keys: only their SHA-256 digests are known, from the settings and from a file that may change at any time."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic

from starlette.requests import Request

from service.errors import Problem

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""How soon a change of the file is noticed."""

_LINE = re.compile(r"[^:#\s][^:]*:([0-9a-f]{64})")
_Stamp = tuple[int, int, int]


class Keys:
    """The keys of one kind of caller.

    The file has a line `name:sha256` for each key, the digest in hexadecimal; empty lines and lines that start with
    `#` are passed over. The names are the operator's own notes. While the file cannot be read the keys are those
    that were last read.
    """

    def __init__(self, digests: Iterable[str], file: Path | None, clock: Callable[[], float] = monotonic) -> None:
        """Raises ValueError for a file that cannot be read or has another line."""
        self._given = frozenset(digests)
        self._file = file
        self._clock = clock
        self._looked = clock()
        self._stamp = self._stamped()
        self._digests = self._given | (_read(file) if file else frozenset())

    @property
    def are_asked_for(self) -> bool:
        """Whether there is a setting for these keys; with an empty file nobody has one."""
        return bool(self._given) or self._file is not None

    def holder(self, request: Request) -> str | None:
        """The digest of the known key in `Authorization: Bearer`; None where no keys are asked for.

        Raises Problem (`unauthorised`). Only digests are kept and compared, so neither memory nor the time that
        this takes tells a key.
        """
        if not self.are_asked_for:
            return None
        self._look()
        # Several headers are read as one (RFC 9110, 5.3), which is no key.
        scheme, _, key = ",".join(request.headers.getlist("authorization")).partition(" ")
        # Headers are decoded as Latin-1: this gives back the bytes that were sent, which the digest is of.
        digest = hashlib.sha256(key.strip(" \t").encode("latin-1")).hexdigest()
        if scheme.lower() == "bearer" and digest in self._digests:
            return digest
        found = "an unknown key" if scheme else "no key"
        raise Problem(
            "unauthorised",
            f"found {found}, expected Authorization: Bearer with a known one",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def _look(self) -> None:
        """Read the file again if it has changed."""
        now = self._clock()
        if self._file is None or now < self._looked + LOOK_EVERY_S:
            return
        self._looked = now
        stamp = self._stamped()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._digests = self._given | _read(self._file)
        except ValueError as error:
            logger.error("%s; the keys remain those that were read before", error)
        else:
            logger.info("Keys read again: %d", len(self._digests))

    def _stamped(self) -> _Stamp | None:
        """What changes when the file does."""
        try:
            status = self._file.stat() if self._file else None
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size, status.st_ino) if status else None


def _read(file: Path) -> frozenset[str]:
    """The digests in a file of keys; ValueError where it cannot be read or has another line."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"keys: found {file} unreadable ({error}), expected a text file") from error
    digests = set()
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        if not (found := _LINE.fullmatch(line)):
            raise ValueError(f"keys: found line {number} of {file} unreadable, expected name:sha256")
        digests.add(found.group(1))
    return frozenset(digests)
