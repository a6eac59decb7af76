"""Names of models and references to them.

A *name* matches ``[a-z0-9][a-z0-9_-]{0,63}``: it names a folder, so it has no separator, no dot and no capital letter
(names that differ only in case would collide on some file systems). A *reference* is a name or an alias (the latest
version), or ``name@version``.
"""

import re
from typing import NamedTuple

from model_store.errors import InvalidName

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_VERSION = re.compile(r"[1-9][0-9]{0,8}")
MAX_VERSION = 999_999_999


class Reference(NamedTuple):
    """A parsed reference; `version` is None for the latest."""

    name: str
    version: int | None

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name}@{self.version}"


def is_name(text: str) -> bool:
    """Return whether `text` is a valid name."""
    return _NAME.fullmatch(text) is not None


def check_name(text: str) -> str:
    """Return `text` if it is a name, else raise InvalidName."""
    if not is_name(text):
        raise InvalidName(f"model name: found {_shown(text)}, expected [a-z0-9][a-z0-9_-]{{0,63}}")
    return text


def version_of(text: str) -> int | None:
    """Return the version of a folder's name: 1 to 999999999 without leading zeros, else None."""
    return int(text) if _VERSION.fullmatch(text) else None


def parse_reference(text: str) -> Reference:
    """Split ``name`` or ``name@version``; raises InvalidName."""
    name, separator, version = text.partition("@")
    check_name(name)
    number = version_of(version)
    if separator and number is None:
        raise InvalidName(
            f"model version: found {_shown(version)}, expected a whole number from 1 to {MAX_VERSION}"
        )
    return Reference(name, number)


def _shown(text: str) -> str:
    """Format a text of a request for a message: printable, quoted and at most 80 characters."""
    return ascii(text if len(text) <= 80 else text[:80] + "...")
