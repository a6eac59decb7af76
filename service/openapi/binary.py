"""Binary request bodies in the OpenAPI document, which is text."""

from __future__ import annotations

from typing import Any

from service.http.negotiation import BINARY


def binary_body(layout: str | None, name: str, example: bytes, note: str = "") -> dict[str, Any]:
    """The binary form of a request's body. layout: what says where each byte stands. name, note: of the example."""
    described = f"Written in hexadecimal; the bytes themselves are sent. {note}".strip()
    return {
        BINARY: {
            "schema": {"type": "string", "format": "binary", "description": layout},
            "examples": {name: {"description": described, "value": example.hex(" ", -4)}},
        }
    }
