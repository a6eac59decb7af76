"""The JSON bodies of designs and evaluations; these types validate them and generate their OpenAPI schema.

pydantic validates the object; lists of up to 32,769 numbers in it were already converted to arrays
(`json_parsing`). Every error is a HttpProblem that names the field at fault.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, WithJsonSchema
from pydantic_core import ErrorDetails

from hardware.filter_files import KINDS as FILE_KINDS
from hardware.realise import DEFAULT_SECTIONS, SAMPLE_RATES_HZ, Denominator, Target
from hardware.second_order_sections import MAX_SECTIONS
from hardware.short_fir import MAX_TAPS
from service.api import paths
from service.api.json_parsing import LongList, shortened
from service.errors import HttpProblem
from synthesis.conventions import N_TAPS, SAMPLE_RATE_HZ
from synthesis.errors import InvalidOption
from synthesis.gain_curve import MAX_POINTS, GainCurve, highest_db, lowest_db
from synthesis.methods import METHODS
from synthesis.profiles import PROFILES
from synthesis.types import (
    DEFAULT_GAIN_MARGIN_DB,
    DEFAULT_MAX_GAIN_DB,
    DEFAULT_PHASE_MARGIN_DEG,
    MAX_CONDITIONS,
    MAX_LATENCY_SAMPLES,
    Float32,
    Path,
)

if TYPE_CHECKING:
    Method: TypeAlias = str
    Profile: TypeAlias = str
else:
    Method = Literal[METHODS]  # of the names themselves, which type checkers cannot read from there
    Profile = Literal[tuple(PROFILES)]
Sign = Literal["minus", "plus"]

MAX_GAIN_RANGE_DB = (-20.0, 60.0)
"""Of `max_gain_db`, a number or each point of a curve."""
MIN_CURVE_END_HZ = 20.0
"""A curve that ends below the lowest band is in kHz."""
MAX_GAIN_MARGIN_DB, MAX_PHASE_MARGIN_DEG = 60.0, 90.0

ANSWER_FIELDS = frozenset(
    {"spectra", "bands", "verdict", "method", "refinement", "prediction", "loop", "warnings", "timings_ms"}
)
"""Of calibrations' and designs' answers: a request that has no use for them ignores them, so that both answers can
be sent on unchanged, alone or together."""

MAX_ITEMS = 16
"""Largest number of requests in one body."""

QUERY_OPTIONS = ("k", "profile", "leave_one_out")
"""Options of designs that are query parameters, whatever the body."""

_RANGE_ERRORS = {"greater_than_equal", "less_than_equal", "greater_than", "less_than"}


class StrictModel(BaseModel):
    """A JSON object that is validated strictly and documented by its docstrings."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)


