"""Flags of the command for the options declared in `prime_anc.options`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import reduce, wraps
from pathlib import Path
from typing import Any

import click

from prime_anc.cli.service import connected
from prime_anc.inputs import curves
from prime_anc.method.curve import Curve
from prime_anc.options import curve_kinds, option_schemas

Command = Callable[..., None]
Flag = Callable[[Command], Command]
FILE = click.Path(path_type=Path, dir_okay=False)


def output_flag(text: str, **more: Any) -> Flag:
    """Make the flag for the file that a command writes."""
    return click.option("-o", "--output", help=text, **{"type": FILE, **more})


def with_service(command: Command) -> Command:
    """Add options that select the service; the command gets `ask`, which sends requests to it."""

    @click.option("--url", envvar="PRIME_URL", help="URL of a running service; default: design in this process.")
    @click.option("--key", envvar="PRIME_API_KEY", help="API key of that service.")
    @click.option("--store", help="Folder or URL of further models, without --url.")
    @click.option(
        "--deadline-ms",
        type=click.FloatRange(1.0, 60_000.0),
        help="Time within which an answer is needed: of a design that would take longer fewer updates are made, and a "
        "busy service is asked again until then; default: the service's, and 30 s.",
    )
    @wraps(command)
    def run(
        *, url: str | None, key: str | None, store: str | None, deadline_ms: float | None, **given: Any
    ) -> None:
        with connected(url, key, store, deadline_ms) as ask:
            command(ask=ask, **given)

    return run


json_flag = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON instead of tables.")


class CurveFile(click.ParamType):
    """A curve over frequency: a file of two columns, or a number where the option may be one."""

    def __init__(self, kind: type[Curve], or_number: bool) -> None:
        self.kind, self.or_number = kind, or_number
        self.name = "number or file" if or_number else "file"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """Read the curve; raises FileError for a file that is not a table."""
        return curves.curve(value, self.kind, self.or_number) if isinstance(value, str) else value


def option_flag(name: str, default: str | None = None, schema: Mapping[str, Any] | None = None) -> Flag:
    """Make the flag of an option; the command gets None if it is not given.

    Parameters
    ----------
    name
        Name of the option.
    default
        Text for the command's default, in place of the declared one.
    schema
        Its declaration; None: that of the option of this name.
    """
    schema = option_schemas()[name] if schema is None else schema
    text, flag = schema["description"].replace("`", ""), "-" + name.replace("_", "-")
    flag = flag if len(name) == 1 else f"-{flag}"
    if kind := curve_kinds().get(name):
        text += f" In a file: columns of frequency in Hz and {kind.column()}."
    if schema.get("type") == "boolean":
        return click.option(flag, name, is_flag=True, default=None, help=text)
    shown = default or schema.get("default")
    return click.option(
        flag, name, type=_type_of(name, schema), help=text, show_default=shown is not None and str(shown)
    )


def option_flags(kind: type, but: tuple[str, ...] = ()) -> dict[str, Flag]:
    """Make the flags of the options of a kind of request, by name.

    Parameters
    ----------
    kind
        Class of `prime_anc.options`.
    but
        Options that the command sets itself. `sign` is among the flags of paths.
    """
    return {item.name: option_flag(item.name) for item in fields(kind) if item.name not in ("sign", *but)}


def with_flags(flags: Iterable[Flag]) -> Flag:
    """Add flags, in this order."""

    def add(command: Command) -> Command:
        return reduce(lambda flagged, flag: flag(flagged), reversed(list(flags)), command)

    return add


def _type_of(name: str, schema: Mapping[str, Any]) -> click.ParamType:
    """Return the type of a flag's value, with its range or choices."""
    ranges: dict[str, Any] = {"integer": click.IntRange, "number": click.FloatRange}
    if "enum" in schema:
        return click.Choice(schema["enum"])
    if kind := curve_kinds().get(name):
        return CurveFile(kind, any(item.get("type") == "number" for item in schema.get("anyOf", ())))
    if schema["type"] in ranges:
        return ranges[schema["type"]](schema["minimum"], schema["maximum"])
    return click.STRING
