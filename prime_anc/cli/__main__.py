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
from prime_anc.cli.export import DEVICE, export, for_device, targets, write_filter
from prime_anc.cli.flags import FILE, json_flag, option_flag, output_flag, with_flags, with_service
from prime_anc.cli.measured import Measured, with_paths
from prime_anc.cli.service import Ask, wiener
from prime_anc.cli.simulate import example, simulate
from prime_anc.inputs import bench, ears, filters, recordings
from prime_anc.measure.files.errors import FileError
from prime_anc.method.errors import InvalidOption
from prime_anc.options import DesignFields, controller_schemas

Json = dict[str, Any]


class Commands(click.Group):
    """Report an unusable file, store or option as a message, not a traceback."""

    def invoke(self, context: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(context)
        except (FileError, ModelStoreError, InvalidOption) as error:
            raise click.UsageError(str(error)) from error
        except OSError as error:
            raise click.UsageError(f"{error.filename or error}: {error.strerror or error}") from error


_SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True}


@click.group(cls=Commands, context_settings=_SETTINGS, epilog=EPILOG)
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


for command in (example, simulate, device, export, targets):
    main.add_command(command)


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
    ask: Ask,
    off: Path,
    on: Path | None,
    gain: float | None,
    more_off: Sequence[Path],
    more_on: Sequence[Path],
    drive: Sequence[Path],
    output: Path | None,
    as_json: bool,
    **options: str | None,
) -> None:
    """Estimate an ear's paths from recordings.

    Files are stereo: outer microphone, error microphone. OFF: the loudspeaker is silent. ON: it plays the
    outer microphone's signal, times a gain. Without ON, --drive measures the loudspeaker.
    """
    played = [*([on] if on else []), *more_on]
    if not (played or drive):
        raise click.UsageError("give ON, or a recording of the loudspeaker alone with --drive")
    if played and not gain:
        raise click.UsageError("give the factor between outer microphone and loudspeaker in ON, not 0: --gain")
    tables.name_takes((off, *more_off, *played, *drive))
    takes = tables.noted(recordings.takes((off, *more_off), played, gain or 0.0, drive))
    response = ask("/calibrate", {"takes": takes, **options})
    verdict = tables.answered(
        response, output, as_json, lambda answer: answer["bands"] | answer["verdict"]["figures"]
    )["verdict"]
    tables.notes(["passed" if verdict["passed"] else "NOT passed"], "")
    tables.findings(verdict["reasons"], "found")
    tables.findings(verdict["not_judged"], "not judged")
    if not verdict["passed"]:
        sys.exit(ExitStatus.NOT_PASSED)


@main.command()
@with_paths(DesignFields)
@output_flag("Filter file: .json, .wav, .csv, .h, .mat.")
@json_flag
@with_service
def design(ask: Ask, ear: Measured, output: Path | None, as_json: bool) -> None:
    """Design a filter for one measurement, or for several at once.

    EARS: files of `prime-anc calibrate`, or files with a primary and a secondary channel (.npz, .mat, .ita, WAV).
    """
    response = ask("/refine", ear.body)
    answer = tables.answered(
        response, None, as_json, lambda answer: tables.beside_wiener(answer, wiener(ask, ear.body))
    )
    if output is not None:
        about = {"controller_about": ear.about} if ear.about else {}
        write_filter(ask, answer | about, ear, output)


@main.command()
@with_paths(DesignFields, designs_controller=True)
@with_flags(option_flag(f"controller_{name}", schema=schema) for name, schema in controller_schemas().items())
@click.option(
    "--stability-only",
    "stability_only",
    type=FILE,
    multiple=True,
    help="Measurement in which the loop only has to be stable, as pressed or loose; may be given again.",
)
@click.option("--lend-wearing/--no-lend-wearing", default=True, help="Also as the model's listeners wear it.")
@click.option("--target", type=DEVICE, help="A known device, whose rate, format and sections the controller takes.")
@output_flag("File of both (JSON), which export, evaluate and verify take.")
@json_flag
@with_service
def hybrid(
    ask: Ask,
    ear: Measured,
    stability_only: Sequence[Path],
    lend_wearing: bool,
    target: str | None,
    output: Path | None,
    as_json: bool,
    **wishes: Any,
) -> None:
    """Design a filter and a feedback controller for the chip beside it.

    EARS: as of `prime-anc design`.
    """
    wanted = for_device(target) if target else {}
    wanted |= {name.removeprefix("controller_"): value for name, value in wishes.items() if value is not None}
    more = [
        tables.noted(ears.ear(file)) | {"label": file.stem[:80], "stability_only": True} for file in stability_only
    ]
    stable = [{name: value for name, value in item.items() if name != "sign"} for item in (*ear.others, *more)]
    conditions = [*ear.conditions, *stable]
    asked = {"controller": wanted, "lend_wearing": lend_wearing, "conditions": conditions}
    tables.answered(ask("/hybrid", ear.shared | ear.options | asked), output, as_json)