def numbers(values: object, field: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A list of JSON numbers as float64; HttpProblem for anything else, booleans and strings included."""
    if type(values) is list:
        values = LongList(values)
    if not isinstance(values, LongList):
        raise HttpProblem("invalid-field", f"{field}: {shown(values)} is not a list of numbers", field)
    if values.not_a_number is not None:
        index, text = values.not_a_number
        detail = f"{field}: {_ascii(text)} at index {index} is not a number"
        raise HttpProblem("invalid-field", detail, field)
    assert values.values is not None
    return values.values


def shown(value: object) -> str:
    """A value of the request for use in a message: shortened, in ASCII."""
    return _ascii(shortened(value))


def _ascii(text: str) -> str:
    return ascii(text)[1:-1]


def _shown_name(name: str) -> str:
    """A field name from the request for use in a message: shortened, in ASCII."""
    return ascii(name[:80])[1:-1]


def _series(values: object, info: ValidationInfo) -> Float32 | None:
    """A list of numbers in float32; None stays None."""
    if values is None:
        return None
    assert info.field_name is not None
    return narrow(numbers(values, info.field_name), np.float32, info.field_name)


def narrow(values: np.ndarray[Any, Any], dtype: type, field: str) -> np.ndarray[Any, Any]:
    """Cast to single precision; a number that overflows becomes infinite and is refused."""
    with np.errstate(over="ignore"):
        narrow: np.ndarray[Any, Any] = values.astype(dtype)
    paths.check_finite(narrow, field)
    return narrow


def _path(value: object, info: ValidationInfo) -> Path:
    """One of the three forms of a path."""
    name = info.field_name
    assert name is not None
    forms = ({"real", "imag"}, {"complex64"}, {"impulse_response"})
    if not isinstance(value, dict):
        raise HttpProblem("invalid-field", f"{name}: {shown(value)} is not a path; send {_FORMS}", name)
    if set(value) not in forms:
        unknown = sorted(set(value) - set().union(*forms))
        code = "unknown-field" if unknown else "missing-field" if set(value) < forms[0] else "invalid-field"
        field = f"{name}.{_shown_name(unknown[0])}" if unknown else name
        keys = ", ".join(ascii(key) for key in sorted(value)[:5]) or "no fields"
        raise HttpProblem(code, f"{name}: the path has {keys}; send {_FORMS}", field)
    if "impulse_response" in value:
        field = f"{name}.impulse_response"
        path: Path = narrow(numbers(value["impulse_response"], field), np.float32, field)
        paths.check_path(path, name, "impulse_response")
    elif "complex64" in value:
        path = _from_base64(value["complex64"], f"{name}.complex64")
        paths.check_path(path, name, "complex64")
    else:
        real = numbers(value["real"], f"{name}.real")
        imag = numbers(value["imag"], f"{name}.imag")
        if len(real) != len(imag):
            raise HttpProblem(
                "unequal-grids",
                f"{name}: {len(real)} real parts but {len(imag)} imaginary ones; send as many of each",
                f"{name}.imag",
            )
        path = np.empty(len(real), np.complex64)
        path.real, path.imag = narrow(real, np.float32, f"{name}.real"), narrow(imag, np.float32, f"{name}.imag")
        paths.check_path(path, name, "real")
    return path


_FORMS = 'one of {"real", "imag"}, {"complex64"}, {"impulse_response"}'


def base64_bytes(text: object, field: str) -> bytes:
    """The bytes that base64 text stands for; HttpProblem for anything else."""
    if not isinstance(text, str):
        raise HttpProblem("invalid-field", f"{field}: {shown(text)} is not text; send base64", field)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise HttpProblem("invalid-field", f"{field}: the text is not base64", field) from error


def _from_base64(text: object, field: str) -> Path:
    """Little-endian interleaved complex64 from base64."""
    data = base64_bytes(text, field)
    if len(data) % 8:
        raise HttpProblem(
            "invalid-field", f"{field}: {len(data)} bytes are not a whole number of bins of 8 bytes", field
        )
    return np.frombuffer(data, "<c8")


def _rate(value: object) -> int:
    """48 kHz, as a JSON number."""
    if type(value) not in (int, float):
        raise HttpProblem(
            "invalid-field", f"sample_rate: {shown(value)} is not a number; send {SAMPLE_RATE_HZ}", "sample_rate"
        )
    paths.check_rate(value)  # type: ignore[arg-type]
    return SAMPLE_RATE_HZ


def ceiling(value: object) -> float | GainCurve:
    """A number, or an object of two lists; HttpProblem for anything else."""
    if isinstance(value, dict):
        if value.keys() != {"frequency_hz", "gain_db"}:
            unknown = sorted(value.keys() - {"frequency_hz", "gain_db"})
            field = f"max_gain_db.{_shown_name(unknown[0])}" if unknown else "max_gain_db"
            raise HttpProblem(
                "unknown-field" if unknown else "missing-field",
                'max_gain_db: send a number, or {"frequency_hz": [..], "gain_db": [..]} and nothing else',
                field,
            )
        points = (numbers(value[name], f"max_gain_db.{name}").tolist() for name in ("frequency_hz", "gain_db"))
        return in_range(GainCurve(*map(tuple, points)))
    if type(value) not in (int, float):
        raise HttpProblem(
            "invalid-field",
            f'max_gain_db: {shown(value)} is neither a number nor {{"frequency_hz": [..], "gain_db": [..]}}; send '
            "one of them",
            "max_gain_db",
        )
    return in_range(float(value))  # type: ignore[arg-type]


def in_range(max_gain_db: float | GainCurve) -> float | GainCurve:
    """The ceiling; HttpProblem where it leaves MAX_GAIN_RANGE_DB, or where its curve ends below any sound."""
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
    """A number, or `frequency:gain` pairs with commas between them, such as `100:12,1000:24`."""
    pairs = [pair.split(":") for pair in text.split(",")]
    if not all(len(pair) == len(pairs[0]) <= 2 and all(map(_DECIMAL.fullmatch, pair)) for pair in pairs) or (
        len(pairs[0]) == 1 and len(pairs) > 1
    ):
        raise HttpProblem(
            "out-of-range" if len(pairs) == 1 == len(pairs[0]) else "invalid-field",
            f"max_gain_db: {text[:40]!a} is neither a number of dB nor pairs of Hz and dB such as 100:12,1000:24; "
            "send one of them",
            "max_gain_db",
        )
    if len(pairs[0]) == 1:
        return in_range(float(text))
    return in_range(GainCurve(*zip(*((float(hz), float(db)) for hz, db in pairs), strict=True)))


# float() would also accept "1_0", " 3" and non-ASCII digits. 40 decimal places exceed any shortest float.
_DECIMAL = re.compile(r"-?[0-9]{1,5}(\.[0-9]{1,40})?")


def _model(value: object) -> object:
    """`name@version` of the `model` of a design's answer; anything else as it is."""
    if isinstance(value, dict) and set(value) == {"name", "version", "digest"}:
        name, version = value["name"], value["version"]
        if isinstance(name, str) and type(version) is int:
            return f"{name}@{version}"
    return value


def _form(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


_NUMBERS: dict[str, Any] = {"type": "array", "items": {"type": "number"}}
_CURVE = _form(frequency_hz=_NUMBERS | {"minItems": 1, "maxItems": MAX_POINTS}, gain_db=_NUMBERS | {"minItems": 1})
_LIMITS = dict(zip(("minimum", "maximum"), MAX_GAIN_RANGE_DB, strict=True))
_CEILING = {"anyOf": [{"type": "number"} | _LIMITS, _CURVE], "default": DEFAULT_MAX_GAIN_DB}
_SPECTRUM = {
    "title": "Spectrum",
    "oneOf": [
        _form(real=_NUMBERS, imag=_NUMBERS),
        _form(complex64={"type": "string", "description": "base64 of little-endian interleaved complex64"}),
        _form(impulse_response=_NUMBERS | {"minItems": 1, "maxItems": paths.MAX_RESPONSE_SAMPLES}),
    ],
}
PathField = Annotated[Any, BeforeValidator(_path), WithJsonSchema(_SPECTRUM)]
SeriesField = Annotated[Any, BeforeValidator(_series), WithJsonSchema(_NUMBERS)]
OptionalPath = Annotated[
    Any,
    BeforeValidator(lambda value, info: None if value is None else _path(value, info)),
    WithJsonSchema({"anyOf": [_SPECTRUM, {"type": "null"}]}),
]
OptionalSeries = Annotated[Any, BeforeValidator(_series), WithJsonSchema({"anyOf": [_NUMBERS, {"type": "null"}]})]
CeilingField = Annotated[Any, BeforeValidator(ceiling), WithJsonSchema(_CEILING)]
RateField = Annotated[
    int,
    BeforeValidator(_rate),
    WithJsonSchema({"type": "number", "const": SAMPLE_RATE_HZ, "default": SAMPLE_RATE_HZ}),
]


ModelField = Annotated[
    str | None,
    BeforeValidator(_model),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                _form(name={"type": "string"}, version={"type": "integer"}, digest={"type": "string"}),
                {"type": "null"},
            ]
        }
    ),
]


