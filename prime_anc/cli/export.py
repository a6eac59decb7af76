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

from prime_anc.cli import tables
from prime_anc.cli.flags import FILE, json_flag, options_of, with_service
from prime_anc.cli.measured import by_measurement, with_paths
from prime_anc.cli.output import answered, print_json, save
from prime_anc.cli.service import ServiceClient
from prime_anc.hardware.filter_files import KINDS, equation
from prime_anc.hardware.targets import requested
from prime_anc.hardware.targets import target as known_target
from prime_anc.hardware.targets import targets as known_targets
from prime_anc.inputs import filters
from prime_anc.measure.files.errors import FileError
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from prime_anc.options import ObjectiveFields, controller_schemas

Json = dict[str, Any]

# Loss of sections beyond any earphone's, whose filter hardly delays: on 30 ears at most 4 dB with eight, 6 with four.
SECTIONS_LOST_DB = 10.0


@click.command()
@click.argument("control_filter", type=FILE)
@with_paths
@click.option("--sections", type=int, help="Number of second-order sections, 1 to 32; default: 8.")
@click.option("--taps", type=int, help="Number of taps, 1 to 4096, in place of sections.")
@click.option("--rate", type=float, help="Sample rate of the hardware, Hz.")
@click.option("--format", "number_format", help="float32, float64, or qI.F such as q1.23.")
@click.option("--target", "target_name", help="A known device: its form, rate and format (`prime-anc targets`).")
@options_of(ObjectiveFields)
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
    service: ServiceClient,
    control_filter: Path,
    paths: Json,
    file_rate: float | None,
    sections: int | None,
    taps: int | None,
    rate: float | None,
    number_format: str | None,
    target_name: str | None,
    options: Json,
    kind: str | None,
    outputs: Sequence[Path],
    as_json: bool,
) -> None:
    """Write a filter as hardware runs it.

    As biquads or taps, in floating or fixed point, at the hardware's sample rate. All but 2048 taps at 48 kHz are
    designed anew for the paths of EARS.
    """
    target = _target(target_name, sections, taps, rate, number_format)
    text = _text_kind(target_name)
    body: Json = tables.noted(filters.about_filter(paths, control_filter, file_rate)) | options | {"target": target}
    if isinstance(body["fir"], dict):
        raise FileError(f"{control_filter}: it was exported already; give the file that `prime-anc design` wrote")
    response = service.ask("/export", body)
    answer = answered(response, None, as_json)
    contents: list[tuple[Path, bytes]] = []  # saved when no kind of file was refused
    for output in outputs:
        if output.suffix.lower() == ".json":
            # `verify` judges what a trimmed filter does by the loudspeaker for which it was trimmed.
            trim = filters.trimmed_by(control_filter)
            contents.append((output, orjson.dumps(answer | {"trim": trim}) if trim else response.content))
            continue
        file = kind or (text if output.suffix.lower() == ".txt" else filters.file_kind(output))
        written = service.ask("/export", body | {"file": file})
        if written.headers["content-type"] == "application/zip":
            contents += _parts(output, written.content)
        else:
            contents.append((output, written.content))
    for output, content in contents:
        save(output, content)
    if contents:
        _state(answer["coefficients"]["sample_rate"], answer["sign"], answer.get("controller"))
    if as_json:
        return
    coefficients, loss_db = answer["coefficients"], answer["loss_db"]
    size = len(coefficients.get("sos") or coefficients["taps"])
    gain_db = answer["prediction"]["max_gain_db"]
    click.echo(
        f"{size} {'sections' if coefficients['form'] == 'sos' else 'taps'} at {coefficients['sample_rate']:g} Hz: "
        f"{answer['prediction']['mean_noise_reduction_db']:.1f} dB, {abs(loss_db):.1f} dB "
        f"{'more' if loss_db < -0.05 else 'less'} than the filter; largest |W| {gain_db:.1f} dB"
    )
    if coefficients["form"] == "sos" and loss_db > SECTIONS_LOST_DB:
        tables.notes(["sections hardly hold noise back that arrives late, as here: try --taps 128"])
    tables.loop(answer.get("loop"))
    tables.findings(answer["warnings"])
    if scaling := coefficients.get("scaling"):
        wide = ""
        if coefficients["form"] == "sos":
            wide = f", {scaling['wide_noise_db']:.0f} dB where sections keep their outputs in double precision"
        click.echo(
            f"{coefficients['number_format']}: shift the input down by {scaling['headroom_bits']} bits, as the .h "
            f"does, so that nothing overflows; round-off noise at {scaling['noise_db']:.0f} dB re full scale{wide}"
        )


