"""Options of requests: pydantic models of the declarations in `synthesis.options`, and their forms in JSON and text.

Bodies in all forms, query strings, the Open Inference parameters, the OpenAPI document and the page take their options
from these models.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema
from pydantic.fields import FieldInfo

from measurement.calibration import MAX_N_WINDOWS
from service.api.strict import Absent, Number, StrictModel, floats, shown, shown_name
from service.errors import HttpProblem
from synthesis.gain_curve import MAX_POINTS, GainCurve, highest_db, lowest_db
from synthesis.options import (
    DEFAULT_MAX_GAIN_DB,
    MAX_GAIN_RANGE_DB,
    CeilingFields,
    FilterFields,
    ModelFields,
    SynthesisFields,
    UpdateFields,
    option_schemas,
)

# A curve that ends below this is in kHz.
MIN_CURVE_END_HZ = 20.0

# float() would also accept "1_0", " 3" and non-ASCII digits. 40 decimal places exceed any shortest float.
DECIMAL = re.compile(r"-?[0-9]{1,5}(\.[0-9]{1,40})?")


@dataclass(frozen=True)
class FromText:
    """Converts the text of a query parameter to the value of a field."""

    read: Callable[[str], object]


def ceiling(value: object) -> float | GainCurve:
    """Read a ceiling: a number, or an object of two lists.

    Raises
    ------
    HttpProblem
        It is neither, or out of range.
    """
    if isinstance(value, GainCurve):
        return value
    if isinstance(value, dict):
        if value.keys() != {"frequency_hz", "gain_db"}:
            unknown = sorted(value.keys() - {"frequency_hz", "gain_db"})
            field = f"max_gain_db.{shown_name(unknown[0])}" if unknown else "max_gain_db"
            raise HttpProblem(
                "unknown-field" if unknown else "missing-field",
                'max_gain_db: send a number, or {"frequency_hz": [..], "gain_db": [..]} and nothing else',
                field,
            )
        names = ("frequency_hz", "gain_db")
        points = (floats(value[name], f"max_gain_db.{name}", np.float64).tolist() for name in names)
        return _in_range(GainCurve(*map(tuple, points)))
    if type(value) not in (int, float):
        raise HttpProblem(
            "invalid-field",
            f'max_gain_db: {shown(value)} is neither a number nor {{"frequency_hz": [..], "gain_db": [..]}}; send '
            "one of them",
            "max_gain_db",
        )
    return _in_range(float(value))  # type: ignore[arg-type]


def _in_range(max_gain_db: float | GainCurve) -> float | GainCurve:
    """Check a ceiling; HttpProblem for values outside MAX_GAIN_RANGE_DB, and for a curve in kHz."""
    if isinstance(max_gain_db, GainCurve) and max_gain_db.frequency_hz[-1] < MIN_CURVE_END_HZ:
        raise HttpProblem(
            "out-of-range",
            f"max_gain_db: the curve ends at {max_gain_db.frequency_hz[-1]:g} Hz and would be held from there on; "
            f"send frequencies in Hz, not kHz, up to {MIN_CURVE_END_HZ:g} Hz at least",
            "max_gain_db",
        )
    low, high = MAX_GAIN_RANGE_DB
    for value in (lowest_db(max_gain_db), highest_db(max_gain_db)):
        if not low <= value <= high:
            raise HttpProblem(
                "out-of-range", f"max_gain_db: {value:g} dB; send {low:g} to {high:g} dB", "max_gain_db"
            )
    return max_gain_db


def curve_of_text(text: str) -> float | GainCurve:
    """Read a ceiling from text: a number, or `frequency:gain` pairs such as `100:12,1000:24`.

    Raises
    ------
    HttpProblem
        It is neither, or out of range.
    """
    pairs = [pair.split(":") for pair in text.split(",")]
    if not all(len(pair) == len(pairs[0]) <= 2 and all(map(DECIMAL.fullmatch, pair)) for pair in pairs) or (
        len(pairs[0]) == 1 and len(pairs) > 1
    ):
        raise HttpProblem(
            "out-of-range" if len(pairs) == 1 == len(pairs[0]) else "invalid-field",
            f"max_gain_db: {text[:40]!a} is neither a number of dB nor pairs of Hz and dB such as 100:12,1000:24; "
            "send one of them",
            "max_gain_db",
        )
    if len(pairs[0]) == 1:
        return _in_range(float(text))
    return _in_range(GainCurve(*zip(*((float(hz), float(db)) for hz, db in pairs), strict=True)))


def _model(value: object) -> object:
    """Return `name@version` for the `model` of a design's answer, and other values unchanged."""
    if isinstance(value, dict) and set(value) == {"name", "version", "digest"}:
        name, version = value["name"], value["version"]
        if isinstance(name, str) and type(version) is int:
            return f"{name}@{version}"
    return value


def _text(name: str) -> Any:
    """Return the description of an option whose JSON type differs from that in `synthesis.options`."""
    return Field(description=option_schemas()[name]["description"])


class GainCurveBody(StrictModel):
    """Ceiling over frequency, linear in log frequency between its points and held beyond its ends."""

    frequency_hz: list[Number] = Field(min_length=1, max_length=MAX_POINTS)
    """Rising; the last at 20 Hz or above."""
    gain_db: list[Number] = Field(min_length=1, max_length=MAX_POINTS)
    """Equally many values."""


_LIMITS = dict(zip(("minimum", "maximum"), MAX_GAIN_RANGE_DB, strict=True))
_Level = Annotated[float, WithJsonSchema({"type": "number", "format": "float", **_LIMITS})]
CeilingField = Annotated[
    Any, BeforeValidator(ceiling, json_schema_input_type=_Level | GainCurveBody), FromText(curve_of_text)
]


class Options(StrictModel):
    """Fields that may also be query parameters."""


class ModelOptions(Options, ModelFields):
    """Options of every request."""

    model: Annotated[Absent[str], BeforeValidator(_model), _text("model")] = None


class FilterOptions(ModelOptions, FilterFields):
    """Options of every request about a filter."""


class CeilingOptions(FilterOptions, CeilingFields):
    """Options of every request that designs a filter."""

    max_gain_db: Annotated[CeilingField, _text("max_gain_db")] = DEFAULT_MAX_GAIN_DB


class SynthesisOptions(CeilingOptions, SynthesisFields):
    """Options of a design without updates."""


class RefineOptions(SynthesisOptions, UpdateFields):
    """Options of a design with updates."""


class CalibrationOptions(ModelOptions):
    """Options of a calibration."""

    n_windows: Absent[Annotated[int, Field(ge=1, le=MAX_N_WINDOWS)]] = None
    """Number of windows of 8192 samples per take, which overlap by half at most; default: all."""


def option_fields(kind: type[BaseModel]) -> dict[str, FieldInfo]:
    """Find the fields of a body that are options.

    Parameters
    ----------
    kind
        The body's class: options are what it inherits from a subclass of `Options` of this module.
    """
    names = {
        name
        for base in kind.__mro__
        if issubclass(base, Options) and base.__module__ == __name__
        for name in base.model_fields
    }
    return {name: field for name, field in kind.model_fields.items() if name in names}