class CommonBody(StrictModel):
    """Fields of every request."""

    sample_rate: RateField
    """Hz."""
    model: ModelField = None
    """`name` (its latest version), `name@version`, an alias, or the `model` of an answer; default: the service's
    default model."""
    sign: Sign = "minus"
    """`minus`: e = d - s * w * x. `plus`: the negated filter."""
    reference_psd: OptionalSeries = None
    """Power spectrum of the noise, one-sided, mean square per bin, on the spectra's grid (16385 bins if both paths
    are impulse responses); default: the model's reference noise."""

    def check(self) -> None:
        """Check conditions between fields."""


class PathPair(StrictModel):
    """What is measured in one state of the earphone."""

    primary: PathField
    """Outer microphone to error microphone, P. A spectrum is one-sided, n_fft / 2 + 1 bins of a power-of-two grid
    from 4096 to 65536, and is interpreted as the transform of a causal impulse response, which is zero-padded or
    truncated to the design grid of 32768 points; at most -40 dB of its energy may be lost."""
    secondary: PathField
    """Loudspeaker to error microphone, S; a spectrum lies on the same grid as a primary spectrum."""
    feedback: OptionalPath = None
    """Loudspeaker to outer microphone, F; a spectrum lies on the grid of the other paths."""
    coherence: OptionalSeries = None
    """Magnitude-squared coherence of x and e with the loudspeaker silent, per bin, 0 to 1, on the same grid."""
    uncertainty: OptionalSeries = None
    """Of `/calibrate`: unknown over known power of the primary path in 31 bands from 20 Hz to 20 kHz, then of the
    secondary path; 62 numbers. Predictions use it in place of the coherence."""

    def check_paths(self, reference_psd: Float32 | None) -> None:
        """Check the grids of all quantities, and the values of all but the paths."""
        paths.check_together(self.primary, self.secondary, self.coherence, reference_psd, self.uncertainty)
        if self.feedback is not None:
            paths.check_pair(self.primary, self.feedback, "feedback")