@click.command()
@json_flag
def targets(as_json: bool) -> None:
    """List the devices that `export --target` knows."""
    if as_json:
        print_json([asdict(item) for item in known_targets().values()])
        return
    for item in known_targets().values():
        rates = ", ".join(f"{hz:.10g}" for hz in (item.sample_rate_hz, *item.other_sample_rates_hz))
        size = {"sos": "sections", "fir": "taps"}[item.form]
        most = item.max_sections if item.form == "sos" else item.max_taps
        click.echo(f"{item.name}: {item.title}")
        click.echo(f"    {'' if most is None else f'{most} '}{size}, {item.number_format}, {rates} Hz")
        if item.max_controller_sections is not None:
            click.echo(f"    controller: at most {item.max_controller_sections} sections (--controller-n-sections)")
        if item.latency:
            click.echo(f"    latency: {item.latency}")
        click.echo(f"    source: {item.source}")


def _target(
    name: str | None, sections: int | None, taps: int | None, rate: float | None, number_format: str | None
) -> Json:
    """Return the fields of a target, after checking them."""
    if sections is not None and taps is not None:
        raise click.UsageError("give --sections or --taps, not both")
    target: Json = {} if name is None else {"name": name}
    if taps is not None:
        target |= {"form": "fir", "n_taps": taps}
    if sections is not None:
        target |= {"form": "sos", "n_sections": sections}
    if rate is not None:
        target["sample_rate"] = rate
    if number_format is not None:
        target["number_format"] = number_format
    fields = {{"sample_rate": "sample_rate_hz"}.get(field, field): value for field, value in target.items()}
    requested(fields.pop("name", None), fields)
    return target


def for_device(name: str | None) -> Json:
    """Return the options of a controller that a device requires."""
    if name is None:
        return {}
    device = known_target(name)
    found: Json = {"sample_rate": device.sample_rate_hz, "number_format": device.number_format}
    if device.max_controller_sections is not None:
        found["n_sections"] = min(controller_schemas()["n_sections"]["default"], device.max_controller_sections)
    return found


def _text_kind(name: str | None) -> str:
    """Return the kind of a text file: what the device's tools take."""
    return (known_target(name).file if name is not None else None) or "minidsp"


def write_filter(service: ServiceClient, answer: Json, paths: Json, output: Path) -> None:
    """Write the designed filter: the answer itself, or its taps in one of the service's formats."""
    if output.suffix.lower() == ".json":
        save(output, orjson.dumps(answer))
        return
    body = by_measurement(paths)[0][1] | {  # the taps are those for all conditions
        "fir": answer["fir"],
        "sign": answer["sign"],
        "target": {"form": "fir", "number_format": "float32"},
        "file": filters.file_kind(output),
    }
    save(output, service.ask("/export", body).content)
    _state(SAMPLE_RATE_HZ, answer["sign"], None)


def _state(sample_rate_hz: float, sign: str, controller: Json | None) -> None:
    """Print rates and the signal at the error microphone, which not every format can hold."""
    beside = "" if controller is None else f", controller at {controller['sample_rate']:g} Hz"
    stated = equation(sign, has_controller=controller is not None)
    tables.notes([f"control filter at {sample_rate_hz:g} Hz{beside}: {stated}"], "")


def _parts(output: Path, content: bytes) -> list[tuple[Path, bytes]]:
    """Return the files of filter, controller and playback, which come in a ZIP, the filter first."""
    with zipfile.ZipFile(io.BytesIO(content)) as parts:
        first, *others = parts.namelist()
        beside = [(output.with_stem(f"{output.stem}_{Path(name).stem}"), parts.read(name)) for name in others]
        return [(output, parts.read(first)), *beside]
