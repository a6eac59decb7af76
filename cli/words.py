"""Texts of the service in words of the command: flags and files instead of fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from cli.flags import flag_of
from synthesis.options import option_schemas

_OTHERS = {"GET /models": "`prime-anc models`", "Authorization: Bearer with a key": "--key with a key"}


@cache
def _pattern() -> re.Pattern[str]:
    names = sorted((name for name in option_schemas() if "_" in name), key=len, reverse=True)
    return re.compile("|".join([rf"(?<![\w.-]){name}\b" for name in names] + [re.escape(text) for text in _OTHERS]))


def for_command(text: str, takes: Sequence[Path] = ()) -> str:
    """Replace names of options by flags, addresses by commands, and places of takes by their files."""
    for n, file in reversed(list(enumerate(takes))):
        text = text.replace(f"takes.{n}", str(file))
    return _pattern().sub(lambda found: _OTHERS.get(found[0]) or flag_of(found[0]), text)