@main.command()
@with_paths(of_filter=True)
@json_flag
@with_service
def evaluate(ask: Ask, ear: Measured, as_json: bool) -> None:
    """Predict the effect of a filter on these measurements."""
    for condition in ear.conditions:
        if len(ear.conditions) > 1:
            click.echo(f"{condition['label']}:", err=as_json)
        tables.answered(ask("/evaluate", ear.alone(condition)), None, as_json)


@main.command()
@with_paths(of_filter=True)
@click.option("--off", type=FILE, required=True, help="Recording with the filter off.")
@click.option("--on", type=FILE, required=True, help="Recording with the filter on.")
@output_flag("File for the trimmed filter, with the verification (JSON).")
@json_flag
@with_service
def verify(ask: Ask, ear: Measured, off: Path, on: Path, output: Path | None, as_json: bool) -> None:
    """Compare a filter's effect with its prediction, and trim it.

    CONTROL_FILTER: the file of the filter that runs: of `prime-anc design`, or, for sections and other numbers of
    taps, what `prime-anc export` wrote as .json.
    """
    takes = [
        tables.noted(recordings.recording(file)) | {"state": name} for name, file in (("off", off), ("on", on))
    ]
    if len(ear.conditions) > 1:
        raise click.UsageError("verify takes one measurement: give the one that was recorded")
    tables.name_takes((off, on))
    body = ear.body | {"takes": takes, "prediction": filters.filter_document(ear.control_filter).get("prediction")}
    answer = tables.answered(ask("/verify", body), None, as_json, tables.beside_predicted)
    is_within = abs(answer["deviation_db"]) <= answer["predicted_interval_db"]
    tables.notes([f"the measured mean lies {'within' if is_within else 'outside'} the predicted interval"], "")
    tables.findings(answer["diagnosis"], "found")
    codes = {item["code"] for item in answer["diagnosis"]}
    has_failed = "howling" in codes or not (is_within or "as_predicted" in codes)
    is_saved = output is None or _has_saved_trim(output, answer, filters.trimmed_by(ear.control_filter))
    sys.exit(ExitStatus.NOT_PASSED if has_failed else ExitStatus.DONE if is_saved else ExitStatus.USAGE)


def _has_saved_trim(output: Path, answer: Json, earlier: Json) -> bool:
    """Write the trimmed filter, or say why there is none; returns whether it was written."""
    trim = answer["trim"]
    if trim is None:
        tables.notes([f"{output}: not written, for no gain and delay correct what was found; see the findings"], "")
        return False
    if trim["fir"] is None and trim.get("controller") is None:
        reason = (
            "for a chip's filter is not trimmed: change its gain and delay by what is printed, or verify the file"
        )
        tables.notes([f"{output}: not written, {reason} of `prime-anc design`"], "")
        return False
    tables.save(output, orjson.dumps(filters.since_measured(answer, earlier)))
    return True


@main.command()
@with_paths(DesignFields, but=("leave_one_out",))
@click.option(
    "--verification", type=FILE, help="What `verify --json` printed, or `verify -o` wrote, to be shown too."
)
@output_flag("HTML file, which a browser prints.", default=Path("report.html"))
@click.option("--listener", help="Name of the listener, for the heading.")
@click.option(
    "--ear", "side_of_head", type=click.Choice(["left", "right"]), help="Which ear it is, for the heading."
)
@with_service
def report(
    ask: Ask,
    ear: Measured,
    verification: Path | None,
    output: Path,
    listener: str | None,
    side_of_head: str | None,
) -> None:
    """Write a page about a design, with tables and plots, to hand over.

    Noise reduction beside the Wiener filter's, a verification, date, files and their verdicts, model, |W|, what latency
    costs, the loop through a controller or a feedback path, the controller's margins, and realisations.
    """
    from prime_anc.cli.report import compose

    if output.suffix.lower() not in (".html", ".htm"):
        raise click.BadParameter(f"{output}: name it .html; a browser prints it as PDF")
    verified = None if verification is None else filters.verification(verification)
    subject = [part for part in (listener, side_of_head and f"{side_of_head} ear") if part]
    tables.save(output, compose(ask, ear, subject, verified).encode())


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
        elif "fir" in document and "prediction" in document:
            filters.append((file.stem, document))
        else:
            found, notes, _ = ears.ears(file)
            tables.notes(f"{file}: {note}" for note in notes)
            for (label, fields), (_, verdict) in zip(found, ears.verdicts(file), strict=True):
                measured.append((label, fields | {"verdict": verdict}))
    if not (measured or begun):
        raise click.UsageError("give at least one measurement")
    begun |= {"joint": True} if joint else {}
    tables.save(output, orjson.dumps(bench.session(measured, filters, begun)))


@main.command()
@json_flag
@with_service
def models(ask: Ask, as_json: bool) -> None:
    """List the published models."""
    tables.answered(ask("/models"), None, as_json)


if __name__ == "__main__":
    main(prog_name="prime-anc")
