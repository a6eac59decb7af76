"""Answers and errors of the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from model_store.store import ModelVersion
from synthesis.plausibility import Finding
from synthesis.types import Design, Prediction

Disconnected = Callable[[], Awaitable[object]]
"""Awaitable that returns when the client has disconnected."""

Replaced = Literal["not_finite", "predicted_worse"]


@dataclass(frozen=True, eq=False)
class DesignAnswer:
    """One ear's filter, with its model and method.

    method: method of the filter, a Wiener filter's if the fallback replaced the generator's. n_requested: requested
    number of updates. design: its `refinement.stopped` may also be `deadline`, if the deadline allowed only fewer
    updates; its `times_ms` include `queue`. replaced_because: why the fallback replaced the filter, if it did.
    implausible: what is wrong with the paths beside those of the model's support.
    """

    model: ModelVersion
    method: str
    n_requested: int
    design: Design
    replaced_because: Replaced | None = None
    implausible: tuple[Finding, ...] = ()


@dataclass(frozen=True, eq=False)
class EvaluationAnswer:
    """Predicted effect of a given filter.

    times_ms as in `Design`, with `queue`; implausible as in `DesignAnswer`.
    """

    model: ModelVersion
    prediction: Prediction
    times_ms: dict[str, float]
    implausible: tuple[Finding, ...] = ()


class Refused(Exception):
    """Work that the engine refuses, or did not begin in time.

    code: `not-ready`, `overloaded`, `deadline-passed`, `model-unavailable`, `unknown-model` or `default-model`, as
    in the problem documents. detail: what is wrong and what to do, without file names. retry_after_s: estimated
    time until a retry can succeed, if known.
    """

    def __init__(
        self, code: str, detail: str, *, field: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.field = field
        self.retry_after_s = retry_after_s


class ClientDisconnected(Exception):
    """The client disconnected while its work was waiting."""
