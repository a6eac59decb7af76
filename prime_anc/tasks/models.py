"""A model as tasks take it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from prime_anc.answers import ModelReference
from prime_anc.method.types import Fallback, Model
from prime_anc.requests.errors import RequestError


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A published model in memory."""

    # Named in answers.
    reference: ModelReference
    model: Model
    # When a Wiener filter replaces the generator's.
    fallback: Fallback

    @cached_property
    def on_core(self) -> Model:
        """Return the model on the C core, which any thread may call; other backends belong to their threads."""
        core = self.model.core
        return self.model if self.model.backend is core else Model(self.model.parameters, core)


def split_reference(reference: str) -> tuple[str, str]:
    """Split a reference into the name, and the digest that the model must have, or ""."""
    name, _, digest = reference.partition(":")
    return name, digest


def require_digest(digest: str, reference: ModelReference) -> None:
    """Raise RequestError for a version whose digest is not the one that a request states, if it states one."""
    if digest not in ("", reference.digest):
        raise RequestError(
            "unknown-model",
            f"{reference.name}@{reference.version} has the digest {reference.digest} here, and not that of the "
            "request; name another model",
            "model",
        )
