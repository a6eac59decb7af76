"""A published controller: one K for all listeners of an earphone, in a JSON file that is its own manifest."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from model_store.manifest import Frozen, Published, Text
from prime_anc.hardware.fixed_point import parse_format
from prime_anc.method.errors import InvalidOption
from prime_anc.method.loops.controller import Controller
from prime_anc.method.loops.sections import Sections
from prime_anc.method.types import Loop
from prime_anc.options import MAX_CONTROLLER_SECTIONS

Row = Annotated[tuple[float, ...], Field(min_length=6, max_length=6)]


class Margins(Frozen):
    """Margins of a loop at the level at which it is worst (`prime_anc.method.types.Loop`)."""

    gain_margin_db: float
    phase_margin_deg: float
    max_sensitivity_db: float

    @classmethod
    def of(cls, loop: Loop) -> Self:
        """Return the margins of a loop; ValueError if it is unstable."""
        if not loop.stable:
            raise ValueError("controller: a loop is unstable")
        return cls(**{name: round(getattr(loop, name), 2) for name in cls.model_fields})


class PublishedController(Published):
    """A controller, and the plants with which its loop is stable."""

    SUFFIX: ClassVar[str] = "json"

    # Form of this record.
    schema_version: Literal[1] = 1
    # Rows b0, b1, b2, 1, a1, a2, for e = d - s * y.
    sos: Annotated[tuple[Row, ...], Field(min_length=1, max_length=MAX_CONTROLLER_SECTIONS)]
    # Rate of the chip, Hz.
    sample_rate: float
    # Delay of the chip's loop that secondary paths do not contain.
    latency_us: float
    number_format: Text
    # Loops by plant: listener, ear and way of wearing.
    plants: dict[Text, Margins] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            parse_format(self.number_format)
            Controller(Sections(np.array(self.sos), self.sample_rate), 1e-6 * self.latency_us)
        except InvalidOption as error:
            raise ValueError(str(error)) from error  # the kind of error that pydantic gathers
        return self

    @property
    def manifest(self) -> Self:
        """Return itself, as `Checkpoint.manifest`."""
        return self

    def to_bytes(self, name: str, version: int, created: datetime) -> bytes:
        """Write the file of a version; the same arguments give the same bytes. ValueError for a value out of range."""
        return (self.published(name, version, created).model_dump_json(indent=1) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a version's file, whose digest is already checked; ValueError if it is not one."""
        return cls.model_validate_json(data)
