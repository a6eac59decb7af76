"""Levels, phases and frequencies of a table's columns in the units that their names state."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.files.errors import FileError
from prime_anc.measure.files.vocabulary import quantity, unit

Float64 = NDArray[np.float64]

# Higher than any level in air, dB re 20 micropascals.
_LARGEST_LEVEL_DB = 200.0
# Words by which a column is not the quantity itself.
_ALTERED = {
    "": r"conj|negat|\bminus|^-|invers|invert|recipr|^1 ?/|\bstd\b|deviat|\berror\b|\bdelta\b|\bdiff|toler|%",
    "level": r"atten|loss|isolat|\blog|\bln\b|neper|\bnp\b|\bbels?\b|[(\[]b[)\]]|\bmdb\b|\bcdb\b",
    "phase": r"\blag|retard|excess|\bmin|cycle|turn|revol|\bpi\b|π|mrad|milli|\bgons?\b",
}
# Of a magnitude that is not in dB.
_POWER = re.compile(r"power|energ|squar|psd|\^ ?2|²")


def check_unaltered(file: Path, kind: str, name: str) -> None:
    """Raise FileError for a column that is named as something other than the quantity itself."""
    text = name.lower().replace("_", " ").strip()
    is_power = kind == "level" and unit(name) != "dB" and _POWER.search(text)
    if is_power or any(re.search(pattern, text) for of, pattern in _ALTERED.items() if of in ("", kind)):
        raise FileError(
            f"{file}: {name!r} is not the {kind} of a response itself; export frequency, level in dB and phase in "
            "degrees"
        )


def hertz(name: str) -> float:
    """Return the factor that converts a column to hertz."""
    if any(word in name.lower() for word in ("omega", "rad")):
        return float(1 / (2 * np.pi))
    return 1000.0 if unit(name) == "kHz" else 1.0


def magnitude(file: Path, name: str, values: Float64) -> Float64:
    """Read a magnitude; a name that says level or SPL means dB."""
    stated = unit(name) or ("dB" if quantity(name) == "level" else "")
    if stated == "linear" and values.min() >= 0:
        return values
    if stated != "dB" or values.max() > _LARGEST_LEVEL_DB:
        raise FileError(
            f"{file}: {name!r} holds {values.min():g} to {values.max():g}, which may be linear or in dB; name the unit "
            "in the head, level_dB or linear"
        )
    return np.asarray(10 ** (values / 20))


def radians(file: Path, name: str, values: Float64) -> Float64:
    """Read a phase in radians; only degrees jump by more than 180 where they are wrapped."""
    stated = unit(name)
    if not values.any():
        raise FileError(f"{file}: its phase is 0 everywhere; export the phase that was measured")
    if stated == "radians":
        return values
    if stated == "degrees" or np.abs(np.diff(values)).max() > 180:
        return np.deg2rad(values)
    raise FileError(
        f"{file}: {name!r} may be in degrees or in radians; name the unit in the head, phase_deg or phase_rad"
    )
