"""Answers about the service and its models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from prime_anc.answers.designs import ModelReference
from prime_anc.answers.model import Answer
from prime_anc.fields import Absent, Example, Number


class ModelDescription(Answer):
    """The manifest of a version, and whether it is in memory."""

    name: Annotated[str, Example("generic")]
    version: Annotated[int, Field(ge=1), Example(1)]
    digest: Annotated[str, Example("sha256:" + "0123456789abcdef" * 4)]
    resident: bool
    dataset: Annotated[str, Example("pandar")]
    split: Annotated[int | None, Example(3)]
    seed: Annotated[int, Example(0)]
    scores: Annotated[dict[str, Any], Example({})]


class ControllerDescription(Answer):
    """The manifest of a version of a published controller, with its coefficients and the margins on every plant."""

    name: str
    version: Annotated[int, Field(ge=1)]
    digest: str
    dataset: str
    sos: list[list[Number]]
    sample_rate: Number
    latency_us: Number
    number_format: str


class ModelList(Answer):
    """Published models."""

    default: Annotated[str, Example("generic")]
    aliases: Annotated[dict[str, str], Example({"live": "generic@1"})]
    models: list[ModelDescription]
    controllers: Annotated[list[ControllerDescription], Example([])]
    broken: Annotated[dict[str, str], Example({})]
    """Damaged entries of the store, with the reason."""


class UnloadedModels(Answer):
    """Unloaded versions."""

    unloaded: Annotated[list[ModelReference], Field(min_length=1)]


class ResidentModelsAnswer(Answer):
    """Versions in memory after a reload."""

    resident: Annotated[list[ModelReference], Field(min_length=1)]


class Live(Answer):
    """The service responds and needs no restart."""

    status: Literal["live"]


class Ready(Answer):
    """The service is ready for requests."""

    status: Literal["ready"]
    device: Annotated[str, Example("cpu")]
    models: list[ModelReference]


class ProblemDocument(Answer):
    """A problem document (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    """What is wrong and what to do."""
    field: Absent[str] = None
    """Dotted name of the faulty field."""
