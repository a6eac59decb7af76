"""Marks of fields in the models of options, bodies and answers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any, Optional, TypeVar, get_args

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

# Of numbers in JSON schemas: single precision in generated clients would move the poles of sections.
NUMBER_FORMAT = "double"
Number = Annotated[float, Field(json_schema_extra={"format": NUMBER_FORMAT})]


@dataclass(frozen=True, eq=False)
class Example:
    """Marks a type with a value of it."""

    value: Any


def without_absent(schema: dict[str, Any]) -> None:
    """Remove defaults that represent an absent field and are not valid values."""
    for field in schema.get("properties", {}).values():
        if "default" in field and field["default"] is None:
            del field["default"]


class NotNull:
    """Validates and documents an optional field by its type alone: absent fields have no null."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        kinds = [kind for kind in get_args(source) if kind is not type(None)]
        return handler.generate_schema(reduce(or_, kinds))


T = TypeVar("T")
# A field that may be absent, and is then None.
Absent = Annotated[Optional[T], NotNull()]  # noqa: UP045  # a TypeVar is substituted only here
