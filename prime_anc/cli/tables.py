"""Print answers for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from prime_anc.method.bands import NR_BANDS

Read = TypeVar("Read")

_BAR_DB = 30.0
_BAR_WIDTH = 30

MEAN_OF = "50 Hz to 5 kHz"


def columns(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print right-aligned columns under their headings."""
    lines = [tuple(head), *(tuple(_text(cell) for cell in row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        click.echo("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _text(cell: object) -> str:
    return f"{cell:z.1f}" if isinstance(cell, float) else str(cell)


def prediction(found: Mapping[str, Any], beside: Mapping[str, Any] | None = None) -> None:
    """Print noise reduction per band, and the figures."""
    for hz, db in zip(found["band_centre_hz"], found["noise_reduction_db"], strict=True):
        bar = "#" * round(max(0.0, min(db, _BAR_DB)) / _BAR_DB * _BAR_WIDTH)
        louder = "  louder" if db < -1 else ""
        click.echo(f"{hz:7g} Hz {db:z6.1f} dB  {bar}{louder}")
    if shares := found.get("feedback_noise_reduction_db"):
        parts = ", ".join(
            f"{hz:g} Hz {db - part:z.0f} + {part:z.0f} dB"
            for hz, db, part in zip(found["band_centre_hz"], found["noise_reduction_db"], shares, strict=True)
        )
        click.echo(f"filter + controller: {parts}")
    interval = f" +- {found['interval_db']:.1f}" if found.get("interval_db") is not None else ""
    click.echo(
        f"mean noise reduction, {mean_of(found)}: {found['mean_noise_reduction_db']:z.1f}{interval} dB; amplification "
        f"{found['amplification_db']:z.2f} dB; largest |W| {found['max_gain_db']:z.1f} dB"
    )
    if found.get("unknown_bands_hz"):
        bands = ", ".join(f"{hz:g}" for hz in found["unknown_bands_hz"])
        click.echo(
            f"nothing is known at {bands} Hz: the system is silent there, or needs a broader or louder probe"
        )
    if found.get("louder_bands_hz"):
        click.echo(f"louder, or perhaps: {', '.join(f'{hz:g}' for hz in found['louder_bands_hz'])} Hz")
    for item in found.get("conditions", ()):
        left_out = item.get("left_out_noise_reduction_db")
        more = "" if left_out is None else f"; {left_out:z.1f} dB from a filter for the others"
        click.echo(f"  {item['label']}: {item['mean_noise_reduction_db']:z.1f} dB{more}")
    if beside is not None:
        name = wiener_name(bool(found.get("feedback_noise_reduction_db")))
        click.echo(f"{name} (wmmse) on the same paths: {beside['mean_noise_reduction_db']:z.1f} dB")


def wiener_name(has_controller: bool) -> str:
    """Name the Wiener filter that a design is compared with."""
    return "Wiener filter alone" if has_controller else "Wiener filter"


def mean_of(found: Mapping[str, Any]) -> str:
    """Name the bands of the mean noise reduction."""
    counted = found.get("counted_bands_hz")
    if not counted or len(counted) == len(NR_BANDS):
        return MEAN_OF
    return f"{len(counted)} bands that the system has, {counted[0]:g} to {counted[-1]:g} Hz"


def comparison(found: Mapping[str, Any]) -> None:
    """Print a verification: predicted beside measured noise reduction, per band and in the mean."""
    measured = found["measured"]
    bands = zip(measured["band_centre_hz"], measured["noise_reduction_db"], found["band_deviation_db"], strict=True)
    rows = [(f"{hz:g}", db - off, db, f"{off:+z.1f}") for hz, db, off in bands]
    mean, off = measured["mean_noise_reduction_db"], found["deviation_db"]
    interval = measured.get("interval_db")
    columns(
        ("Hz", "predicted dB", "measured dB", "difference dB"),
        [*rows, ("mean, 50 Hz to 5 kHz", mean - off, mean, f"{off:+z.1f}")],
    )
    if interval is not None:
        click.echo(f"the measured mean varies by +- {interval:.1f} dB over the recording")
    click.echo(f"predicted mean: {mean - off:.1f} +- {found['predicted_interval_db']:.1f} dB; {verdict(found)}")


def is_within(found: Mapping[str, Any]) -> bool:
    """Return whether a verification's measured mean lies within the predicted interval."""
    return bool(abs(found["deviation_db"]) <= found["predicted_interval_db"])


def verdict(found: Mapping[str, Any]) -> str:
    """Say whether it does."""
    return f"the measured one lies {'within' if is_within(found) else 'outside'} this interval"


def loop(found: Mapping[str, Any] | None) -> None:
    """Print the loop, if there is one: as designed, or with a new controller on all plants."""
    if found is not None:
        what = "worst of all plants at +-3 dB" if "conditions" in found else "as designed"
        click.echo(f"loop, {what}: {loop_text(found)}")
        each = found.get("conditions", ())
        for item in each if len(each) > 1 else ():
            click.echo(f"  {item['label']}: {loop_text(item)}")


def loop_text(found: Mapping[str, Any]) -> str:
    """Format stability, margins and peak of a loop."""
    return (
        f"{'stable' if found['stable'] else 'UNSTABLE'}; gain margin {found['gain_margin_db']:.1f} dB, phase "
        f"margin {found['phase_margin_deg']:.0f} degrees, peak {found['peak_db']:.1f} dB at "
        f"{found['peak_hz']:.0f} Hz"
    )


def findings(found: Iterable[Mapping[str, str]], word: str = "warning", takes: Sequence[Path] = ()) -> None:
    """Print warnings or findings, one per line, on standard error; `takes` are the files of the request's takes."""
    for item in found:
        click.echo(f"{word}: {item['code']}: {of_files(item['detail'], takes)}", err=True)


def of_files(text: str, takes: Sequence[Path]) -> str:
    """Name the files of the request's takes in place of their numbers."""
    for n, file in reversed(list(enumerate(takes))):
        text = text.replace(f"takes.{n}", str(file))
    return text


def not_judged(found: Iterable[Mapping[str, str]]) -> None:
    """Print what could not be judged, one line per cause, on standard error."""
    causes: dict[str, list[str]] = {}
    for item in found:
        causes.setdefault(item["detail"], []).append(item["code"])
    for cause, codes in causes.items():
        click.echo(f"not judged ({cause}): {', '.join(codes)}", err=True)


def noted(found: tuple[Read, Iterable[str]]) -> Read:
    """Print the notes on what was read, and return it."""
    read, texts = found
    notes(texts)
    return read


def notes(texts: Iterable[str], prefix: str = "note: ") -> None:
    """Print notes on changes to the contents of files, on standard error."""
    for item in texts:
        click.echo(f"{prefix}{item}", err=True)
