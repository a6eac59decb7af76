"""Arguments and options for measured paths, and what they give a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from prime_anc.cli import tables
from prime_anc.cli.flags import FILE, option_flag
from prime_anc.inputs import curves, filters
from prime_anc.inputs.ears import ears as read_ears
from prime_anc.inputs.ears import n_bins as count_bins
from prime_anc.inputs.ears import separate

Json = dict[str, Any]
Command = Callable[..., None]


def _path_flags(rate_flags: Sequence[str]) -> list[Callable[[Command], Command]]:
    """Make the argument and the options for measured paths."""
    return [
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
            show_default=True,
        ),
        click.option(*rate_flags, "file_rate", type=float, help="Sample rate of files that state none, Hz."),
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
    ]


def with_paths(command: Command) -> Command:
    """Add arguments and options for measured paths; the command gets `paths`, fields of a request.

    A command that takes a filter's file also gets `file_rate`, one with `files` their names, one with `beside` what a
    file says of the controller that runs, one with `others` a session's conditions only for stability, beside which a
    single measurement is a condition with its name, too. All but one that designs a controller take one that runs.
    """
    takes_filter = "file_rate" in command.__annotations__
    takes_files = "files" in command.__annotations__
    takes_beside = "beside" in command.__annotations__
    takes_others = "others" in command.__annotations__
    # `export` uses --rate for the hardware's rate.
    flags = _path_flags(("--file-rate",) if "rate" in command.__annotations__ else ("--rate", "--file-rate"))
    if "wishes" not in command.__annotations__:
        text = "What runs beside the filter, instead of what its file says: a published controller, a file of "
        text += "`hybrid`, or of `verify`, which holds the trimmed one."
        flags.insert(0, click.option("--controller", help=text))

    @wraps(command)
    def run(
        *,
        sign: str | None,
        weights: Sequence[float],
        noise: Path | None,
        controller: str | None = None,
        **given: Any,
    ) -> None:
        measured = {name: given.pop(name) for name in _MEASURED}
        paths, settings = _paths(**measured, is_named=takes_others)
        others = settings.pop("others", [])
        given |= {name: value for name, value in settings.items() if given.get(name, ...) is None}
        about: Json = {}
        paths |= {"sample_rate": 48_000} | ({} if sign is None else {"sign": sign})
        if weights:
            _weigh(paths, weights)
        if noise is not None:
            n_bins = count_bins(paths.get("conditions", [paths])[0])
            paths["reference_psd"] = tables.noted(curves.reference_psd(noise, n_bins))
        elif "reference_psd" in settings:
            paths["reference_psd"] = settings["reference_psd"]
        if controller is not None:
            paths["controller"], about = filters.controller(controller)
        elif "controller" in settings and not takes_filter:
            paths["controller"], about = settings["controller"], settings["controller_about"]
        if takes_filter:
            given["file_rate"] = measured["file_rate"]
        if takes_files:
            given["files"] = (*measured["ears"], *filter(None, (measured["primary"], measured["secondary"])))
        if takes_beside:
            tables.findings(about.get("warnings", ()))
            given["beside"] = about
        if takes_others:
            given["others"] = others
        command(paths=paths, **given)

    flagged: Command = run
    for flag in reversed(flags):
        flagged = flag(flagged)
    return flagged


def _weigh(paths: Json, weights: Sequence[float]) -> None:
    """Give every measurement its weight, in place."""
    conditions = paths.get("conditions", ())
    if len(weights) != len(conditions):
        n = len(conditions) or 1
        raise click.UsageError(f"{len(weights)} weights for {n} measurements; give one per measurement")
    for condition, weight in zip(conditions, weights, strict=True):
        condition["weight"] = weight


# Flags of `with_paths` that `_paths` takes.
_MEASURED = ("ears", "primary", "secondary", "feedback", "side", "file_rate")


def _paths(
    ears: Sequence[Path],
    primary: Path | None,
    secondary: Path | None,
    feedback: Path | None,
    side: str,
    file_rate: float | None,
    is_named: bool,
) -> tuple[Json, Json]:
    """Return fields of a request, for a single measurement as conditions if it `is_named`, and a session's options."""
    if (primary is None) != (secondary is None) or (bool(ears) == (primary is not None)):
        raise click.UsageError("give measurements (EARS), or one file each with --primary and --secondary")
    measured: list[tuple[str, Json]] = []
    if primary is not None and secondary is not None:
        given = separate(file_rate, primary=primary, secondary=secondary, feedback=feedback)
        measured.append((primary.stem, tables.noted(given)))
        feedback = None
    settings: Json = {}
    others: list[Json] = []
    for file in ears:
        found, notes, settings = read_ears(file, side, file_rate)
        tables.notes(f"{file}: {note}" for note in notes)
        measured += found
        others += settings.pop("others", [])
    settings = (settings if len(ears) == 1 else {}) | {"others": others}
    if feedback is not None:
        if len(measured) > 1:
            raise click.UsageError("--feedback is for a single measurement; several have theirs in their files")
        fields = tables.noted(separate(file_rate, feedback=feedback))
        if "coherence" in measured[0][1] and "feedback" not in measured[0][1]:
            tables.notes(
                [
                    f"{ears[0]}: from a recording with --gain, its secondary path includes what returns by "
                    "the feedback path; calibrate with --drive, which tells both apart"
                ]
            )
        measured = [(measured[0][0], measured[0][1] | fields)]
    if len(measured) == 1 and not is_named:
        return measured[0][1], settings
    signs = {fields.pop("sign", "minus") for _, fields in measured}
    if len(signs) > 1:
        raise click.UsageError("the measurements have different signs; calibrate all with the same --sign")
    return {
        "conditions": [fields | {"label": label[:80]} for label, fields in measured],
        "sign": signs.pop(),
    }, settings


def by_measurement(paths: Json) -> list[tuple[str, Json]]:
    """Return label and fields per measurement."""
    rest = {name: path for name, path in paths.items() if name != "conditions"}
    return [
        (path["label"], rest | {name: value for name, value in path.items() if name not in ("label", "weight")})
        for path in paths.get("conditions", [paths | {"label": ""}])
    ]
