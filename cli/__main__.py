"""The commands of `prime-anc`."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from cli import bench_file, inputs, tables
from cli.device import device
from cli.exit_status import EPILOG, ExitStatus
from cli.flags import FILE, json_flag, option_flag, options_of, output_flag, with_controller, with_service
from cli.service import ServiceClient
from cli.simulate import example, simulate
from cli.words import for_command
from measurement.files.errors import FileError
from model_store.errors import ModelStoreError
from synthesis.options import DesignFields, ObjectiveFields, controller_schemas

if TYPE_CHECKING:
    from hardware.targets import KnownTarget

Json = dict[str, Any]

FILTER_FILES = {".wav": "wav", ".csv": "csv", ".h": "c", ".c": "c", ".mat": "mat", ".yml": "camilladsp"}
FILE_KINDS = ("wav", "csv", "c", "mat", "minidsp", "apo", "camilladsp", "bes", "sigmadsp")
LATENCIES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)

Command = Callable[..., None]


class Commands(click.Group):
    """Report an unusable file or store as a message, not a traceback."""

    def invoke(self, context: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(context)
        except (FileError, ModelStoreError) as error:
            raise click.UsageError(str(error)) from error
        except OSError as error:
            raise click.UsageError(f"{error.filename or error}: {error.strerror or error}") from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(package_name="prime-anc")
def main() -> None:
    """Filters for active noise control, from recordings to hardware.

    \b
    prime-anc example                                   # recordings to start with
    prime-anc calibrate off.wav on.wav --gain 0.35 -o ear.json
    prime-anc design ear.json -o filter.json
    prime-anc hybrid ear.json --controller-latency-us 10 -o hybrid.json    # with a feedback controller
    prime-anc export filter.json ear.json --sections 6 --format q1.23 -o chip.h -o chip.json
    prime-anc simulate ear.json chip.json -o quiet.wav -o running.wav
    prime-anc verify chip.json ear.json --off quiet.wav --on running.wav
    """


main.add_command(example)
main.add_command(simulate)
main.add_command(device)


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

    A command that takes a filter's file also gets `file_rate`, one with `files` their names. All but one that designs
    a controller take one that runs.
    """
    takes_filter = "file_rate" in command.__annotations__
    takes_files = "files" in command.__annotations__
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
        paths, settings = _paths(**measured)
        given |= {name: value for name, value in settings.items() if given.get(name, ...) is None}
        paths |= {"sample_rate": 48_000} | ({} if sign is None else {"sign": sign})
        if weights:
            _weigh(paths, weights)
        if noise is not None:
            n_bins = inputs.n_bins(paths.get("conditions", [paths])[0])
            paths["reference_psd"] = tables.noted(inputs.reference_psd(noise, n_bins))
        elif "reference_psd" in settings:
            paths["reference_psd"] = settings["reference_psd"]
        if controller is not None:
            paths["controller"] = inputs.controller(controller)
        elif "controller" in settings and not takes_filter:
            paths["controller"] = settings["controller"]
        if takes_filter:
            given["file_rate"] = measured["file_rate"]
        if takes_files:
            given["files"] = (*measured["ears"], *filter(None, (measured["primary"], measured["secondary"])))
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
) -> tuple[Json, Json]:
    """Return fields of a request, and options that a session sets."""
    if (primary is None) != (secondary is None) or (bool(ears) == (primary is not None)):
        raise click.UsageError("give measurements (EARS), or one file each with --primary and --secondary")
    if primary is not None and secondary is not None:
        given = inputs.separate(file_rate, primary=primary, secondary=secondary, feedback=feedback)
        return tables.noted(given), {}
    measured: list[tuple[str, Json]] = []
    settings: Json = {}
    for file in ears:
        found, notes, settings = inputs.ears(file, side, file_rate)
        tables.notes(f"{file}: {note}" for note in notes)
        measured += found
    if len(ears) > 1:
        settings = {}
    if feedback is not None:
        if len(measured) > 1:
            raise click.UsageError("--feedback is for a single measurement; several have theirs in their files")
        fields = tables.noted(inputs.separate(file_rate, feedback=feedback))
        if "coherence" in measured[0][1] and "feedback" not in measured[0][1]:
            tables.notes(
                [
                    f"{ears[0]}: from a recording with --gain, its secondary path includes what returns by "
                    "the feedback path; calibrate with --drive, which tells both apart"
                ]
            )
        measured = [(measured[0][0], measured[0][1] | fields)]
    if len(measured) == 1:
        return measured[0][1], settings
    signs = {fields.pop("sign", "minus") for _, fields in measured}
    if len(signs) > 1:
        raise click.UsageError("the measurements have different signs; calibrate all with the same --sign")
    return {"conditions": [fields | {"label": label} for label, fields in measured], "sign": signs.pop()}, settings


