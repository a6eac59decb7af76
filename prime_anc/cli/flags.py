"""Flags of the command for the options declared in `prime_anc.options`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from prime_anc.inputs import curves
from prime_anc.method.curve import Curve
from prime_anc.options import controller_schemas, curve_kinds, option_schemas

Command = Callable[..., None]
FILE = click.Path(path_type=Path, dir_okay=False)


def output_flag(text: str, **more: Any) -> Callable[[Command], Command]:
    """Make the flag for the file that a command writes."""
    return click.option("-o", "--output", help=text, **{"type": FILE, **more})


def with_service(command: Command) -> Command:
    """Add options that select the service; the command gets `service`, which is closed after it."""

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
        from prime_anc.cli.service import connect

        with connect(url, key, store, deadline_ms) as service:
            command(service=service, **given)

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


def flag_of(name: str) -> str:
    """Return the flag of an option."""
    return f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"


def option_flag(
    name: str, default: str | None = None, schema: Mapping[str, Any] | None = None
) -> Callable[[Command], Command]:
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
    text = schema["description"].replace("`", "")
    shown = schema.get("default") if default is None else default
    more: dict[str, Any] = {"type": _type_of(name, schema)}
    if schema.get("type") == "boolean":
        more, shown = {"is_flag": True}, None
    if kind := curve_kinds().get(name):
        text += f" In a file: columns of frequency in Hz and {kind.column()}."
    return click.option(
        flag_of(name),
        name,
        default=None,
        help=text,
        show_default=False if shown is None else str(shown),
        **more,
    )


def with_controller(command: Command) -> Command:
    """Add flags for the options of a controller; the command gets `wishes`, fields of `controller`."""
    flags = {
        name: option_flag(f"controller_{name}", schema=schema) for name, schema in controller_schemas().items()
    }
    return _collected("wishes", flags, "controller_")(command)


def options_of(kind: type, but: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Add flags for the options of a kind of request; the command gets `options`, fields of a request.

    Parameters
    ----------
    kind
        Class of `prime_anc.options`.
    but
        Options that the command sets itself. `sign` is among the flags of paths.
    """
    names = [field.name for field in fields(kind) if field.name not in ("sign", *but)]
    return _collected("options", {name: option_flag(name) for name in names})


def _collected(
    into: str, flags: dict[str, Callable[[Command], Command]], prefix: str = ""
) -> Callable[[Command], Command]:
    """Add flags by name; the command gets those that were given as one dictionary."""

    def with_flags(command: Command) -> Command:
        @wraps(command)
        def run(**given: Any) -> None:
            found = {name: value for name in flags if (value := given.pop(prefix + name)) is not None}
            command(**{into: found}, **given)

        flagged: Command = run
        for flag in reversed(flags.values()):
            flagged = flag(flagged)
        return flagged

    return with_flags


def _type_of(name: str, schema: Mapping[str, Any]) -> click.ParamType:
    """Return the type of a flag's value, with its range or choices."""
    if "enum" in schema:
        return click.Choice(schema["enum"])
    if schema.get("type") == "integer":
        return click.IntRange(schema["minimum"], schema["maximum"])
    if schema.get("type") == "number":
        return click.FloatRange(schema["minimum"], schema["maximum"])
    if kind := curve_kinds().get(name):
        return CurveFile(kind, any(item.get("type") == "number" for item in schema.get("anyOf", ())))
    return click.STRING
