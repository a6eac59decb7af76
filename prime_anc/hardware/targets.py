"""Requirements of hardware on a control filter, from the data files `target_data/*.toml`.

A file states form, limits, number format and rate, and the public document they are from. `generic` is no particular
device.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from prime_anc.hardware.realise import DEFAULT_SECTIONS, Target
from prime_anc.method.errors import InvalidOption


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
    # Document that states these values.
    source: str
    # Further rates, for each of which the device holds a set of coefficients.
    other_sample_rates_hz: tuple[float, ...] = ()
    # Most taps that the device holds, if `fir`.
    max_taps: int | None = None
    # Most sections that the device holds, if `sos`.
    max_sections: int | None = None
    # Most sections of its feedback controller.
    max_controller_sections: int | None = None
    # `subtracted`, or `added` as in SigmaDSP, whose sections add a1 and a2 times past outputs.
    denominator: str = "subtracted"
    # Kind of file that its tools take (`filter_files`).
    file: str | None = None
    # What is known of the delay from microphone to loudspeaker.
    latency: str = ""


@cache
def targets() -> dict[str, KnownTarget]:
    """Return all targets by name."""
    found = {}
    for file in sorted(files(__package__).joinpath("target_data").iterdir(), key=lambda path: path.name):
        if file.name.endswith(".toml"):
            values = tomllib.loads(file.read_text(encoding="utf-8"))
            values["other_sample_rates_hz"] = tuple(map(float, values.get("other_sample_rates_hz", ())))
            values["sample_rate_hz"] = float(values["sample_rate_hz"])
            found[values["name"]] = KnownTarget(**values)
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


def requested(name: str | None, given: Mapping[str, Any]) -> Target:
    """Return what to realise for a known target, or without one.

    Parameters
    ----------
    name
        Name of a known target.
    given
        Fields of `Target` that replace the known target's or the defaults.

    Raises
    ------
    InvalidOption
        The name does not exist, a value is out of range, or the device holds fewer taps or sections.
    """
    if name is None:
        return Target(**given)
    device = target(name)
    values: dict[str, Any] = {
        "form": device.form,
        "sample_rate_hz": device.sample_rate_hz,
        "number_format": device.number_format,
    }
    if given.get("form", device.form) == "sos":
        values["denominator"] = device.denominator
        values["n_sections"] = min(DEFAULT_SECTIONS, device.max_sections or DEFAULT_SECTIONS)
    found = Target(**(values | dict(given)))
    if found.form == device.form:
        for field, most in (("n_sections", device.max_sections), ("n_taps", device.max_taps)):
            is_used = field == ("n_taps" if found.form == "fir" else "n_sections")
            if is_used and most is not None and (n := getattr(found, field)) > most:
                what = field.removeprefix("n_")
                raise InvalidOption(f"{field}: {name} holds {most} {what}, not {n}", f"target.{field}")
    return found
