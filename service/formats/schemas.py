"""The JSON bodies: what requests may hold, read strictly.

pydantic validates the object; the lists of up to 32,769 numbers inside are arrays already (`json_numbers`). Every
error is a Problem, which names the offending field.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, WithJsonSchema

from service.designs import DEFAULT_MAX_GAIN_DB, MAX_GAIN_RANGE_DB, Float32, Path, Sign
from service.errors import Problem
from service.formats import checks
from service.formats.json_numbers import LongList, shown
from synthesis.conventions import SAMPLE_RATE_HZ

Method = Literal["prime", "ratio_base", "projected_ratio", "wmmse"]
Profile = Literal["fast", "fine", "paper"]

CALIBRATION_FIELDS = frozenset({"spectra", "bands", "verdict", "warnings", "timings_ms"})
"""Fields that a calibration's answer holds beside those of a request: taken, so that it can be sent on as it is,
and not read."""

MAX_ITEMS = 16
"""Requests in one body: as many as the engine takes in one batch."""

_RANGE_ERRORS = {"greater_than_equal", "less_than_equal", "greater_than", "less_than"}


def numbers(values: object, field: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A list of JSON numbers as float64; Problem for anything else, booleans and strings included."""
    if type(values) is list:
        values = LongList(values)
    if not isinstance(values, LongList):
        raise Problem("invalid-field", f"{field}: found {_shown(values)}, expected a list of numbers", field)
    if values.strange is not None:
        index, text = values.strange
        detail = f"{field}: found {_ascii(text)} at index {index}, expected numbers only"
        raise Problem("invalid-field", detail, field)
    assert values.values is not None
    return values.values


def _shown(value: object) -> str:
    """A value of the request as it may stand in a message: short and in ASCII."""
    return _ascii(shown(value))


def _ascii(text: str) -> str:
    return ascii(text)[1:-1]


def _shown_name(name: str) -> str:
    """A field's name as a client chose it: cut short and in ASCII."""
    return ascii(name[:80])[1:-1]


def _series(values: object, info: ValidationInfo) -> Float32 | None:
    """A list of numbers in float32; None stays None."""
    if values is None:
        return None
    assert info.field_name is not None
    return narrow(numbers(values, info.field_name), np.float32, info.field_name)


def narrow(values: np.ndarray[Any, Any], dtype: type, field: str) -> np.ndarray[Any, Any]:
    """Cast to single precision; a number that is too large for it becomes infinite and is refused."""
    with np.errstate(over="ignore"):
        narrow: np.ndarray[Any, Any] = values.astype(dtype)
    checks.check_finite(narrow, field)
    return narrow


def _path(value: object, info: ValidationInfo) -> Path:
    """One of the three forms of a path."""
    name = info.field_name
    assert name is not None
    forms = ({"real", "imag"}, {"complex64"}, {"impulse_response"})
    if not isinstance(value, dict):
        raise Problem("invalid-field", f"{name}: found {_shown(value)}, expected {_FORMS}", name)
    if set(value) not in forms:
        unknown = sorted(set(value) - set().union(*forms))
        code = "unknown-field" if unknown else "missing-field" if set(value) < forms[0] else "invalid-field"
        field = f"{name}.{_shown_name(unknown[0])}" if unknown else name
        keys = ", ".join(ascii(key) for key in sorted(value)[:5]) or "no fields"
        raise Problem(code, f"{name}: found {keys}, expected {_FORMS}", field)
    if "impulse_response" in value:
        field = f"{name}.impulse_response"
        path: Path = narrow(numbers(value["impulse_response"], field), np.float32, field)
        checks.check_path(path, name, "impulse_response")
    elif "complex64" in value:
        path = _from_base64(value["complex64"], f"{name}.complex64")
        checks.check_path(path, name, "complex64")
    else:
        real = numbers(value["real"], f"{name}.real")
        imag = numbers(value["imag"], f"{name}.imag")
        if len(real) != len(imag):
            raise Problem(
                "unequal-grids",
                f"{name}: found {len(real)} real and {len(imag)} imag, expected as many",
                f"{name}.imag",
            )
        path = np.empty(len(real), np.complex64)
        path.real, path.imag = narrow(real, np.float32, f"{name}.real"), narrow(imag, np.float32, f"{name}.imag")
        checks.check_path(path, name, "real")
    return path


_FORMS = 'one of {"real", "imag"}, {"complex64"}, {"impulse_response"}'


def _from_base64(text: object, field: str) -> Path:
    """Little-endian interleaved complex64 from base64."""
    if not isinstance(text, str):
        raise Problem("invalid-field", f"{field}: found {_shown(text)}, expected base64 text", field)
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Problem("invalid-field", f"{field}: found text that is not base64, expected base64", field) from error
    if len(data) % 8:
        raise Problem("invalid-field", f"{field}: found {len(data)} bytes, expected 8 for each bin", field)
    return np.frombuffer(data, "<c8")


def _rate(value: object) -> int:
    """48 kHz, as a JSON number."""
    if type(value) not in (int, float):
        raise Problem(
            "invalid-field", f"sample_rate: found {_shown(value)}, expected {SAMPLE_RATE_HZ}", "sample_rate"
        )
    checks.check_rate(value)  # type: ignore[arg-type]
    return SAMPLE_RATE_HZ


