"""`prime-anc export` and `prime-anc targets`: filters as hardware runs them, and files of filters."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import orjson
from httpx import Response

from prime_anc.cli import tables
from prime_anc.cli.flags import FILE, json_flag, with_service
from prime_anc.cli.measured import Measured, with_paths
from prime_anc.cli.service import Ask
from prime_anc.hardware.filter_files import KINDS, equation
from prime_anc.hardware.realise import MAX_SECTIONS, SAMPLE_RATES_HZ
from prime_anc.hardware.targets import target as known_target
from prime_anc.hardware.targets import targets as known_targets
from prime_anc.inputs import filters
from prime_anc.measure.files.errors import FileError
from prime_anc.method.conventions import MAX_TAPS, SAMPLE_RATE_HZ
from prime_anc.options import ObjectiveFields, controller_schemas

Json = dict[str, Any]

DEVICE = click.Choice(list(known_targets()))

# Loss of sections beyond any earphone's, whose filter hardly delays: on 30 ears at most 4 dB with eight, 6 with four.
SECTIONS_LOST_DB = 10.0


@click.command()
@with_paths(ObjectiveFields, of_filter=True, has_rate=True)
@click.option(
    "--sections", "n_sections", type=click.IntRange(1, MAX_SECTIONS), help="Second-order sections; default: 8."
)
@click.option("--taps", "n_taps", type=click.IntRange(1, MAX_TAPS), help="Number of taps, in place of sections.")
@click.option("--rate", "sample_rate", type=click.FloatRange(*SAMPLE_RATES_HZ), help="Rate of the hardware, Hz.")
@click.option("--format", "number_format", help="float32, float64, or qI.F such as q1.23.")
@click.option(
    "--target", "name", type=DEVICE, help="Known device: its form, rate and format (`prime-anc targets`)."
)
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    help="Kind of file, where its extension does not say; .txt: the target's, or minidsp.",
)
@click.option(
    "-o",
    "--output",
    "outputs",
    type=FILE,
    multiple=True,
    help="File: .wav, .csv, .h, .mat, .yml (CamillaDSP), .txt (as --kind), .json, which `verify` and `simulate` take; "
    "may be given again.",
)
@json_flag
@with_service
def export(
    ask: Ask, ear: Measured, kind: str | None, outputs: Sequence[Path], as_json: bool, **target: Any
) -> None:
    """Write a filter as hardware runs it.

    As biquads or taps, in floating or fixed point, at the hardware's sample rate. All but 2048 taps at 48 kHz are
    designed anew for the paths of EARS.
    """
    if target["n_sections"] is not None and target["n_taps"] is not None:
        raise click.UsageError("give --sections or --taps, not both")
    for form, size in (("sos", "n_sections"), ("fir", "n_taps")):
        if target[size] is not None:
            target["form"] = form
    body = ear.body | {"target": target}
    if isinstance(body["fir"], dict):
        raise FileError(
            f"{ear.control_filter}: it was exported already; give the file that `prime-anc design` wrote"
        )
    response = ask("/export", body)
    answer = tables.answered(response, None, as_json)
    contents: list[tuple[Path, bytes]] = []  # saved when no kind of file was refused
    text = (known_target(target["name"]).file if target["name"] else None) or "minidsp"
    for output in outputs:
        if output.suffix.lower() == ".json":
            # `verify` judges what a trimmed filter does by the loudspeaker for which it was trimmed.
            trim = filters.trimmed_by(ear.control_filter)
            contents.append((output, orjson.dumps(answer | {"trim": trim}) if trim else response.content))
        else:
            file = kind or (text if output.suffix.lower() == ".txt" else filters.file_kind(output))
            contents += _parts(output, ask("/export", body | {"file": file}))
    for output, content in contents:
        tables.save(output, content)
    if contents:
        _state(answer["coefficients"]["sample_rate"], answer["sign"], answer.get("controller"))
    if answer["coefficients"]["form"] == "sos" and answer["loss_db"] > SECTIONS_LOST_DB:
        tables.notes(["sections hardly hold noise back that arrives late, as here: try --taps 128"])


@click.command()
@json_flag
def targets(as_json: bool) -> None:
    """List the devices that `export --target` knows."""
    known = [asdict(item) for item in known_targets().values()]
    if as_json:
        click.echo(orjson.dumps(known, option=orjson.OPT_INDENT_2).decode())
    for item in known if not as_json else ():
        tables.show(item)


def for_device(name: str) -> Json:
    """Return the options of a controller that a device requires."""
    device, n_sections = known_target(name), controller_schemas()["n_sections"]["default"]
    most = device.max_controller_sections or n_sections
    rate_hz, words = device.sample_rate_hz, device.number_format
    return {"sample_rate": rate_hz, "number_format": words, "n_sections": min(n_sections, most)}


def write_filter(ask: Ask, answer: Json, ear: Measured, output: Path) -> None:
    """Write the designed filter: the answer itself, or its taps in one of the service's formats."""
    if output.suffix.lower() == ".json":
        tables.save(output, orjson.dumps(answer))
        return
    body = ear.alone(ear.conditions[0]) | {  # the taps are those for all conditions
        "controller": None,
        "fir": answer["fir"],
        "sign": answer["sign"],
        "target": {"form": "fir", "number_format": "float32"},
        "file": filters.file_kind(output),
    }
    tables.save(output, ask("/export", body).content)
    _state(SAMPLE_RATE_HZ, answer["sign"], None)


def _state(sample_rate_hz: float, sign: str, controller: Json | None) -> None:
    """Print rates and the signal at the error microphone, which not every format can hold."""
    beside = "" if controller is None else f", controller at {controller['sample_rate']:g} Hz"
    stated = equation(sign, has_controller=controller is not None)
    tables.notes([f"control filter at {sample_rate_hz:g} Hz{beside}: {stated}"], "")


def _parts(output: Path, response: Response) -> list[tuple[Path, bytes]]:
    """Return the file of a filter, and those of controller and playback, with which it comes in a ZIP."""
    if response.headers["content-type"] != "application/zip":
        return [(output, response.content)]
    with zipfile.ZipFile(io.BytesIO(response.content)) as parts:
        first, *others = parts.namelist()
        beside = [(output.with_stem(f"{output.stem}_{Path(name).stem}"), parts.read(name)) for name in others]
        return [(output, parts.read(first)), *beside]
