"""The manifest of a version: what the model is, what it was trained on, and its scores."""

from datetime import UTC, datetime
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, model_validator

from model_store.errors import InvalidName
from model_store.names import check_name
from synthesis.support_statistics import SupportStatistics

SCHEMA_VERSION: Final = 2
MAX_DEPTH = 32

# One row of scores: quantity with its unit (``noise_reduction_db``, ``control_rms``) -> mean over cases.
Figures = Annotated[dict[str, float], Field(min_length=1)]

# Rows by design: ``k=0`` ... ``k=3`` for the model itself, ``wmmse``, ``ratio_base`` ... for what it is measured
# against in the same run.
Table = dict[str, Figures]

Text = Annotated[str, Field(min_length=1)]


def _check_plain(value: JsonValue, depth: int = 0) -> None:
    """Raise ValueError for what a reader of JSON may refuse: deep nesting, and integers beyond 64 bits."""
    if depth > MAX_DEPTH:
        raise ValueError(f"training: its values are nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("training: it holds an integer beyond 64 bits")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_plain(item, depth + 1)


def _name(text: str) -> str:
    try:
        return check_name(text)
    except InvalidName as error:
        raise ValueError(str(error)) from error  # the kind of error that pydantic gathers


def _utc_seconds(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(microsecond=0)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Scores(_Frozen):
    """Time-domain scores, kept apart by whose ears they were measured on.

    Attributes:
        held_out: on listeners that this model never saw.
        split_models: held-out tables of other models, trained alike on part of the listeners, by their names.
            They speak for a model that was trained on everybody and so has no held-out listeners of its own.
        in_support: on listeners that this model was trained on; never to be quoted without that label.
    """

    held_out: Table = {}
    split_models: dict[str, Table] = {}
    in_support: Table = {}

    def noise_reduction_db(self, kind: str, n_updates: int) -> float | None:
        """What the model's designs after that many updates scored on unseen listeners: its own held-out figure, or
        the mean of its split models'. None where no such figure is stated. kind: of the generator.

        A row is called ``k=n``, or as the protocol calls it that compares designs, ``kind`` or ``kind + GN(n)``.
        """
        rows = (f"k={n_updates}", f"{kind} + GN({n_updates})" if n_updates else kind)
        tables = [self.held_out] if self.held_out else [*self.split_models.values()]
        found = [
            table[row]["noise_reduction_db"]
            for table in tables
            for row in rows
            if "noise_reduction_db" in table.get(row, {})
        ]
        return sum(found) / len(found) if found else None


class Manifest(_Frozen):
    """What a version says of itself.

    The trainer states what it knows; `ModelStore.publish` fills in the rest, marked *store*, over whatever stands
    there.

    Attributes:
        schema_version: form of this record.
        name, version: *store*; version is 0 until published, ascending from 1 after.
        created: *store*; when it was published, UTC, whole seconds.
        generator: *store*; `GeneratorConfig.to_dict()` (kind, grid, base, bound, layout).
        n_parameters: *store*; number of the generator's parameters.
        dataset: name of the data set (``pandar``, ``ten-path``, ``simulated``).
        split: index of the split by listener; None for a model trained on every listener.
        seed: training seed.
        support: listeners trained on, each once.
        training: the training's configuration, as plain JSON.
        data_fingerprint: SHA-256 over the data files read, 64 hexadecimal digits, with or without ``sha256:``.
        scores: see `Scores`.
        support_traits: what the support's paths have in common, by which others' are judged. None for a model that
            was published without.
        licence, attribution: of the data, as its owners ask for.
    """

    schema_version: Literal[2] = SCHEMA_VERSION
    name: Annotated[str, AfterValidator(_name)] = "unpublished"
    version: int = Field(default=0, ge=0)
    created: Annotated[AwareDatetime, AfterValidator(_utc_seconds)] | None = None
    generator: dict[str, JsonValue] = {}
    n_parameters: int = Field(default=0, ge=0)
    dataset: Text
    split: int | None = Field(ge=0)
    seed: int = Field(ge=-(2**63), lt=2**63)
    support: tuple[Text, ...] = Field(min_length=1)
    training: dict[str, JsonValue]
    data_fingerprint: Annotated[str, Field(pattern=r"^(sha256:)?[0-9a-f]{64}$")]
    scores: Scores = Scores()
    support_traits: SupportStatistics | None = None
    licence: Text
    attribution: Text

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_plain(self.training)
        if len(set(self.support)) < len(self.support):
            raise ValueError("support: a listener is named twice; name each once")
        if self.split is None and self.scores.held_out:
            raise ValueError(
                "scores.held_out: found figures for a model trained on every listener (split is null), "
                "expected none: label them in_support, or give its split models' under split_models"
            )
        return self

    def published(
        self, name: str, version: int, created: datetime, generator: dict[str, JsonValue], n_parameters: int
    ) -> Self:
        """Copy with the store's fields filled in, everything validated again."""
        filled = {
            "name": name,
            "version": version,
            "created": created,
            "generator": generator,
            "n_parameters": n_parameters,
        }
        return self.model_validate({**self.model_dump(), **filled})
