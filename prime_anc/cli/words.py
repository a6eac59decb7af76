"""Texts of the service in words of the command: flags and files instead of fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from prime_anc.cli.flags import flag_of
from prime_anc.options import controller_schemas, option_schemas

_OTHERS = {
    "X-Deadline-Ms": "--deadline-ms",
    "GET /models": "`prime-anc models`",
    "Authorization: Bearer with a key": "--key with a key",
    "send these as conditions with stability_only": "give these with --stability-only",
    "send that of this filter and ear, or none": "give the file of the filter that runs",
    "the takes `off` and `on`": "--off and --on",
    "take with drive": "recording with --drive",
    "takes:": "the recordings:",
    "set target.form to sos": "give --sections",
    "send the factor that stood in place of the control filter": "give with --gain the factor to the loudspeaker",
    "takes with a gain": "recordings with --gain",
    "between the takes": "between the recordings",
    "`feedback` in the request": "the feedback path",
    "`feedback`": "the feedback path",
    "`controller`": "controller",
    "`prediction`": "the prediction",
    "`fir`": "the filter",
    "`sign`": "--sign",
    "n_sections:": "--sections:",
    "n_taps:": "--taps:",
    "number_format:": "--format:",
    "sample_rate:": "--rate:",
    "target:": "--target:",
}


@cache
def _of_controllers() -> dict[str, str]:
    return {f"controller: {name}:": f"--controller-{name.replace('_', '-')}:" for name in controller_schemas()}


@cache
def _pattern() -> re.Pattern[str]:
    names = sorted((name for name in option_schemas() if "_" in name), key=len, reverse=True)
    others = [rf"(?<![\w.-]){re.escape(text)}" for text in _of_controllers() | _OTHERS]
    return re.compile("|".join(others + [rf"(?<![\w.-]){name}\b" for name in names]))


def for_command(text: str, takes: Sequence[Path] = ()) -> str:
    """Replace fields by flags, addresses by commands, places of takes by their files, and of conditions by names."""
    for n, file in reversed(list(enumerate(takes))):
        text = text.replace(f"takes.{n}", str(file))
    text = re.sub(r"\bconditions\.\d+ \(([^)]+)\)", r"\1", text)
    text = re.sub(r"\bconditions\.(\d+)", lambda found: f"measurement {int(found[1]) + 1}", text)
    words = _of_controllers() | _OTHERS
    return _pattern().sub(lambda found: words.get(found[0]) or flag_of(found[0]), text)
