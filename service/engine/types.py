"""Results and errors of the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from model_store.store import ModelVersion
from prime_anc.method.errors import SynthesisError
from prime_anc.method.types import Design

# Awaitable that returns when the client has disconnected.
Disconnected = Callable[[], Awaitable[object]]


class Designs(NamedTuple):
    """Designs of one call, in the order of its problems, and the model that made them."""

    model: ModelVersion
    designs: list[Design | SynthesisError]


class RefusedJob(Exception):
    """Work that the engine refuses, or did not begin in time."""

    def __init__(
        self, code: str, detail: str, *, field: str | None = None, retry_after_s: float | None = None
    ) -> None:
        """Create the error.

        Parameters
        ----------
        code
            `not-ready`, `overloaded`, `deadline-passed`, `model-unavailable`, `unknown-model` or `default-model`, as
            in the problem documents.
        detail
            What is wrong and what to do, without file names.
        field
            The offending field of the request, if there is one.
        retry_after_s
            Estimated time until a retry can succeed, if known.
        """
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.field = field
        self.retry_after_s = retry_after_s


class ClientDisconnected(Exception):
    """The client disconnected while its work was waiting."""