class PathsBody(CommonBody, PathPair):
    """A request about one condition."""

    @property
    def conditions(self) -> Sequence[ConditionBody | PathsBody]:
        """Its one condition."""
        return (self,)

    def check(self) -> None:
        """Check conditions between fields."""
        self.check_paths(self.reference_psd)


class ConditionBody(PathPair):
    """One of several conditions for which there shall be one filter: a seating, a direction, a way of wearing."""

    weight: float = Field(1.0, gt=0, lt=1e6)
    """Relative to the other conditions."""
    label: str = Field("", max_length=80)
    """Names the condition in the answer and in errors."""


def _conditions(value: object) -> list[ConditionBody]:
    """1 to 16 conditions; HttpProblem names the one that is at fault."""
    if not isinstance(value, list | LongList):
        raise HttpProblem("invalid-field", f"conditions: {shown(value)} is not a list of conditions", "conditions")
    if not 1 <= len(value) <= MAX_CONDITIONS:
        found = f"conditions: {len(value)} conditions; send 1 to {MAX_CONDITIONS}"
        raise HttpProblem("out-of-range", found, "conditions")
    assert isinstance(value, list)  # a LongList is longer
    read = []
    for n, each in enumerate(value):
        with naming(f"conditions.{n}", each.get("label") if isinstance(each, dict) else None):
            read.append(validated(ConditionBody, each))
    return read


@contextmanager
def naming(prefix: str, label: object = None) -> Iterator[None]:
    """Puts the name of a condition before every HttpProblem raised inside."""
    try:
        yield
    except HttpProblem as problem:
        name = prefix + (f" ({_shown_name(label)})" if isinstance(label, str) and label else "")
        field = prefix if problem.field is None else f"{prefix}.{problem.field}"
        raise HttpProblem(problem.code, f"{name}: {problem.detail}", field) from None


class JointBody(CommonBody):
    """A request about one filter that serves several conditions."""

    conditions: Annotated[list[ConditionBody], BeforeValidator(_conditions)] = Field(
        min_length=1, max_length=MAX_CONDITIONS
    )
    """In place of `primary` and `secondary`."""

    def check(self) -> None:
        """Check every condition; HttpProblem names the one that is at fault."""
        for n, each in enumerate(self.conditions):
            with naming(f"conditions.{n}", each.label):
                each.check_paths(self.reference_psd)


