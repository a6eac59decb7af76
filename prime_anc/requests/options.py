"""Options of requests: pydantic models of the declarations in `prime_anc.options`, and their forms in JSON and text.

Bodies in all forms, query strings, the OpenAPI document and the page take their options
from these models.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema
from pydantic.fields import FieldInfo

from prime_anc.fields import Absent, Number
from prime_anc.measure.calibration import MAX_N_WINDOWS
from prime_anc.method.curve import MAX_POINTS, Curve
from prime_anc.method.gain_curve import GainCurve
from prime_anc.method.updates.band_weights import BandWeights
from prime_anc.options import (
    BAND_WEIGHT_RANGE,
    DEFAULT_MAX_GAIN_DB,
    MAX_GAIN_RANGE_DB,
    NUMBER_FORMAT,
    FilterFields,
    ModelFields,
    ObjectiveFields,
    SynthesisFields,
    UpdateFields,
    option_schemas,
)
from prime_anc.requests.arrays import floats
from prime_anc.requests.errors import RequestError
from prime_anc.requests.strict import StrictModel, shown, shown_name

# A curve that ends below this is in kHz.
MIN_CURVE_END_HZ = 20.0

# float() would also accept "1_0", " 3" and non-ASCII digits. 40 decimal places exceed any shortest float.
DECIMAL = re.compile(r"-?[0-9]{1,5}(\.[0-9]{1,40})?")


@dataclass(frozen=True)
class FromText:
    """Converts the text of a query parameter to the value of a field."""

    read: Callable[[str], object]


@dataclass(frozen=True)
class CurveReader:
    """Reads an option that is a curve, or may be."""

    kind: type[Curve]
    # Range of its values.
    limits: tuple[float, float]
    # As text.
    example: str
    # Whether a number of that range may stand for all frequencies.
    or_number: bool = False

    @property
    def text_form(self) -> str:
        """Return what `of_text` reads, in words."""
        number = "a number, or " if self.or_number else ""
        return f"{number}frequency:{self.kind.VALUES.removesuffix('_db')} pairs such as {self.example}"

    def of_json(self, value: object) -> float | Curve:
        """Read an object of two lists, or a number.

        Raises
        ------
        RequestError
            It is neither, or out of range.
        InvalidOption
            It is no curve.
        """
        name, parts = self.kind.OPTION, ("frequency_hz", self.kind.VALUES)
        if isinstance(value, self.kind):
            return value
        if self.or_number and type(value) in (int, float):
            return self._in_range(float(value))  # type: ignore[arg-type]
        expected = f'{"a number, or " if self.or_number else ""}{{"frequency_hz": [..], "{parts[1]}": [..]}}'
        if not isinstance(value, dict):
            raise RequestError("invalid-field", f"{name}: {shown(value)} cannot be read; send {expected}", name)
        if value.keys() != set(parts):
            unknown = sorted(value.keys() - set(parts))
            field = f"{name}.{shown_name(unknown[0])}" if unknown else name
            code = "unknown-field" if unknown else "missing-field"
            raise RequestError(code, f"{name}: send {expected} and nothing else", field)
        return self._curve(
            *(floats(value[part], f"{name}.{part}", MAX_POINTS, np.float64).tolist() for part in parts)
        )

    def of_text(self, text: str) -> float | Curve:
        """Read `frequency:value` pairs with commas between them, such as `100:12,1000:24`, or a number.

        Raises
        ------
        RequestError
            It is neither, or out of range.
        InvalidOption
            It is no curve.
        """
        pairs = [pair.split(":") for pair in text.split(",", MAX_POINTS)]
        is_number = self.or_number and len(pairs) == len(pairs[0]) == 1
        if all(map(DECIMAL.fullmatch, chain.from_iterable(pairs))):
            if is_number:
                return self._in_range(float(text))
            if all(len(pair) == 2 for pair in pairs):
                return self._curve(*([float(item) for item in part] for part in zip(*pairs, strict=True)))
        raise RequestError(
            "out-of-range" if is_number and text[-1:].isdigit() else "invalid-field",
            f"{self.kind.OPTION}: {text[:40]!a} cannot be read; send {self.text_form}",
            self.kind.OPTION,
        )

    def _curve(self, frequency_hz: list[float], values: list[float]) -> Curve:
        """Make a curve; RequestError if it leaves the limits, or ends below any sound."""
        for value in values:
            self._in_range(value)
        kind: Callable[..., Curve] = self.kind
        found = kind(tuple(frequency_hz), tuple(values))
        if frequency_hz[-1] < MIN_CURVE_END_HZ:
            name = self.kind.OPTION
            raise RequestError(
                "out-of-range",
                f"{name}: the curve ends at {frequency_hz[-1]:g} Hz and would be held from there on; "
                f"send frequencies in Hz, not kHz, up to {MIN_CURVE_END_HZ:g} Hz at least",
                name,
            )
        return found

    def _in_range(self, value: float) -> float:
        """Return the value; RequestError if it leaves the limits."""
        (low, high), name = self.limits, self.kind.OPTION
        if not low <= value <= high:
            unit = f" {self.kind.UNIT}".rstrip()
            raise RequestError("out-of-range", f"{name}: {value:g}{unit}; send {low:g} to {high:g}{unit}", name)
        return value


_CEILING = CurveReader(GainCurve, MAX_GAIN_RANGE_DB, "100:12,1000:24", or_number=True)
_WEIGHTS = CurveReader(BandWeights, BAND_WEIGHT_RANGE, "100:2,1000:1")
# By the option's name.
CURVES = {reader.kind.OPTION: reader for reader in (_CEILING, _WEIGHTS)}


def _model(value: object) -> object:
    """Return `name@version:digest` for the `model` of an answer, and other values unchanged."""
    if isinstance(value, dict) and set(value) == {"name", "version", "digest"}:
        name, version, digest = value["name"], value["version"], value["digest"]
        if isinstance(name, str) and type(version) is int and isinstance(digest, str):
            return f"{name}@{version}:{digest}"
    return value


def _text(name: str, more: str = "") -> Any:
    """Return the description of an option whose JSON type differs from that in `prime_anc.options`."""
    return Field(description=option_schemas()[name]["description"] + more)


class BandWeightsBody(StrictModel):
    """Weights of bands over frequency, linear in log frequency between its points and held beyond its ends."""

    frequency_hz: list[Number] = Field(min_length=1, max_length=MAX_POINTS)
    """Rising; the last at 20 Hz or above."""
    weight: list[Number] = Field(min_length=1, max_length=MAX_POINTS)
    """As many, 0 to 10."""


# The type is a number alone: generators for phones merge alternatives to a type that has none of them.
_CURVE_FORMS = ' A curve is `{"frequency_hz": [..], "gain_db": [..]}`, or `100:12,1000:24` in the query.'
_LIMITS = dict(zip(("minimum", "maximum"), MAX_GAIN_RANGE_DB, strict=True))
_Level = Annotated[float, WithJsonSchema({"type": "number", "format": NUMBER_FORMAT, **_LIMITS})]
CeilingField = Annotated[
    Any,
    BeforeValidator(_CEILING.of_json, json_schema_input_type=_Level),
    FromText(_CEILING.of_text),
]
WeightsField = Annotated[
    Any, BeforeValidator(_WEIGHTS.of_json, json_schema_input_type=BandWeightsBody), FromText(_WEIGHTS.of_text)
]


class Options(StrictModel):
    """Fields that may also be query parameters."""


class ModelOptions(Options, ModelFields):
    """Options of every request."""

    model: Annotated[Absent[str], BeforeValidator(_model), _text("model")] = None


class FilterOptions(ModelOptions, FilterFields):
    """Options of every request about a filter."""


class ObjectiveOptions(FilterOptions, ObjectiveFields):
    """Options of every request that designs a filter."""

    max_gain_db: Annotated[CeilingField, _text("max_gain_db", _CURVE_FORMS)] = DEFAULT_MAX_GAIN_DB
    band_weights: Annotated[WeightsField, _text("band_weights")] = None


class SynthesisOptions(ObjectiveOptions, SynthesisFields):
    """Options of a design without updates."""


class RefineOptions(SynthesisOptions, UpdateFields):
    """Options of a design with updates."""


class CalibrationOptions(ModelOptions):
    """Options of a calibration."""

    n_windows: Absent[Annotated[int, Field(ge=1, le=MAX_N_WINDOWS)]] = None
    """Number of windows per take, which overlap by half at most; default: all."""


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