def _form(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


_NUMBERS: dict[str, Any] = {"type": "array", "items": {"type": "number"}}
_SPECTRUM = {
    "title": "Spectrum",
    "oneOf": [
        _form(real=_NUMBERS, imag=_NUMBERS),
        _form(complex64={"type": "string", "description": "base64 of little-endian interleaved complex64"}),
        _form(impulse_response=_NUMBERS | {"minItems": 1, "maxItems": checks.MAX_RESPONSE_SAMPLES}),
    ],
}
PathField = Annotated[Any, BeforeValidator(_path), WithJsonSchema(_SPECTRUM)]
SeriesField = Annotated[Any, BeforeValidator(_series), WithJsonSchema(_NUMBERS)]
RateField = Annotated[
    int,
    BeforeValidator(_rate),
    WithJsonSchema({"type": "number", "const": SAMPLE_RATE_HZ, "default": SAMPLE_RATE_HZ}),
]


class PathsBody(BaseModel):
    """What both kinds of request share."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)

    primary: PathField
    """Outer microphone to error microphone, P. A spectrum is one-sided, n_fft / 2 + 1 bins of a power-of-two grid
    from 4096 to 65536, and is read as the transform of a causal impulse response, through which it is brought to
    the design grid of 32768 points; what that cuts off must be below -40 dB of its energy."""
    secondary: PathField
    """Loudspeaker to error microphone, S; a spectrum lies on the same grid as a primary spectrum."""
    sample_rate: RateField
    """Hz."""
    model: str | None = None
    """`name` (its latest version) or `name@version`; without it the default model."""
    sign: Sign = "minus"
    """`minus`: e = d - s * w * x. `plus`: the negated filter."""
    reference_psd: SeriesField = None
    """Power spectrum of the noise, one-sided, mean square per bin, on the spectra's grid (16385 bins where both
    paths are impulse responses); without it the model's own."""
    coherence: SeriesField = None
    """Magnitude-squared coherence of x and e_0 during calibration, per bin, 0 to 1, on the same grid."""

    def check(self) -> None:
        """What concerns several fields at once."""
        checks.check_together(self.primary, self.secondary, self.coherence, self.reference_psd)


class DesignBody(PathsBody):
    """Body of `/synthesize` and `/refine`."""

    method: Method = "prime"
    """`prime`: the model's generator. The others are baselines that need no training."""
    max_gain_db: float = Field(DEFAULT_MAX_GAIN_DB, ge=MAX_GAIN_RANGE_DB[0], le=MAX_GAIN_RANGE_DB[1])
    """Ceiling on |W| in dB. It shapes `prime` and `ratio_base`, and updates in `fast` and `fine`."""


class DesignItems(BaseModel):
    """Several requests at once, such as both ears. Each is read, designed and answered on its own account."""

    model_config = ConfigDict(extra="forbid")

    items: list[DesignBody] = Field(min_length=1, max_length=MAX_ITEMS)


class EvaluateBody(PathsBody):
    """Body of `/evaluate`."""

    fir: SeriesField
    """2048 taps in the sign that `sign` says."""

    def check(self) -> None:
        """What concerns several fields at once, and the filter."""
        super().check()
        if self.fir is None:
            raise Problem("missing-field", "fir: found null, expected 2048 taps", "fir")
        checks.check_taps(self.fir)


Body = TypeVar("Body", bound=PathsBody)


def items_of(document: object) -> list[object] | None:
    """The requests of `{"items": [request, ...]}`; None for a body that is one request itself."""
    if not isinstance(document, dict) or "items" not in document:
        return None
    if others := document.keys() - {"items"}:
        name = _shown_name(min(others))
        raise Problem("unknown-field", f"{name}: found it beside items, expected nothing there", name)
    items = document["items"]
    if not isinstance(items, list | LongList):
        raise Problem("invalid-field", f"items: found {_shown(items)}, expected a list of requests", "items")
    if not 1 <= len(items) <= MAX_ITEMS:
        raise Problem("out-of-range", f"items: found {len(items)} requests, expected 1 to {MAX_ITEMS}", "items")
    assert isinstance(items, list)  # one that is long is longer than that
    return items


def read_object(kind: type[Body], document: object) -> Body:
    """Validate one request, or raise Problem."""
    if not isinstance(document, dict):
        raise Problem("invalid-field", f"found {_shown(document)}, expected a JSON object")
    for field in CALIBRATION_FIELDS & document.keys():
        del document[field]
    try:
        read = kind.model_validate(document)
    except ValidationError as error:
        raise from_validation(error) from None
    read.check()
    return read


def from_validation(error: ValidationError) -> Problem:
    """The first of pydantic's complaints as a Problem."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return Problem("missing-field", f"{field}: found nothing, expected it to be given", field)
    if first["type"] == "extra_forbidden":
        name = _shown_name(field)
        return Problem("unknown-field", f"{name}: found a field of that name, expected only known ones", name)
    code = "out-of-range" if first["type"] in _RANGE_ERRORS else "invalid-field"
    message = first["msg"]  # which may quote a value to be spelt just so
    wanted = message.removeprefix("Input should be ")
    expected = f", expected {wanted}" if wanted != message else f"; {message[:1].lower()}{message[1:]}"
    return Problem(code, f"{field}: found {_shown(first['input'])}{expected}", field)