class DesignFields(StrictModel):
    """Fields of a design, whatever it is for."""

    method: Method = "prime"
    """`prime`: the model's generator. The other methods need no training."""
    max_gain_db: CeilingField = DEFAULT_MAX_GAIN_DB
    """Ceiling on |W| in dB, which every filter keeps: a number, or a curve over frequency, linear in log frequency
    between its points and held beyond its ends."""

    latency_samples: float = Field(default=0.0, ge=0, le=MAX_LATENCY_SAMPLES)
    """Delay of the signal chain that `secondary` does not hold, in samples, fractions included."""
    min_gain_margin_db: float = Field(default=DEFAULT_GAIN_MARGIN_DB, ge=0, le=MAX_GAIN_MARGIN_DB)
    """Smallest gain margin of the loop of filter and `feedback`, if there is one."""
    min_phase_margin_deg: float = Field(default=DEFAULT_PHASE_MARGIN_DEG, ge=0, le=MAX_PHASE_MARGIN_DEG)
    """Smallest phase margin of that loop."""


class DesignBody(PathsBody, DesignFields):
    """Body of `/synthesize` and `/refine`."""


class ConditionsBody(JointBody, DesignFields):
    """Body of `/synthesize` and `/refine` for one filter that serves several conditions."""


class DesignItems(BaseModel):
    """Several requests, for example both ears. Each is validated, designed and answered independently."""

    model_config = ConfigDict(extra="forbid")

    items: list[DesignBody | ConditionsBody] = Field(min_length=1, max_length=MAX_ITEMS)


class FilterField(CommonBody):
    """An existing filter."""

    fir: SeriesField
    """2048 taps, with the sign given by `sign`."""

    def check(self) -> None:
        """Check what the other fields need, and the filter."""
        super().check()
        if self.fir is None:
            raise HttpProblem("missing-field", "fir: null is not a filter; send 2048 taps", "fir")
        paths.check_taps(self.fir)


class EvaluateBody(FilterField, PathsBody):
    """Body of `/evaluate`."""

    latency_samples: float = Field(default=0.0, ge=0, le=MAX_LATENCY_SAMPLES)
    """As in a design."""


class ExportTarget(StrictModel):
    """What the hardware runs."""

    form: Literal["fir", "sos"] = "sos"
    """`sos`: a cascade of second-order sections. `fir`: taps."""
    n_taps: int = Field(N_TAPS, ge=1, le=MAX_TAPS)
    """Of the form `fir`. With 2048 at 48 kHz the filter of the request is kept, otherwise a new one is designed."""
    n_sections: int = Field(DEFAULT_SECTIONS, ge=1, le=MAX_SECTIONS)
    """Of the form `sos`."""
    sample_rate: float = Field(float(SAMPLE_RATE_HZ), ge=SAMPLE_RATES_HZ[0], le=SAMPLE_RATES_HZ[1])
    """Hz, at which the hardware runs the filter. It plays nothing above half of it."""
    number_format: str = "float32"
    """Of the coefficients: `float32`, `float64`, or `qI.F` with I integer bits, the sign among them, and F fraction
    bits, such as `q1.15`, `q1.23`, `q1.31`, `q5.23`."""
    denominator: Denominator = "subtracted"
    """Of the form `sos`: whether the hardware subtracts a1 and a2 times its past outputs or adds them. `added`, as by
    SigmaDSP: `words`, and the files `c` and `csv`, have a1 and a2 negated."""

    def as_target(self) -> Target:
        """For `realise`; HttpProblem where the number format does not exist, or a size is that of the other form."""
        unused: dict[str, object] = {"n_taps": N_TAPS}
        if self.form == "fir":
            unused = {"n_sections": DEFAULT_SECTIONS, "denominator": "subtracted"}
        refuse_unused(self, unused, f"with the form {self.form}: send the other form", "target.")
        size = self.n_taps, self.n_sections
        try:
            return Target(self.form, *size, float(self.sample_rate), self.number_format, self.denominator)
        except InvalidOption as error:
            raise HttpProblem("invalid-field", str(error), error.field) from None


class ExportFields(FilterField):
    """Fields of an export, whatever it is for."""

    target: ExportTarget
    file: Literal[FILE_KINDS] | None = None  # type: ignore[valid-type]
    """The answer is this file instead of JSON."""
    max_gain_db: CeilingField = DEFAULT_MAX_GAIN_DB
    """Ceiling on |W| for what is designed anew, as in a design."""
    latency_samples: float = Field(default=0.0, ge=0, le=MAX_LATENCY_SAMPLES)
    """As in a design."""

    def check(self) -> None:
        """Check what the other fields need, and that a filter to design anew does something."""
        super().check()
        if not self.target.as_target().keeps(N_TAPS):
            paths.check_some_taps(self.fir)


