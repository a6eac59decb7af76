"""Feedback controllers in requests: one that runs beside the filter, or the wishes for a new one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache, partial
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PlainValidator

from prime_anc.fields import Number
from prime_anc.hardware.fixed_point import parse_format, quantise_sections
from prime_anc.method.errors import InvalidOption
from prime_anc.method.loops.controller import Controller
from prime_anc.method.loops.sections import Sections
from prime_anc.options import ControllerFields, Sign
from prime_anc.requests.errors import RequestError
from prime_anc.requests.reading import validate_object
from prime_anc.requests.strict import StrictModel, naming, shown

MAX_SECTIONS = 16
RATES_HZ = (48_000.0, 768_000.0)
MAX_LATENCY_US = 10_000.0
# Largest magnitude of a coefficient.
LARGEST = 1e12
# Members of an answer's controller that a request ignores: they follow from the others.
DERIVED = frozenset({"words", "shift", "scaling", "max_gain_db", "needed_number_format", "playback_peak_db"})

_Row = Annotated[list[Number], Field(min_length=6, max_length=6)]


def _sos(value: object, most: int) -> NDArray[np.float64]:
    """Read rows b0, b1, b2, 1, a1, a2."""
    if isinstance(value, list | np.ndarray) and not 1 <= len(value) <= most:
        raise RequestError("out-of-range", f"sos: {len(value)} sections; send 1 to {most}", "sos")
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list) or not all(isinstance(row, list) and len(row) == 6 for row in value):
        raise RequestError("invalid-field", "sos: send rows of six numbers, b0, b1, b2, 1, a1, a2", "sos")
    for n, row in enumerate(value):
        for item in row:
            if type(item) not in (int, float) or not abs(item) <= LARGEST:
                found = f"sos: {shown(item)} in section {n} is not a finite number; send numbers"
                raise RequestError("invalid-field", found, "sos")
    rows = np.array(value, np.float64)
    if (rows[:, 3] != 1).any():
        n = int((rows[:, 3] != 1).argmax())
        found = f"sos: a0 of section {n} is {rows[n, 3]:g}; divide the section by it, so that it is 1"
        raise RequestError("invalid-field", found, "sos")
    if not rows[:, :3].any(1).all():
        n = int((~rows[:, :3].any(1)).argmax())
        found = f"sos: section {n} has a gain of zero; send the sections that run, or leave `controller` out"
        raise RequestError("invalid-field", found, "sos")
    return rows


def sections_field(most: int) -> Any:
    """Return the type of a field of up to this many second-order sections, read as float64 [n, 6]."""
    schema = Annotated[list[_Row], Field(min_length=1, max_length=most)]
    return Annotated[Any, PlainValidator(partial(_sos, most=most), json_schema_input_type=schema)]


class RunningController(StrictModel):
    """A feedback controller K that runs beside the filter, y = W x + K e, as `/hybrid` answers it."""

    sos: sections_field(MAX_SECTIONS)  # type: ignore[valid-type]
    """Second-order sections in `sign`, rows b0, b1, b2, 1, a1, a2."""
    sample_rate: Number = Field(ge=RATES_HZ[0], le=RATES_HZ[1])
    """Rate of the chip that runs it, Hz."""
    latency_us: Number = Field(0.0, ge=0, le=MAX_LATENCY_US)
    """Delay of the chip's loop, converters and computation, that `secondary` does not contain."""
    number_format: str = "float64"
    """Format in which the chip holds its coefficients: `float32`, `float64` or `qI.F`."""
    playback_sos: sections_field(MAX_SECTIONS) | None = None  # type: ignore[valid-type]
    """Rows for what is played, which an export's file holds as well."""

    @property
    def controller(self) -> Controller:
        """Return the controller in its number format; RequestError if it is unstable."""
        try:
            return _held(self.sos.tobytes(), float(self.sample_rate), float(self.latency_us), self.number_format)
        except InvalidOption as error:
            is_format = str(error).startswith("number_format")
            field = "number_format" if is_format else "sos"
            detail = str(error) if is_format else f"sos: {str(error).partition(': ')[2]}"
            raise RequestError("invalid-field", detail, field) from None


@lru_cache(64)  # clients repeat one controller, whose response takes longer than a design
def _held(sos: bytes, sample_rate_hz: float, latency_us: float, number_format: str) -> Controller:
    """Return a controller as its number format holds it."""
    sections = Sections(np.frombuffer(sos).reshape(-1, 6), sample_rate_hz)
    # Before the format moves its poles.
    exact = Controller(sections, 1e-6 * latency_us)
    words = parse_format(number_format)
    if words is not None:
        return Controller(quantise_sections(sections, words)[0], exact.latency_s)
    if number_format == "float32":
        return Controller(sections.in_single_precision(), exact.latency_s)
    return exact


@lru_cache(64)
def _negated(controller: Controller) -> Controller:
    return controller.scaled(-1)


def _running(value: object) -> RunningController:
    """Read a controller that runs; RequestError names the faulty field."""
    if isinstance(value, str):
        detail = "controller: no such controller or version is published; see GET /models"
        raise RequestError("unknown-model", detail, "controller")
    if isinstance(value, dict):
        value = {name: item for name, item in value.items() if name not in DERIVED}
    with naming("controller"):
        found = validate_object(RunningController, value)
        _ = found.controller
    return found


ControllerField = Annotated[Any, PlainValidator(_running, json_schema_input_type=RunningController)]


class PublishedRows(Protocol):
    """A published controller: the fields that a request about it has."""

    @property
    def sos(self) -> Any: ...
    @property
    def sample_rate(self) -> float: ...
    @property
    def latency_us(self) -> float: ...
    @property
    def number_format(self) -> str: ...


class ControllerWishes(StrictModel, ControllerFields):
    """What a new controller has to be."""


def _wishes(value: object) -> ControllerWishes:
    """Read the wishes for a controller; RequestError names the faulty field."""
    if isinstance(value, str) or (isinstance(value, dict) and "sos" in value):
        detail = "controller: say what a new one has to be; around an existing one /refine designs a filter"
        raise RequestError("invalid-field", detail, "controller")
    with naming("controller"):
        found = validate_object(ControllerWishes, value)
        try:
            parse_format(found.number_format)
        except InvalidOption as error:
            raise RequestError("invalid-field", str(error), "number_format") from None
    return found


WishesField = Annotated[Any, PlainValidator(_wishes, json_schema_input_type=ControllerWishes)]


def put_published(document: dict[str, Any], kind: Any, find: Callable[[str], PublishedRows]) -> None:
    """Replace the reference of a published controller in a request by the controller, in the request's sign.

    Parameters
    ----------
    document
        Fields of the request, changed in place.
    kind
        Type of the request.
    find
        Returns the published controller of a reference.
    """
    reference = document.get("controller")
    if not isinstance(reference, str) or not getattr(kind, "takes_published", False):
        return
    found = find(reference)
    rows = np.array(found.sos)
    rows[0, :3] *= -1 if document.get("sign") == "plus" else 1
    others = {name: getattr(found, name) for name in ("sample_rate", "latency_us", "number_format")}
    document["controller"] = {"sos": rows} | others


def wanted(wishes: ControllerWishes) -> ControllerFields:
    """Return the wishes as the method takes them."""
    return ControllerFields(**{item.name: getattr(wishes, item.name) for item in fields(ControllerFields)})


def in_sign(controller: Controller, sign: Sign) -> Controller:
    """Return a controller of a request as the method takes it, for e = d - s * y, or the other way round."""
    return controller if sign == "minus" else _negated(controller)
