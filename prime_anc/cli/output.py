"""Answers as JSON, on standard output or in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import orjson

from prime_anc.cli import tables

Json = dict[str, Any]


def answered(response: Any, output: Path | None, as_json: bool) -> Json:
    """Return the answer, after saving and printing it if requested."""
    if output is not None:
        save(output, response.content)
    answer: Json = response.json()
    if as_json:
        click.echo(response.content.decode())
    return answer


def save(output: Path, content: bytes) -> None:
    """Write a file, and say so."""
    output.write_bytes(content)
    tables.notes([f"written: {output}"], "")


def print_json(value: object) -> None:
    """Print a value, indented."""
    click.echo(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_INDENT_2).decode())
