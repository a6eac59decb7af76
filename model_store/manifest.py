"""Names of models, and the manifest of a version: its training and its scores.

A *name* matches ``[a-z0-9][a-z0-9_-]{0,63}``: it names a folder, so it has no separator, no dot and no capital letter
(names that differ only in case would collide on some file systems). A *reference* is a name or an alias (the latest
version), or ``name@version``.
"""

import re
from datetime import UTC, datetime
from typing import Annotated, Literal, NamedTuple, Self

import orjson
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, model_validator

from model_store.errors import InvalidName
from prime_anc.method.support.statistics import SupportStatistics
from prime_anc.method.support.wearing import WearingChange

NAME, VERSION = r"[a-z0-9][a-z0-9_-]{0,63}", r"[1-9][0-9]{0,8}"

# One row of scores: quantity with its unit (``noise_reduction_db``, ``control_rms``) -> mean over cases.
Figures = Annotated[dict[str, float], Field(min_length=1)]

# Rows by design: ``k=0`` ... ``k=3`` for the model, ``wmmse``, ``ratio_base`` ... for references in the same run.
Table = dict[str, Figures]

Text = Annotated[str, Field(min_length=1)]


class Reference(NamedTuple):
    """A parsed reference; `version` is None for the latest."""

    name: str
    version: int | None

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name}@{self.version}"


def is_name(text: str) -> bool:
    """Return whether `text` is a valid name."""
    return re.fullmatch(NAME, text) is not None


def parse_reference(text: str) -> Reference:
    """Split ``name`` or ``name@version``; raises InvalidName."""
    matched = re.fullmatch(f"({NAME})(?:@({VERSION}))?", text)
    if matched is None:
        shown = ascii(text if len(text) <= 80 else text[:80] + "...")
        expected = f"{NAME}, or this with @ and a whole number from 1 to 999999999"
        raise InvalidName(f"model name: found {shown}, expected {expected}")
    return Reference(matched[1], int(matched[2]) if matched[2] else None)


def check_name(text: str) -> str:
    """Return `text` if it is a name without a version, else raise InvalidName."""
    if parse_reference(text).version is not None:
        raise InvalidName(f"model name: found {text!r}, expected a name without a version")
    return text


def _utc_seconds(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(microsecond=0)


class Frozen(BaseModel):
    """A record that refuses unknown fields and is never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Scores(Frozen):
    """Time-domain scores, separated by the listeners that they were measured on."""

    # Listeners that this model was not trained on.
    held_out: Table = {}
    # Held-out tables, by name, of models trained alike on part of the listeners. They represent a model trained on all
    # listeners, which has none held out.
    split_models: dict[str, Table] = {}
    # Listeners that this model was trained on; always quoted with that label.
    in_support: Table = {}

    def noise_reduction_db(self, kind: str, n_updates: int) -> float | None:
        """Return the score of the model's designs after n updates on unseen listeners, or the mean of its split
        models'.

        None if no such score is stated. Rows are named ``k=n``, or ``kind`` and ``kind + GN(n)`` with the generator's
        kind.
        """
        rows = (f"k={n_updates}", f"{kind} + GN({n_updates})" if n_updates else kind)
        tables = [self.held_out] if self.held_out else [*self.split_models.values()]
        scores = [table[row].get("noise_reduction_db") for table in tables for row in rows if row in table]
        known = [score for score in scores if score is not None]
        return sum(known) / len(known) if known else None


class Published(Frozen):
    """What the manifests of a model and of a controller share.

    The publisher fills in its fields; `ModelStore.publish` sets those marked *store*.
    """

    # *store*.
    name: Annotated[str, Field(pattern=f"^{NAME}$")] = "unpublished"
    # *store*; 0 until published, ascending from 1 after.
    version: int = Field(default=0, ge=0)
    # *store*; publication time, UTC, whole seconds.
    created: Annotated[AwareDatetime, AfterValidator(_utc_seconds)] | None = None
    # Earphone whose listeners' paths are known; None for a model that knows no device.
    device: Text | None = None
    # Name of the data set (``pandar``, ``ten-path``, ``simulated``).
    dataset: Text
    # Listeners whose paths were used.
    support: tuple[Text, ...] = Field(min_length=1)
    # Sha256 over the data files, 64 hexadecimal digits, with or without ``sha256:``.
    data_fingerprint: Annotated[str, Field(pattern=r"^(sha256:)?[0-9a-f]{64}$")]
    # Licence of the data.
    licence: Text
    # Attribution required by the owners of the data.
    attribution: Text

    def published(self, name: str, version: int, created: datetime, **others: JsonValue) -> Self:
        """Copy with the store's fields filled in, everything validated again."""
        filled = {"name": name, "version": version, "created": created, **others}
        return self.model_validate({**self.model_dump(), **filled})


class Manifest(Published):
    """Description of a version of a model."""

    # Form of this record.
    schema_version: Literal[2] = 2
    # *store*; `GeneratorConfig.to_dict()` (kind, grid, base, bound, layout).
    generator: dict[str, JsonValue] = {}
    # *store*; number of the generator's parameters.
    n_parameters: int = Field(default=0, ge=0)
    # Index of the split by listener; None for a model trained on all listeners.
    split: int | None = Field(ge=0)
    # Training seed.
    seed: int = Field(ge=-(2**63), lt=2**63)
    # Configuration of the training, plain JSON.
    training: dict[str, JsonValue]
    scores: Scores = Scores()
    # Statistics of the support's paths, for judging others; None if not published.
    support_traits: SupportStatistics | None = None
    # How the support's secondary paths change by wearing; empty if not published.
    wearing: Annotated[tuple[WearingChange, ...], Field(max_length=16)] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            orjson.dumps(self.training)
        except orjson.JSONEncodeError as error:
            raise ValueError(f"training: {error}") from error  # the kind of error that pydantic gathers
        return self
