"""Requirements of hardware on a control filter, from the data files `target_data/*.toml`.

A file states form, limits, number format and rate, and the public document they are from. `generic` is no particular
device.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from synthesis.errors import InvalidOption


@dataclass(frozen=True)
class KnownTarget:
    """A device that runs control filters."""

    name: str
    title: str
    # `fir` or `sos`.
    form: str
    # Rate of the filter.
    sample_rate_hz: float
    # Format of the coefficients.
    number_format: str
    # Most taps that the device holds, if `fir`.
    max_taps: int | None
    # Most sections that the device holds, if `sos`.
    max_sections: int | None
    # `subtracted`, or `added` as in SigmaDSP, whose sections add a1 and a2 times past outputs.
    denominator: str
    # Document that states these values.
    source: str


@cache
def targets() -> dict[str, KnownTarget]:
    """Return all targets by name."""
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
    """Return a target by name.

    Raises
    ------
    InvalidOption
        The name does not exist.
    """
    try:
        return targets()[name]
    except KeyError:
        known = ", ".join(targets())
        raise InvalidOption(f"target: {name!r} does not exist; use one of {known}", "target.name") from None
