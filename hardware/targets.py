"""What hardware asks of a control filter, from the data files beside this module (`target_data/*.toml`).

A file states form, limits, number format and rate, each with the public document that it was read from. `generic`
is no particular device.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from synthesis.errors import InvalidOption


@dataclass(frozen=True)
class KnownTarget:
    """form: `fir` or `sos`. n_taps or n_sections: default; max_: what the device holds. sample_rate_hz: of the
    filter's own clock. number_format: of coefficients. denominator: whether the device's sections subtract a1 and a2
    times past outputs or, as SigmaDSP's do, add them. source: where the numbers are written."""

    name: str
    title: str
    form: str
    sample_rate_hz: float
    number_format: str
    max_taps: int | None
    max_sections: int | None
    denominator: str
    source: str


@cache
def targets() -> dict[str, KnownTarget]:
    """All targets by name."""
    found = {}
    for file in sorted(files(__package__).joinpath("target_data").iterdir(), key=lambda path: path.name):
        if file.name.endswith(".toml"):
            values = tomllib.loads(file.read_text(encoding="utf-8"))
            found[values["name"]] = KnownTarget(
                name=values["name"],
                title=values["title"],
                form=values["form"],
                sample_rate_hz=float(values["sample_rate_hz"]),
                number_format=values["number_format"],
                max_taps=values.get("max_taps"),
                max_sections=values.get("max_sections"),
                denominator=values.get("denominator", "subtracted"),
                source=values["source"],
            )
    return found


def target(name: str) -> KnownTarget:
    """Raises InvalidOption for a name that does not exist."""
    try:
        return targets()[name]
    except KeyError:
        known = ", ".join(targets())
        raise InvalidOption(f"target: {name!r} does not exist; use one of {known}", "target.name") from None
