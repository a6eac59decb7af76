"""The error of a request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class RequestError(Exception):
    """A request that cannot be used."""

    # Stable short code, such as `missing-field`; `service.errors.PROBLEMS` lists them with their HTTP status.
    code: str
    # Fault and remedy, without files, addresses or other details of this machine.
    detail: str
    # Dotted name of the field at fault.
    field: str | None = None

    def __str__(self) -> str:
        return self.detail
