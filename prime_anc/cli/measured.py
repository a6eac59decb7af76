"""Arguments and options for measured paths, and what they give a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from prime_anc.cli import tables
from prime_anc.cli.flags import FILE, Command, Flag, option_flag, option_flags, with_flags
from prime_anc.inputs import curves, filters
from prime_anc.inputs.ears import ears as read_ears
from prime_anc.inputs.ears import n_bins as count_bins
from prime_anc.inputs.ears import separate

Json = dict[str, Any]

_FLAGS: Sequence[Flag] = (
    click.argument("ears", nargs=-1, type=FILE),
    click.option(
        "--primary",
        type=FILE,
        help="File of the primary path, in place of EARS; FILE#CHANNEL, FILE#3 or FILE#name[1,2] names one of "
        "several channels, counted from 1.",
    ),
    click.option("--secondary", type=FILE, help="File of the secondary path."),
    click.option("--feedback", type=FILE, help="File of the path from loudspeaker to outer microphone."),
    click.option(
        "--side",
        type=click.Choice(["left", "right"]),
        default="left",
        help="Which ear, of files with both.",
    ),
    option_flag("sign", default="as measured, else minus"),
    click.option(
        "--weight",
        "weights",
        type=float,
        multiple=True,
        help="Weight of one of several EARS; repeat it, in their order.",
    ),
    click.option(
        "--reference-psd",
        "noise",
        type=FILE,
        help="The noise to expect: a recording, or columns of frequency in Hz and power density in dB.",
    ),
)
_RUNNING = click.option(
    "--controller",
    help="What runs beside the filter, instead of what its file says: a published controller, a file of `hybrid`, or "
    "of `verify`, which holds the trimmed one.",
)


@dataclass(frozen=True)
class Measured:
    """What the flags and files say of measured paths."""

    # Labelled paths of each measurement.
    conditions: Sequence[Json]
    # Fields of a request that they share: sign, noise, the controller that runs, and the filter if there is one.
    shared: Json
    # Options that were given, or that a session sets.
    options: Json
    # What a file says of the controller that runs.
    about: Json
    # A session's conditions that are only for stability.
    others: Sequence[Json]
    files: Sequence[Path]
    # The filter's file, if the request is about one.
    control_filter: Path

    def alone(self, condition: Json) -> Json:
        """Return the fields of a request about a single measurement."""
        return self.shared | {name: value for name, value in condition.items() if name != "weight"}

    @property
    def paths(self) -> Json:
        """Return the fields of a request about all measurements."""
        if len(self.conditions) == 1:
            return self.alone(self.conditions[0])
        return self.shared | {"conditions": self.conditions}

    @property
    def body(self) -> Json:
        """Return paths and options."""
        return self.paths | self.options


def with_paths(
    kind: type | None = None,
    but: tuple[str, ...] = (),
    *,
    of_filter: bool = False,
    has_rate: bool = False,
    designs_controller: bool = False,
) -> Flag:
    """Add arguments and options for measured paths; the command gets `ear`, as Measured.

    Parameters
    ----------
    kind, but
        Options of the request, as for `option_flags`.
    of_filter
        Whether the request is about a filter, whose file is the first argument.
    has_rate
        Whether `--rate` is the hardware's.
    designs_controller
        Whether the command designs a controller, so that none runs.
    """
    options = {} if kind is None else option_flags(kind, but)
    rates = ("--file-rate",) if has_rate else ("--rate", "--file-rate")
    rate = click.option(*rates, "file_rate", type=float, help="Sample rate of files that state none, Hz.")
    first = [click.argument("control_filter", type=FILE)] if of_filter else []
    running = [] if designs_controller else [_RUNNING]

    def add(command: Command) -> Command:
        @wraps(command)
        def run(**given: Any) -> None:
            chosen = {name: value for name in options if (value := given.pop(name)) is not None}
            ear, rest = _measured(**given)
            settings = {name: value for name, value in ear.options.items() if name in options}
            command(ear=replace(ear, options=settings | chosen), **rest)

        return with_flags([*first, *running, *_FLAGS, rate, *options.values()])(run)

    return add


def _measured(
    *,
    ears: Sequence[Path],
    primary: Path | None,
    secondary: Path | None,
    feedback: Path | None,
    side: str,
    file_rate: float | None,
    sign: str | None,
    weights: Sequence[float],
    noise: Path | None,
    control_filter: Path | None = None,
    controller: str | None = None,
    **rest: Any,
) -> tuple[Measured, Json]:
    """Read the files; `options` are all that a session sets. The rest of the command's arguments is returned."""
    if (primary is None) != (secondary is None) or bool(ears) == (primary is not None):
        raise click.UsageError("give measurements (EARS), or one file each with --primary and --secondary")
    measured: list[tuple[str, Json]] = []
    settings: Json = {}
    others: list[Json] = []
    if primary is not None:
        found = separate(file_rate, primary=primary, secondary=secondary, feedback=feedback)
        measured.append((primary.stem, tables.noted(found)))
    for file in ears:
        more, notes, settings = read_ears(file, side, file_rate)
        tables.notes(f"{file}: {note}" for note in notes)
        measured += more
        others += settings.pop("others", [])
    if len(ears) > 1:
        settings = {}
    if ears and feedback is not None:
        _add_feedback(measured, ears[0], tables.noted(separate(file_rate, feedback=feedback)))
    signs = {fields.pop("sign", "minus") for _, fields in measured}
    if len(signs) > 1:
        raise click.UsageError("the measurements have different signs; calibrate all with the same --sign")
    shared: Json = {"sample_rate": 48_000, "sign": sign or signs.pop()}
    weights = weights or [1.0] * len(measured)
    if len(weights) != len(measured):
        raise click.UsageError(f"{len(weights)} weights for {len(measured)} measurements; give one per measurement")
    each = zip(measured, weights, strict=True)
    conditions = [fields | {"label": label[:80], "weight": weight} for (label, fields), weight in each]
    if noise is not None:
        shared["reference_psd"] = tables.noted(curves.reference_psd(noise, count_bins(conditions[0])))
    elif "reference_psd" in settings:
        shared["reference_psd"] = settings["reference_psd"]
    about, limit = Json(), Json()
    if controller is not None:
        shared["controller"], about = filters.controller(controller)
    elif "controller" in settings and control_filter is None:
        shared["controller"], about = settings["controller"], settings["controller_about"]
    tables.findings(about.get("warnings", ()))
    if control_filter is not None:
        shared = tables.noted(filters.about_filter(shared | {"conditions": conditions}, control_filter, file_rate))
        conditions = shared.pop("conditions")
    elif "max_louder_db" in about:
        limit["max_louder_db"] = about["max_louder_db"]
    files = [*ears, *filter(None, (primary, secondary))]
    ear = Measured(conditions, shared, limit | settings, about, others, files, control_filter or Path())
    return ear, rest


def _add_feedback(measured: list[tuple[str, Json]], file: Path, fields: Json) -> None:
    """Add a feedback path to a single measurement."""
    if len(measured) > 1:
        raise click.UsageError("--feedback is for a single measurement; several have theirs in their files")
    _, known = measured[0]
    if "coherence" in known and "feedback" not in known:
        text = "from a recording with --gain, its secondary path includes what returns by the feedback path; "
        tables.notes([f"{file}: {text}calibrate with --drive, which tells both apart"])
    known.update(fields)
