"""The commands of `prime-anc`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import orjson

from model_store.errors import ModelStoreError
from prime_anc.cli import tables
from prime_anc.cli.device import device
from prime_anc.cli.exit_status import EPILOG, ExitStatus
from prime_anc.cli.export import export, for_device, targets, write_filter
from prime_anc.cli.flags import FILE, json_flag, option_flag, options_of, output_flag, with_controller, with_service
from prime_anc.cli.measured import by_measurement, with_paths
from prime_anc.cli.output import answered, print_json, save
from prime_anc.cli.service import ServiceClient
from prime_anc.cli.simulate import example, simulate
from prime_anc.inputs import bench, ears, filters, recordings
from prime_anc.measure.files.errors import FileError
from prime_anc.method.errors import InvalidOption
from prime_anc.options import DesignFields

Json = dict[str, Any]


class Commands(click.Group):
    """Report an unusable file, store or option as a message, not a traceback."""

    def invoke(self, context: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(context)
        except (FileError, ModelStoreError) as error:
            raise click.UsageError(str(error)) from error
        except InvalidOption as error:
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
main.add_command(export)
main.add_command(targets)


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
    takes = tables.noted(recordings.takes((off, *more_off), played, gain or 0.0, drive))
    body: Json = {"takes": takes, "sign": sign, "model": model, "sample_rate": 48_000}
    files = (off, *more_off, *played, *drive)
    answer = answered(service.ask("/calibrate", body, files), output, as_json)
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
    beside: Json,
    output: Path | None,
    as_json: bool,
) -> None:
    """Design a filter for one measurement, or for several at once.

    EARS: files of `prime-anc calibrate`, or files with a primary and a secondary channel (.npz, .mat, .ita, WAV).
    """
    limit = {"max_louder_db": beside["max_louder_db"]} if "max_louder_db" in beside else {}
    body = paths | limit | options
    answer = answered(service.ask("/refine", body), None, as_json)
    controller = paths.pop("controller", None)
    if output is not None:
        written = answer if controller is None else answer | {"controller": controller, "controller_about": beside}
        write_filter(service, written, paths, output)
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
    "stability_only",
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
    stability_only: Sequence[Path],
    others: Sequence[Json],
    lend_wearing: bool,
    target: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Design a filter and a feedback controller for the chip beside it.

    EARS: as of `prime-anc design`.
    """
    body = paths | options | {"controller": for_device(target) | wishes, "lend_wearing": lend_wearing}
    given = [
        tables.noted(ears.ear(file)) | {"label": file.stem[:80], "stability_only": True} for file in stability_only
    ]
    kept = ("primary", "secondary", "coherence", "uncertainty", "feedback", "label", "stability_only")
    body["conditions"] += [{name: item[name] for name in kept if name in item} for item in (*others, *given)]
    answer = answered(service.ask("/hybrid", body), output, as_json)
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
    body = tables.noted(filters.about_filter(paths, control_filter, file_rate))
    for label, ear in by_measurement(body):
        answer = answered(service.ask("/evaluate", ear), None, as_json)
        if not as_json:
            if label:
                click.echo(f"{label}:")
            tables.prediction(answer["prediction"])
            tables.loop(answer.get("loop"))
        tables.findings(answer["warnings"])


@main.command()
@click.argument("control_filter", type=FILE)
@with_paths
@click.option("--off", type=FILE, required=True, help="Recording with the filter off.")
@click.option("--on", type=FILE, required=True, help="Recording with the filter on.")
@output_flag("File for the trimmed filter, with the verification (JSON).")
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
    takes = [
        tables.noted(recordings.recording(file)) | {"state": state} for state, file in (("off", off), ("on", on))
    ]
    if "conditions" in paths:
        raise click.UsageError("verify takes one measurement: give the one that was recorded")
    document = filters.filter_document(control_filter) if filters.is_document(control_filter) else {}
    body = tables.noted(filters.about_filter(paths, control_filter, file_rate)) | {"takes": takes}
    body |= {"prediction": document["prediction"]} if "prediction" in document else {}
    answer = answered(service.ask("/verify", body, (off, on)), None, as_json)
    if not as_json:
        tables.comparison(answer)
        trim = answer.get("trim") or {}
        if trim:
            click.echo(
                f"trim: gain {trim['gain_db']:+z.1f} dB, delay {trim['delay_samples']:+z.2f} samples of 48 kHz"
                f"{', inverted' if trim.get('invert') else ''}; {trim['predicted_noise_reduction_db']:.1f} dB to expect"
            )
    tables.findings(answer["diagnosis"], "found")
    if output is not None:
        _save_trim(output, answer, filters.trimmed_by(control_filter))
    codes = {item["code"] for item in answer["diagnosis"]}
    if "howling" in codes or ("as_predicted" not in codes and not tables.is_within(answer)):
        sys.exit(ExitStatus.NOT_PASSED)