def _by_measurement(paths: Json) -> list[tuple[str, Json]]:
    """Return label and fields per measurement."""
    rest = {name: path for name, path in paths.items() if name != "conditions"}
    return [
        (path["label"], rest | {name: value for name, value in path.items() if name not in ("label", "weight")})
        for path in paths.get("conditions", [paths | {"label": ""}])
    ]


@main.command(context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def serve(options: Sequence[str]) -> None:
    """Run the service.

    OPTIONS: those of `python -m service --help`.
    """
    from service.__main__ import main as run

    sys.exit(run(list(options)))


@main.command()
@click.argument("off", type=FILE)
@click.argument("on", type=FILE, required=False)
@click.option("--gain", type=float, help="Gain from outer microphone to loudspeaker in ON.")
@click.option("--more-off", type=FILE, multiple=True, help="Further recordings with the loudspeaker silent.")
@click.option("--more-on", type=FILE, multiple=True, help="Further recordings with the gain.")
@click.option(
    "--drive",
    type=FILE,
    multiple=True,
    help="Recording of the loudspeaker alone, in place of ON or besides, which gives the feedback path: channels "
    "played, outer, error.",
)
@option_flag("sign")
@option_flag("model")
@output_flag("File for the answer (JSON), which `design` takes.")
@json_flag
@with_service
def calibrate(
    service: ServiceClient,
    off: Path,
    on: Path | None,
    gain: float | None,
    more_off: Sequence[Path],
    more_on: Sequence[Path],
    drive: Sequence[Path],
    sign: str | None,
    model: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Estimate an ear's paths from recordings.

    Files are stereo: outer microphone, error microphone. OFF: the loudspeaker is silent. ON: it plays the
    outer microphone's signal, times a gain. Without ON, --drive measures the loudspeaker.
    """
    played = [*([on] if on else []), *more_on]
    if not (played or drive):
        raise click.UsageError("give ON, or a recording of the loudspeaker alone with --drive")
    if played and gain is None:
        raise click.UsageError("give the gain that ON was played with: --gain")
    if played and gain == 0:
        raise click.UsageError("--gain: 0 is that of OFF; give the factor between outer microphone and loudspeaker")
    takes = tables.noted(inputs.takes((off, *more_off), played, gain or 0.0, drive))
    body: Json = {"takes": takes, "sign": sign, "model": model, "sample_rate": 48_000}
    files = (off, *more_off, *played, *drive)
    answer = _answer(service.ask("/calibrate", body, files), output, as_json)
    verdict = answer["verdict"]
    if not as_json:
        bands = answer["bands"]
        rows = zip(bands["centre_hz"], bands["coherence"], bands["secondary_snr_db"], strict=True)
        tables.columns(
            ("Hz", "coherence", "secondary SNR dB"), [(f"{hz:g}", f"{c:.3f}", snr) for hz, c, snr in rows]
        )
        click.echo("passed" if verdict["passed"] else "NOT passed")
    tables.findings(verdict["reasons"], "found", files)
    tables.not_judged(verdict["not_judged"])
    if not verdict["passed"]:
        sys.exit(ExitStatus.NOT_PASSED)


@main.command()
@with_paths
@options_of(DesignFields)
@output_flag("Filter file: .json, .wav, .csv, .h, .mat.")
@json_flag
@with_service
def design(
    service: ServiceClient,
    paths: Json,
    options: Json,
    output: Path | None,
    as_json: bool,
) -> None:
    """Design a filter for one measurement, or for several at once.

    EARS: files of `prime-anc calibrate`, or files with a primary and a secondary channel (.npz, .mat, .ita, WAV).
    """
    body = paths | options
    answer = _answer(service.ask("/refine", body), None, as_json)
    beside = paths.pop("controller", None)
    if output is not None:
        _write_filter(service, answer if beside is None else answer | {"controller": beside}, paths, output)
    if not as_json:
        tables.prediction(answer["prediction"], service.wiener(body)["prediction"])
        tables.loop(answer.get("loop"))
    tables.findings(answer["warnings"])


@main.command()
@with_paths
@options_of(DesignFields)
@with_controller
@click.option(
    "--stability-only",
    "others",
    type=FILE,
    multiple=True,
    help="Measurement in which the loop only has to be stable, as pressed or loose; may be given again.",
)
@click.option("--lend-wearing/--no-lend-wearing", default=True, help="Also as the model's listeners wear it.")
@click.option("--target", help="A known device, whose rate, format and number of sections the controller takes.")
@output_flag("File of both (JSON), which export, evaluate and verify take.")
@json_flag
@with_service
def hybrid(
    service: ServiceClient,
    paths: Json,
    options: Json,
    wishes: Json,
    others: Sequence[Path],
    lend_wearing: bool,
    target: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Design a filter and a feedback controller for the chip beside it.

    EARS: as of `prime-anc design`.
    """
    body = paths | options | {"controller": _for_device(target) | wishes, "lend_wearing": lend_wearing}
    if others:
        names = ("primary", "secondary", "coherence", "uncertainty", "feedback")
        conditions = body.pop("conditions", None) or [{name: body.pop(name) for name in names if name in body}]
        for file in others:
            fields = tables.noted(inputs.ear(file))
            used = {name: fields[name] for name in names if name in fields}
            conditions.append(used | {"label": file.stem, "stability_only": True})
        body["conditions"] = conditions
    answer = _answer(service.ask("/hybrid", body), output, as_json)
    if not as_json:
        tables.prediction(answer["prediction"])
        tables.loop(answer["loop"])
        found = answer["controller"]
        click.echo(
            f"controller: {len(found['sos'])} sections at {found['sample_rate']:g} Hz in {found['number_format']}, "
            f"largest |K| {found['max_gain_db']:.1f} dB"
        )
    tables.findings(answer["warnings"])


@main.command()
@click.argument("control_filter", type=FILE)
@with_paths
@json_flag
@with_service
def evaluate(
    service: ServiceClient, control_filter: Path, paths: Json, file_rate: float | None, as_json: bool
) -> None:
    """Predict the effect of a filter on these measurements."""
    fields = inputs.filter_fields(control_filter, file_rate, paths.get("controller"))
    paths = tables.noted(inputs.as_verified(paths, control_filter))
    for label, ear in _by_measurement(paths):
        answer = _answer(service.ask("/evaluate", ear | fields), None, as_json)
        if not as_json:
            if label:
                click.echo(f"{label}:")
            tables.prediction(answer["prediction"])
            tables.loop(answer.get("loop"))
        tables.findings(answer["warnings"])


@main.command()
@with_paths
@options_of(DesignFields, but=("latency_samples", "leave_one_out"))
@json_flag
@with_service
def latency(service: ServiceClient, paths: Json, options: Json, as_json: bool) -> None:
    """Show what latency costs: filters designed for 0 to 32 samples."""
    answers = []
    with click.progressbar(LATENCIES, label="designing", file=sys.stderr) as samples:
        for sample in samples:
            found = service.ask("/refine", paths | options | {"latency_samples": sample}).json()["prediction"]
            answers.append({"latency_samples": sample, "prediction": found})
    if as_json:
        _print_json(answers)
        return
    rows = [
        (
            answer["latency_samples"],
            f"{answer['latency_samples'] / 48:.3f}",
            answer["prediction"]["mean_noise_reduction_db"],
            max(0.0, -min(answer["prediction"]["noise_reduction_db"])),
        )
        for answer in answers
    ]
    tables.columns(("samples", "ms", "noise reduction dB", "loudest band dB"), rows)


@main.command()
@click.argument("control_filter", type=FILE)
@with_paths
@click.option("--off", type=FILE, required=True, help="Recording with the filter off.")
@click.option("--on", type=FILE, required=True, help="Recording with the filter on.")
@output_flag("File for the answer, with the trimmed filter (JSON).")
@json_flag
@with_service
def verify(
    service: ServiceClient,
    control_filter: Path,
    paths: Json,
    file_rate: float | None,
    off: Path,
    on: Path,
    output: Path | None,
    as_json: bool,
) -> None:
    """Compare a filter's effect with its prediction, and trim it.

    CONTROL_FILTER: the file of the filter that runs: of `prime-anc design`, or, for sections and other numbers of
    taps, what `prime-anc export` wrote as .json.
    """
    takes = [tables.noted(inputs.take(file)) | {"state": state} for state, file in (("off", off), ("on", on))]
    if "conditions" in paths:
        raise click.UsageError("verify takes one measurement: give the one that was recorded")
    document = inputs.filter_document(control_filter) if inputs.is_document(control_filter) else {}
    fields = inputs.filter_fields(control_filter, file_rate, paths.get("controller"))
    body = tables.noted(inputs.as_verified(paths, control_filter)) | fields | {"takes": takes}
    body |= {"prediction": document["prediction"]} if "prediction" in document else {}
    answer = _answer(service.ask("/verify", body, (off, on)), output, as_json)
    if not as_json:
        tables.comparison(answer)
        trim = answer.get("trim") or {}
        if trim:
            click.echo(
                f"trim: gain {trim['gain_db']:+.1f} dB, delay {trim['delay_samples']:+.2f} samples"
                f"{', inverted' if trim.get('invert') else ''}; {trim['predicted_noise_reduction_db']:.1f} dB to expect"
            )
    tables.findings(answer["diagnosis"], "found")
    if any(item["code"] != "as_predicted" for item in answer["diagnosis"]):
        sys.exit(ExitStatus.NOT_PASSED)


@main.command()
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
    type=click.Choice(FILE_KINDS),
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
    fields = inputs.filter_fields(control_filter, file_rate, paths.get("controller"))
    if isinstance(fields["fir"], dict):
        raise FileError(f"{control_filter}: it was exported already; give the file that `prime-anc design` wrote")
    body: Json = tables.noted(inputs.as_verified(paths, control_filter)) | options | fields | {"target": target}
    answered = service.ask("/export", body)
    answer = _answer(answered, None, as_json)
    for output in outputs:
        if output.suffix.lower() == ".json":
            _save(output, answered.content)
            continue
        file = kind or (text if output.suffix.lower() == ".txt" else _file_kind(output))
        written = service.ask("/export", body | {"file": file})
        if written.headers["content-type"] == "application/zip":
            _save_parts(output, written.content)
        else:
            _save(output, written.content)
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
    tables.loop(answer.get("loop"))
    if beside := answer.get("controller"):
        chip = beside | {
            name: coefficients[name] for name in ("sample_rate", "number_format") if name in coefficients
        }
        if chip != beside:
            text = (
                f"the controller is at {beside['sample_rate']:g} Hz in {beside['number_format']}: if the same chip "
            )
            text += "runs it, design it with --controller-sample-rate and --controller-number-format"
            tables.notes([text])
    tables.findings(answer["warnings"])
    if scaling := coefficients.get("scaling"):
        wide = ""
        if coefficients["form"] == "sos":
            wide = f", {scaling['wide_noise_db']:.0f} dB where sections keep their outputs in double precision"
        click.echo(
            f"{coefficients['number_format']}: shift the input down by {scaling['headroom_bits']} bits so that "
            f"nothing overflows; round-off noise at {scaling['noise_db']:.0f} dB re full scale{wide}"
        )


@main.command()
@json_flag
def targets(as_json: bool) -> None:
    """List the devices that `export --target` knows."""
    from dataclasses import asdict

    from hardware.targets import targets as known

    if as_json:
        _print_json([asdict(item) for item in known().values()])
        return
    for item in known().values():
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


@main.command()
@with_paths
@options_of(DesignFields, but=("latency_samples", "leave_one_out"))
@output_flag(
    "File: .html, .pdf (with the extra `pdf`); may be given again.",
    multiple=True,
    default=[Path("report.html")],
    show_default=True,
)
@click.option("--listener", default="", help="Name of the listener, for the heading.")
@click.option("--ear", type=click.Choice(["left", "right"]), help="Which ear it is, for the heading.")
@with_service
def report(
    service: ServiceClient,
    paths: Json,
    options: Json,
    files: tuple[Path, ...],
    output: Sequence[Path],
    listener: str,
    ear: str | None,
) -> None:
    """Write a page about a design, with tables and plots, to hand over.

    Date, files and their verdicts, model, noise reduction beside the Wiener filter's, |W|, what latency costs, the loop
    through a controller or a feedback path, and realisations.
    """
    from cli.report import About, as_pdf, compose

    for file in output:
        if file.suffix.lower() not in (".html", ".htm", ".pdf"):
            raise click.BadParameter(f"{file}: name it .html or .pdf")
    verdicts = [found for file in files for found in inputs.verdicts(file)]
    about = About(listener, f"{ear} ear" if ear else "", verdicts)
    page = compose(service, paths, options, about)
    for file in output:
        _save(file, as_pdf(page) if file.suffix.lower() == ".pdf" else page.encode())


@main.command()
@click.argument("files", nargs=-1, type=FILE, required=True)
@output_flag("Session for the page (JSON).", required=True)
@click.option("--joint", is_flag=True, help="One filter for all measurements.")
def session(files: Sequence[Path], output: Path, joint: bool) -> None:
    """Put measurements and filters into one file, which the page loads.

    FILES: measurements, and what `prime-anc design` wrote. Every command reads sessions in place of a measurement, and
    SESSION.json#NAME as a filter.
    """
    measured: list[tuple[str, Json]] = []
    filters = []
    for file in files:
        document = inputs.load_json(file) if file.suffix.lower() == ".json" else {}
        if "fir" in document and "prediction" in document:
            filters.append((file.stem, document))
            continue
        found, notes, _ = inputs.ears(file)
        tables.notes(f"{file}: {note}" for note in notes)
        for (label, fields), (_, verdict) in zip(found, inputs.verdicts(file), strict=True):
            measured.append((label, fields | {"verdict": verdict}))
    if not measured:
        raise click.UsageError("give at least one measurement")
    _save(output, orjson.dumps(bench_file.session(measured, filters, joint=joint)))


@main.command()
@json_flag
@with_service
def models(service: ServiceClient, as_json: bool) -> None:
    """List the published models."""
    answer = service.ask("/models").json()
    if as_json:
        _print_json(answer)
        return
    tables.columns(
        ("name", "version", "in memory"),
        [(item["name"], item["version"], "yes" if item.get("resident") else "") for item in answer["models"]],
    )
    for item in answer["controllers"]:
        size = f"{len(item['sos'])} sections at {item['sample_rate']:g} Hz"
        click.echo(f"controller {item['name']}, version {item['version']}: {size}")


def _target(
    name: str | None, sections: int | None, taps: int | None, rate: float | None, number_format: str | None
) -> Json:
    """Return the fields of a target, after checking them."""
    from hardware.targets import requested
    from synthesis.errors import InvalidOption

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
    try:
        requested(fields.pop("name", None), fields)
    except InvalidOption as error:
        raise click.UsageError(for_command(str(error))) from error
    return target


def _known_target(name: str) -> KnownTarget:
    from hardware.targets import target
    from synthesis.errors import InvalidOption

    try:
        return target(name)
    except InvalidOption as error:
        raise click.UsageError(for_command(str(error))) from error


def _for_device(name: str | None) -> Json:
    """Return the options of a controller that a device requires."""
    if name is None:
        return {}
    device = _known_target(name)
    found: Json = {"sample_rate": device.sample_rate_hz, "number_format": device.number_format}
    if device.max_controller_sections is not None:
        found["n_sections"] = min(controller_schemas()["n_sections"]["default"], device.max_controller_sections)
    return found


def _text_kind(name: str | None) -> str:
    """Return the kind of a text file: what the device's tools take."""
    return (_known_target(name).file if name is not None else None) or "minidsp"


def _write_filter(service: ServiceClient, answer: Json, paths: Json, output: Path) -> None:
    """Write the designed filter: the answer itself, or its taps in one of the service's formats."""
    if output.suffix.lower() == ".json":
        _save(output, orjson.dumps(answer))
        return
    body = _by_measurement(paths)[0][1] | {  # the taps are those for all conditions
        "fir": answer["fir"],
        "sign": answer["sign"],
        "target": {"form": "fir", "number_format": "float32"},
        "file": _file_kind(output),
    }
    _save(output, service.ask("/export", body).content)


def _file_kind(output: Path) -> str:
    kind = FILTER_FILES.get(output.suffix.lower())
    if kind is None:
        raise click.BadParameter(
            f"{output}: {output.suffix or 'no extension'} is not known; use {', '.join(FILTER_FILES)}, .json"
        )
    return kind


def _answer(response: Any, output: Path | None, as_json: bool) -> Json:
    """Return the answer, after saving and printing it if requested."""
    if output is not None:
        _save(output, response.content)
    answer: Json = response.json()
    if as_json:
        click.echo(response.content.decode())
    return answer


def _save(output: Path, content: bytes) -> None:
    output.write_bytes(content)
    tables.notes([f"written: {output}"], "")


def _save_parts(output: Path, content: bytes) -> None:
    """Write filter and controller, which come in a ZIP, to two files."""
    with zipfile.ZipFile(io.BytesIO(content)) as parts:
        for name in parts.namelist():
            stem = output.stem if name.startswith("control_filter") else f"{output.stem}_controller"
            _save(output.with_stem(stem), parts.read(name))


def _print_json(value: object) -> None:
    click.echo(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    main(prog_name="prime-anc")