class ExportBody(ExportFields, PathsBody):
    """Body of `/export`."""


class ExportConditionsBody(ExportFields, JointBody):
    """Body of `/export` for a filter that serves several conditions."""


Model = TypeVar("Model", bound=BaseModel)
Body = TypeVar("Body", bound=CommonBody)
OneBody = TypeVar("OneBody", bound=PathsBody)
SeveralBody = TypeVar("SeveralBody", bound=JointBody)


def items_of(document: object) -> list[object] | None:
    """The requests of `{"items": [request, ...]}`; None for a body that is one request itself."""
    if not isinstance(document, dict) or "items" not in document:
        return None
    if others := document.keys() - {"items"}:
        name = _shown_name(min(others))
        raise HttpProblem(
            "unknown-field", f"{name}: no other field may stand beside items; put it into each item", name
        )
    items = document["items"]
    if not isinstance(items, list | LongList):
        raise HttpProblem("invalid-field", f"items: {shown(items)} is not a list of requests", "items")
    if not 1 <= len(items) <= MAX_ITEMS:
        raise HttpProblem("out-of-range", f"items: {len(items)} requests; send 1 to {MAX_ITEMS}", "items")
    assert isinstance(items, list)  # a LongList is longer than MAX_ITEMS
    return items


def refuse_unused(fields: object, defaults: Mapping[str, object], why: str, place: str = "") -> None:
    """HttpProblem for the first of some fields that have no effect, unless it has its default: some clients always send
    all. why: they have none, and what to do. place: of the fields in the request."""
    for name, default in defaults.items():
        if getattr(fields, name) != default:
            name = place + name
            raise HttpProblem("invalid-field", f"{name}: it has no effect {why}, or leave {name} out", name)


def read_object(kind: type[Body], document: object) -> Body:
    """Validate one request, or raise HttpProblem."""
    if isinstance(document, dict):
        for field in (ANSWER_FIELDS - kind.model_fields.keys()) & document.keys():
            del document[field]
    read = validated(kind, document)
    read.check()
    return read


def read_paths(document: object, one: type[OneBody], several: type[SeveralBody]) -> OneBody | SeveralBody:
    """The same of a request about one condition or several."""
    is_joint = isinstance(document, dict) and "conditions" in document
    return read_object(several, document) if is_joint else read_object(one, document)


def validated(kind: type[Model], document: object) -> Model:
    """A JSON object as `kind`; the first of pydantic's errors as a HttpProblem."""
    if not isinstance(document, dict):
        raise HttpProblem("invalid-field", f"{shown(document)} is not a JSON object; send one")
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        raise _as_problem(error.errors(include_url=False)[0], kind) from None


def _as_problem(error: ErrorDetails, kind: type[BaseModel]) -> HttpProblem:
    field = ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        return HttpProblem("missing-field", f"{field}: the field is missing; send it", field)
    if error["type"] == "extra_forbidden":
        name = _shown_name(field)
        return HttpProblem("unknown-field", f"{name}: the field is unknown; {_remedy(field, kind)}", name)
    code = "out-of-range" if error["type"] in _RANGE_ERRORS else "invalid-field"
    message = error["msg"].removeprefix("Value error, ")
    if message.startswith(f"{field}: "):  # of a SynthesisError, which names its field and the remedy
        return HttpProblem(code, message, field)
    # Lower only the first letter: the rest may quote a value.
    return HttpProblem(
        code, f"{field}: {shown(error['input'])} is invalid: {message[:1].lower()}{message[1:]}", field
    )


def _remedy(unknown: str, kind: type[BaseModel]) -> str:
    """What to do about a field that `kind` does not have."""
    if unknown in QUERY_OPTIONS and issubclass(kind, DesignBody | ConditionsBody):
        return f"send it as a query parameter, ?{unknown}=.."
    near = get_close_matches(unknown[:80], kind.model_fields, 1)
    return f"remove it, or write {near[0]}" if near else "remove it"
