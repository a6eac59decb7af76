"""Texts of the service in words of the command: flags instead of fields."""

from __future__ import annotations

import re
from functools import cache

from cli.flags import flag_of
from synthesis.options import option_schemas

_OTHERS = {"GET /models": "`prime-anc models`", "Authorization: Bearer with a key": "--key with a key"}


@cache
def _pattern() -> re.Pattern[str]:
    names = sorted((name for name in option_schemas() if "_" in name), key=len, reverse=True)
    return re.compile("|".join([rf"(?<![\w.-]){name}\b" for name in names] + [re.escape(text) for text in _OTHERS]))


def for_command(text: str) -> str:
    """Replace names of options by flags, and addresses by commands."""
    return _pattern().sub(lambda found: _OTHERS.get(found[0]) or flag_of(found[0]), text)