def _save_trim(output: Path, answer: Json, earlier: Json) -> None:
    """Write a verification with what it trimmed; raises click.UsageError if that is nothing."""
    trim = answer["trim"]
    if trim is None:
        raise click.UsageError(
            f"{output}: not written, for no gain and delay correct what was found; see the findings"
        )
    if trim["fir"] is None and trim.get("controller") is None:
        raise click.UsageError(
            f"{output}: not written, for a chip's filter is not trimmed: change its gain and delay by what is printed, "
            "or verify the file of `prime-anc design`"
        )
    save(output, orjson.dumps(filters.since_measured(answer, earlier)))


@main.command()
@with_paths
@options_of(DesignFields, but=("leave_one_out",))
@click.option(
    "--verification", type=FILE, help="What `verify --json` printed, or `verify -o` wrote, to be shown too."
)
@output_flag("HTML file, which a browser prints.", default=Path("report.html"), show_default=True)
@click.option("--listener", default="", help="Name of the listener, for the heading.")
@click.option("--ear", type=click.Choice(["left", "right"]), help="Which ear it is, for the heading.")
@with_service
def report(
    service: ServiceClient,
    paths: Json,
    options: Json,
    files: tuple[Path, ...],
    beside: Json,
    verification: Path | None,
    output: Path,
    listener: str,
    ear: str | None,
) -> None:
    """Write a page about a design, with tables and plots, to hand over.

    Noise reduction beside the Wiener filter's, a verification, date, files and their verdicts, model, |W|, what latency
    costs, the loop through a controller or a feedback path, the controller's margins, and realisations.
    """
    from prime_anc.cli.report import About, compose

    if output.suffix.lower() not in (".html", ".htm"):
        raise click.BadParameter(f"{output}: name it .html; a browser prints it as PDF")
    verified = None if verification is None else filters.verification(verification)
    verdicts = [found for file in files for found in ears.verdicts(file)]
    about = About(listener, f"{ear} ear" if ear else "", verdicts, beside, verified)
    save(output, compose(service, paths, options, about).encode())


@main.command()
@click.argument("files", nargs=-1, type=FILE, required=True)
@output_flag("Session for the page (JSON).", required=True)
@click.option("--joint", is_flag=True, help="One filter for all measurements.")
def session(files: Sequence[Path], output: Path, joint: bool) -> None:
    """Put measurements and filters into one file, which the page loads.

    FILES: measurements, what `prime-anc design` wrote, and sessions, which stay whole. Every command reads sessions
    in place of a measurement, and SESSION.json#NAME as a filter.
    """
    measured: list[tuple[str, Json]] = []
    filters = []
    begun: Json = {}
    for file in files:
        document = bench.load(file) if file.suffix.lower() == ".json" else {}
        if "session" in document:
            bench.measurements(file, document)
            if begun:
                tables.notes([f"{file}: only its measurements and kept filters are added to the first session"])
                document = {name: [*begun.get(name, ()), *document.get(name, ())] for name in ("session", "kept")}
            begun |= document
            continue
        if "fir" in document and "prediction" in document:
            filters.append((file.stem, document))
            continue
        found, notes, _ = ears.ears(file)
        tables.notes(f"{file}: {note}" for note in notes)
        for (label, fields), (_, verdict) in zip(found, ears.verdicts(file), strict=True):
            measured.append((label, fields | {"verdict": verdict}))
    if not (measured or begun):
        raise click.UsageError("give at least one measurement")
    begun |= {"joint": True} if joint else {}
    save(output, orjson.dumps(bench.session(measured, filters, begun)))


@main.command()
@json_flag
@with_service
def models(service: ServiceClient, as_json: bool) -> None:
    """List the published models."""
    answer = service.ask("/models").json()
    if as_json:
        print_json(answer)
        return
    tables.columns(
        ("name", "version", "in memory"),
        [(item["name"], item["version"], "yes" if item.get("resident") else "") for item in answer["models"]],
    )
    for item in answer["controllers"]:
        size = f"{len(item['sos'])} sections at {item['sample_rate']:g} Hz"
        click.echo(f"controller {item['name']}, version {item['version']}: {size}")


if __name__ == "__main__":
    main(prog_name="prime-anc")
