"""Flags of the command for the options declared in `synthesis.options`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from typing import Any

import click

from cli import inputs
from synthesis.options import option_schemas

Command = Callable[..., None]


class GainLimit(click.ParamType):
    """Ceiling on |W|: a number, or a file of two columns."""

    name = "number or file"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """Read the ceiling; raises FileError for a file that is not a table."""
        return inputs.gain_limit(value) if isinstance(value, str) else value


def flag_of(name: str) -> str:
    """Return the flag of an option."""
    return f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"


def option_flag(name: str, default: str | None = None) -> Callable[[Command], Command]:
    """Make the flag of an option; the command gets None if it is not given.

    Parameters
    ----------
    name
        Name of the option.
    default
        Text for the command's default, in place of the declared one.
    """
    schema = option_schemas()[name]
    text = schema["description"].replace("`", "")
    shown = schema.get("default") if default is None else default
    more: dict[str, Any] = {"type": _type_of(schema)}
    if schema.get("type") == "boolean":
        more, shown = {"is_flag": True}, None
    if isinstance(more.get("type"), GainLimit):
        text += " In a file: columns of frequency in Hz and gain in dB."
    return click.option(
        flag_of(name),
        name,
        default=None,
        help=text,
        show_default=False if shown is None else str(shown),
        **more,
    )


def _type_of(schema: Mapping[str, Any]) -> click.ParamType:
    """Return the type of a flag's value, with its range or choices."""
    if "enum" in schema:
        return click.Choice(schema["enum"])
    if schema.get("type") == "integer":
        return click.IntRange(schema["minimum"], schema["maximum"])
    if schema.get("type") == "number":
        return click.FloatRange(schema["minimum"], schema["maximum"])
    if any("$ref" in item for item in schema.get("anyOf", ())):
        return GainLimit()
    return click.STRING


def options_of(kind: type, but: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Add flags for the options of a kind of request; the command gets `options`, fields of a request.

    Parameters
    ----------
    kind
        Class of `synthesis.options`.
    but
        Options that the command sets itself. `sign` is among the flags of paths.
    """
    names = [field.name for field in fields(kind) if field.name not in ("sign", *but)]

    def with_flags(command: Command) -> Command:
        @wraps(command)
        def run(**given: Any) -> None:
            options = {name: value for name in names if (value := given.pop(name)) is not None}
            command(options=options, **given)

        flagged: Command = run
        for name in reversed(names):
            flagged = option_flag(name)(flagged)
        return flagged

    return with_flags
