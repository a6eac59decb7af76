"""What an answer is: fields that are filled by keyword, read from JSON, documented and shown."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, TypeAdapter, WithJsonSchema

from prime_anc.fields import NUMBER_FORMAT, Example, Number, without_absent
from prime_anc.method.bands import BAND_CENTRE_HZ
from prime_anc.method.conventions import N_BINS, N_TAPS
from prime_anc.method.profiles import MAX_UPDATES

if TYPE_CHECKING:
    Values = NDArray[np.floating[Any]]
else:
    Values = Any  # pydantic takes the schema from the mark beside it

N_BANDS = len(BAND_CENTRE_HZ)

Kind = TypeVar("Kind")


class Numbers(WithJsonSchema):
    """Marks an array: a list of finite numbers in JSON."""

    def __init__(self, low: int, high: int | None = None, dtype: type[np.floating[Any]] = np.float32) -> None:
        """Limit the number of values to low to high, or without high to exactly low."""
        self.limits, self.dtype = (low, low if high is None else high), dtype
        limits = dict(zip(("minItems", "maxItems"), self.limits, strict=True))
        super().__init__({"type": "array", "items": {"type": "number", "format": NUMBER_FORMAT}, **limits})

    def read(self, values: object) -> NDArray[Any]:
        """Return read-only values; raises ValueError for others than finite ones within the limits."""
        array = np.array(values, self.dtype)
        low, high = self.limits
        if array.ndim != 1 or not low <= len(array) <= high or not np.isfinite(array).all():
            raise ValueError(f"{list(array.shape)} numbers are not {low} to {high} finite ones")
        array.flags.writeable = False
        return array


@dataclass_transform(frozen_default=True, eq_default=False, kw_only_default=True)
class Answer:
    """An answer: immutable, with fields by keyword; those that may be absent are then None."""

    __pydantic_config__ = ConfigDict(use_attribute_docstrings=True, json_schema_extra=without_absent)

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False, kw_only=True, repr=False)(cls)

    def __repr__(self) -> str:
        shown = ", ".join(f"{item.name}={_shown(getattr(self, item.name))}" for item in fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({shown})"

    def save(self, file: str | PathLike[str]) -> None:
        """Write the answer as JSON, which the command and `read` take."""
        import orjson

        Path(file).write_bytes(orjson.dumps(document(self), option=orjson.OPT_SERIALIZE_NUMPY))


def document(value: Any) -> Any:
    """Return an answer as dictionaries and lists of numbers, texts and arrays, without what is absent."""
    if isinstance(value, Answer):
        items = ((field, getattr(value, field.name)) for field in fields(value))  # type: ignore[arg-type]
        return {
            field.name: document(item) for field, item in items if item is not None or field.default is not None
        }
    if isinstance(value, dict):
        return {name: document(item) for name, item in value.items()}
    return [document(item) for item in value] if isinstance(value, list | tuple) else value


def read(kind: type[Kind], found: Mapping[str, Any]) -> Kind:
    """Make an answer of its JSON; members that it does not name are left out.

    Raises
    ------
    ValueError
        It has not the fields of this answer.
    """
    try:
        readers: Mapping[str, Callable[[Any], Any]] = _readers(kind)  # type: ignore[arg-type]
        return kind(**{name: make(found[name]) for name, make in readers.items() if name in found})
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"it is no {kind.__name__}: {error}") from error


@cache
def _readers(kind: type) -> dict[str, Callable[[Any], Any]]:
    """Return the reader of each field."""
    return {name: _reader(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return the reader of a type."""
    for mark in getattr(hint, "__metadata__", ()):
        if isinstance(mark, Numbers):
            return mark.read
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Annotated, Union, UnionType):
        inner = _reader(arguments[0])
        return lambda value: None if value is None else inner(value)
    if origin is list:
        item = _reader(arguments[0])
        return lambda values: [item(value) for value in values]
    if is_dataclass(hint):
        return lambda value: read(hint, value)  # type: ignore[arg-type]
    return lambda value: value


def texts(kind: type[Answer]) -> dict[str, str]:
    """Return the texts of an answer's fields, by dotted name."""
    schema = TypeAdapter(kind).json_schema(mode="serialization")

    def inside(part: dict[str, Any], place: str) -> Iterator[tuple[str, str]]:
        part = schema["$defs"][part["$ref"].rpartition("/")[2]] | part if "$ref" in part else part
        yield place, part.get("description", "")
        for name, inner in part.get("properties", {}).items():
            yield from inside(inner, f"{place}.{name}".lstrip("."))

    return dict(inside(schema, ""))


def _shown(value: object) -> str:
    """Shorten a value for the representation of its answer."""
    if isinstance(value, np.ndarray):
        return f"<{' x '.join(map(str, value.shape))} numbers>"
    return f"{value:.4g}" if isinstance(value, float) else reprlib.repr(value)


Taps = Annotated[Values, Numbers(N_TAPS), Example([0.5, 0.25] + [0.0] * (N_TAPS - 2))]
PerBand = Annotated[Values, Numbers(N_BANDS)]
PerBin = Annotated[Values, Numbers(N_BINS)]
PerUpdate = Annotated[list[Number], Field(max_length=MAX_UPDATES)]
BandCentres = Annotated[Values, Numbers(N_BANDS), Example(BAND_CENTRE_HZ)]
Time = Annotated[Number | None, Field(ge=0)]
Updates = Annotated[int, Field(ge=0, le=MAX_UPDATES)]
