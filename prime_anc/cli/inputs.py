"""Read files into the fields of a request."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from prime_anc.cli import bench_file
from prime_anc.cli.bench_file import load as load_json
from prime_anc.measure.files import measurements
from prime_anc.measure.files.arrays import stated_rate
from prime_anc.measure.files.errors import FileError
from prime_anc.measure.files.resampling import MAX_CUT, Response, at_48_khz
from prime_anc.measure.files.text import read_table
from prime_anc.method.conventions import N_BINS, N_TAPS, SAMPLE_RATE_HZ
from prime_anc.method.curve import Curve

Json = dict[str, Any]

_EARS = {"left": "l", "right": "r"}

# Channels of recordings, and their fields in a take.
BOTH = (measurements.MICROPHONES, ("x", "e"))
DRIVEN = (measurements.DRIVEN, ("drive", "x", "e"))
# Largest signal of the loudspeaker, over full scale, that a declared gain may mean: recordings are often scaled.
LOUDEST_PLAYED = 2.0


def ears(
    file: Path, side: str = "left", rate_hz: float | None = None
) -> tuple[list[tuple[str, Json]], tuple[str, ...], Json]:
    """Read the measurements of a file: one, or those in use of a session.

    Parameters
    ----------
    file, side, rate_hz
        As for `ear`.

    Returns
    -------
    measured : list of tuple of str and dict
        Label and fields of a request.
    notes : tuple of str
    settings : dict
        Options of a design that a session sets; `others`: its conditions that are only for stability.

    Raises
    ------
    FileError
    """
    if file.suffix.lower() != ".json":
        fields, notes = _ear_channels(file, side, rate_hz)
        return [(file.stem, fields)], notes, {}
    document = load_json(file)
    remarks: tuple[str, ...] = ()
    measured = []
    for found in bench_file.measurements(file, document):
        remarks += _remarks(file, found)
        label = str(found.get("label", "")) if "session" in document else file.stem
        measured.append((label, bench_file.path_fields(file, found)))
    settings = (
        bench_file.settings(file, document, [fields for _, fields in measured]) if "session" in document else {}
    )
    if settings:
        shown = settings | (
            {"reference_psd": document["noise"].get("name", "")} if "reference_psd" in settings else {}
        )
        if "controller" in settings:
            shown |= {"controller": "that it holds"}
            del shown["controller_about"]
        said = ", ".join(f"{name} {value}" for name, value in shown.items())
        remarks += (f"options of this session unless you give others: {said}",)
    if len(document.get("session", ())) > 1 and not document.get("joint"):
        remarks += (f"only {measured[0][0]}, the measurement chosen on the page; `session --joint` uses all",)
    if others := bench_file.stability_only(file, document):
        settings["others"] = others
        names = ", ".join(str(item["label"]) for item in others)
        remarks += (f"only for stability, which `hybrid` alone looks at: {names}",)
    return measured, remarks, settings


def ear(file: Path, side: str = "left", rate_hz: float | None = None) -> tuple[Json, tuple[str, ...]]:
    """Read one measurement: a file of `prime-anc calibrate` or the page, or one with a primary and a secondary channel.

    Parameters
    ----------
    file : Path
    side : str
        Which ear, of a file with both.
    rate_hz : float, optional
        Sample rate of a file that states none.

    Returns
    -------
    fields : dict
        Of a request.
    notes : tuple of str

    Raises
    ------
    FileError
    """
    measured, notes, _ = ears(file, side, rate_hz)
    if len(measured) > 1:
        raise FileError(f"{file}: this session uses {len(measured)} measurements; choose one on the page")
    return measured[0][1], notes


def _ear_channels(file: Path, side: str, rate_hz: float | None) -> tuple[Json, tuple[str, ...]]:
    """Read a measurement from the channels of a file."""
    found = measurements.read(file, rate_hz)
    if len(found.channels) == 1:
        raise FileError(f"{file}: it has one channel; name the paths' files with --primary and --secondary")
    notes = list(found.notes)
    if file.suffix.lower() in measurements.AUDIO and len(found.channels) == 2:  # audio channels have no names
        found = replace(found, channels=dict(zip(("primary", "secondary"), found.channels.values(), strict=True)))
        notes.append("channel 1 is taken for the primary path, channel 2 for the secondary path")
    names = {name: found.name_of(name, name + _EARS[side]) for name in ("primary", "secondary")}
    with suppress(FileError):
        names["feedback"] = found.name_of("feedback", "feedback" + _EARS[side])
    fields, said = _path_fields({path: found.response(name) for path, name in names.items()})
    notes += said
    rest = [name for name in found.channels if name not in names.values()]
    if "coherence" in rest and found.rate_hz == SAMPLE_RATE_HZ:
        fields["coherence"] = found.channels["coherence"]
        rest.remove("coherence")
    if rest:
        notes.append(f"not used: {', '.join(rest[:8])}{' and more' if len(rest) > 8 else ''}")
    return fields, tuple(notes)


def _remarks(file: Path, document: Json) -> tuple[str, ...]:
    """Return warnings about a JSON measurement; raises FileError for a rate other than 48 kHz."""
    for name, value in document.items():
        rate_hz = stated_rate(name, value) if isinstance(value, int | float) else None
        if rate_hz not in (None, SAMPLE_RATE_HZ):
            raise FileError(
                f"{file}: its {name} states {rate_hz:g} Hz; a JSON measurement is at 48000 Hz, so save a WAV"
            )
    verdict = document.get("verdict")
    if isinstance(verdict, dict) and verdict.get("passed") is False:
        reasons = ", ".join(str(item.get("code")) for item in verdict.get("reasons", ()) if isinstance(item, dict))
        return (f"this calibration did not pass{f' ({reasons})' if reasons else ''}; measure again",)
    return ()


def verdicts(file: Path) -> list[tuple[str, Json | None]]:
    """Return name and verdict of the measurements in use of a file; None for one that is no calibration's."""
    if file.suffix.lower() != ".json":
        return [(file.name, None)]
    document, found = load_json(file), []
    for measured in bench_file.measurements(file, document):
        name = f"{file.name}, {measured.get('label', '')}" if "session" in document else file.name
        verdict = measured.get("verdict")
        found.append((name, verdict if isinstance(verdict, dict) else None))
    return found


def separate(rate_hz: float | None = None, **files: Path | None) -> tuple[Json, tuple[str, ...]]:
    """Read one file, or `FILE#CHANNEL`, per path.

    Parameters
    ----------
    rate_hz : float, optional
        Sample rate of files that state none.
    **files : Path or None
        `primary`, `secondary`, `feedback`.

    Returns
    -------
    fields : dict
        Of a request.
    notes : tuple of str

    Raises
    ------
    FileError
    """
    responses: dict[str, Response] = {}
    notes: list[str] = []
    for name, file in files.items():
        if file is not None:
            responses[name], said = measurements.response(file, name, rate_hz=rate_hz)
            notes += [f"{file}: {note}" for note in said]
    fields, said = _path_fields(responses)
    return fields, (*notes, *said)


def _path_fields(responses: Mapping[str, Response]) -> tuple[Json, tuple[str, ...]]:
    """Convert paths to fields of a request, with notes."""
    for response in responses.values():
        if not response.samples.any():
            raise FileError(f"{response.what}: it is silent; measure it again")
    found, notes = measurements.paths_at_48_khz(responses)
    return {name: {"impulse_response": item.astype(np.float32)} for name, item in found.items()}, notes


def recording(file: Path, names: Sequence[str] = BOTH[1]) -> tuple[Json, tuple[str, ...]]:
    """Read the signals of a recording by name, BOTH's or DRIVEN's, with notes."""
    fields, notes, _ = _recorded(file, *(DRIVEN if "drive" in names else BOTH))
    return fields, notes


def takes(
    silent: Sequence[Path], played: Sequence[Path], gain: float, driven: Sequence[Path]
) -> tuple[list[Json], tuple[str, ...]]:
    """Read the recordings of a calibration, with notes.

    Parameters
    ----------
    silent, played, driven : sequence of Path
        Recordings without sound from the loudspeaker, with the outer microphone's signal times a gain, and of the
        loudspeaker alone.
    gain : float
        Gain of those `played`.

    Returns
    -------
    list of dict
        Takes of a request.
    tuple of str
        Notes on the files, and on a gain with which the loudspeaker's signal would have been far too loud.

    Raises
    ------
    FileError
        As for `measurements.recording`, or the recordings have different rates.
    """
    found: list[Json] = []
    all_notes: list[str] = []
    rates_hz: dict[float, Path] = {}
    for file, declared in [*((file, 0.0) for file in silent), *((file, gain) for file in played)]:
        fields, notes, rate_hz = _recorded(file, *BOTH)
        loudest = abs(declared) * float(np.abs(fields["x"]).max())
        if loudest > LOUDEST_PLAYED:
            all_notes.append(
                f"{file}: with --gain {gain:g} the loudspeaker's signal would have been {loudest:.0f} times full "
                "scale; check the gain"
            )
        found.append(fields | {"gain": declared})
        all_notes += notes
        rates_hz.setdefault(rate_hz, file)
    for file in driven:
        fields, notes, rate_hz = _recorded(file, *DRIVEN)
        found.append(fields)
        all_notes += notes
        rates_hz.setdefault(rate_hz, file)
    if len(rates_hz) > 1:
        stated = ", ".join(f"{file} {rate_hz:g} Hz" for rate_hz, file in rates_hz.items())
        raise FileError(f"the recordings have different sample rates ({stated}); record all at one rate")
    return found, tuple(all_notes)


def _recorded(file: Path, meanings: Sequence[str], names: Sequence[str]) -> tuple[Json, tuple[str, ...], float]:
    """Read a recording's fields of a take, with notes and its rate."""
    found = measurements.recording(file, meanings)
    fields: Json = dict(zip(names, found.signals, strict=True))
    fields["clipped_share"] = dict(zip(names, found.clipped_shares, strict=True))
    return fields, tuple(f"{file}: {note}" for note in found.notes), found.rate_hz


def verification(file: Path) -> Json:
    """Read the answer of `verify`; raises FileError."""
    document = load_json(file)
    if "measured" not in document:
        raise FileError(f"{file}: it is no verification; give what `prime-anc verify --json` printed")
    return document


def is_document(file: Path) -> bool:
    """Return whether a filter's file is JSON: FILE.json, or SESSION.json#NAME."""
    return file.suffix.lower().partition("#")[0] == ".json"


def filter_document(file: Path) -> Json:
    """Read a filter's JSON, or that of one which a session keeps; raises FileError."""
    path, _, name = str(file).partition("#")
    if file.exists():
        path, name = str(file), ""
    return bench_file.control_filter(Path(path), load_json(Path(path)), name)


def filter_fields(file: Path, rate_hz: float | None = None, beside: object = None) -> Json:
    """Read a filter: the answer of `design`, `hybrid` or `export`, the trimmed filter of `verify`, or taps.

    Parameters
    ----------
    file : Path
    rate_hz : float, optional
        Sample rate of a file that states none.
    beside : optional
        Controller instead of the file's.

    Returns
    -------
    dict
        `fir`, taps at 48 kHz or what `export` wrote, and `sign`, `latency_samples`, `max_gain_db`, `max_louder_db` and
        `controller` if the file states them.

    Raises
    ------
    FileError
    """
    running = {} if beside is None else {"controller": beside}
    if is_document(file):
        document = _with_trim(filter_document(file))
        if coefficients := document.get("coefficients"):
            used = {name: coefficients[name] for name in ("sos", "taps", "sample_rate") if name in coefficients}
            document = document | {"fir": used}
        if document.get("fir") is None:
            what = "the changes of a chip's filter alone" if "gain_db" in document else "no filter"
            raise FileError(f"{file}: it has {what}; give the file that `prime-anc design` wrote")
        names = ("fir", "sign", "latency_samples", "max_gain_db", "max_louder_db", "controller")
        return {name: document[name] for name in names if name in document} | running
    taps, _ = measurements.response(file, "taps", "fir", "w", rate_hz=rate_hz)
    return {"fir": _taps_at_48_khz(taps)} | running


def _with_trim(document: Json) -> Json:
    """Return what `verify` has trimmed, if it wrote the document."""
    return document if {"fir", "coefficients"} & document.keys() else document.get("trim", document) or {}


def trimmed_by(control_filter: Path) -> Json:
    """Return the changes by which `verify` trimmed a file's filter, empty if it did not."""
    document = filter_document(control_filter) if is_document(control_filter) else {}
    trim = None if "fir" in document else document.get("trim")
    return {name: trim[name] for name in ("gain_db", "delay_samples", "invert")} if trim else {}


def controller(text: str) -> tuple[object, Json]:
    """Return the controller of a file of `hybrid`, or the trimmed one of `verify`, else the text: a published name.

    The second item is what the file says of it, as `bench_file.controller_about`.
    """
    if not Path(text).is_file():
        return text, {}
    document = _with_trim(filter_document(Path(text)))
    if document.get("controller") is None:
        raise FileError(f"{text}: it has no controller; give what `prime-anc hybrid` wrote")
    return document["controller"], bench_file.controller_about(document)


def _taps_at_48_khz(taps: Response) -> NDArray[np.float32]:
    """Cut the resampler's decay after the last tap; the service checks whether the rest is too long."""
    found = at_48_khz(taps)
    rest = found[N_TAPS:]
    return (found[:N_TAPS] if rest @ rest <= MAX_CUT * (found @ found) else found).astype(np.float32)


def since_measured(answer: Json, earlier: Json) -> Json:
    """Add to a filter that `verify` trimmed the changes by which it was trimmed before, if any."""
    trim = answer["trim"]
    if not earlier or trim["fir"] is None:
        return answer
    sums = {name: trim[name] + earlier[name] for name in ("gain_db", "delay_samples")}
    return answer | {"trim": trim | sums | {"invert": trim["invert"] != earlier["invert"]}}


def about_filter(paths: Json, control_filter: Path, rate_hz: float | None) -> tuple[Json, tuple[str, ...]]:
    """Add a filter to measured paths, with the change of the secondary path for which `prime-anc verify` trimmed it.

    Parameters
    ----------
    paths : dict
        Fields of a request: paths, or conditions.
    control_filter, rate_hz
        As for `filter_fields`.

    Returns
    -------
    tuple of dict and tuple of str
        The fields, changed where the file is a trimmed filter's, and notes.
    """
    fields = filter_fields(control_filter, rate_hz, paths.get("controller"))
    trim = trimmed_by(control_filter)
    if not trim:
        return paths | fields, ()
    from prime_anc.measure.verify import changed_path

    def changed(fields: Json) -> Json:
        changed_fields = dict(fields)
        for name in {"secondary", "feedback"} & fields.keys():
            path = changed_path(samples(fields[name]), -trim["gain_db"], -trim["delay_samples"], trim["invert"])
            changed_fields[name] = {"impulse_response": np.fft.irfft(path).astype(np.float32)}
        return changed_fields

    found = changed(paths)
    if "conditions" in paths:
        found["conditions"] = [changed(item) for item in paths["conditions"]]
    return found | fields, (
        f"{control_filter}: predicted with the loudspeaker as it was verified, {-trim['gain_db']:+.1f} dB and "
        f"{-trim['delay_samples']:+.2f} samples{', inverted,' if trim['invert'] else ''} from the measurement",
    )


def samples(path: Json) -> NDArray[Any]:
    """Return a path's samples or spectrum from a request's field."""
    if "complex64" in path:
        return np.frombuffer(base64.b64decode(path["complex64"]), "<c8")
    if "impulse_response" in path:
        return np.asarray(path["impulse_response"], np.float32)
    raise FileError("paths are needed as impulse responses, or as complex64")


def response_of(path: Json) -> NDArray[np.float64]:
    """Return the impulse response of a request's path, real [n]."""
    if "real" in path:
        spectrum = np.asarray(path["real"]) + 1j * np.asarray(path["imag"])
    else:
        spectrum = samples(path)
        if not np.iscomplexobj(spectrum):
            return np.asarray(spectrum, np.float64)
    return np.fft.irfft(spectrum)


def running_filter(file: Path) -> Json:
    """Read a filter to run: `prime-anc export`'s answer, or the taps of another file in the same form.

    Returns
    -------
    dict
        `coefficients`, and `sign`, `latency_samples` and `controller` if the file states them.

    Raises
    ------
    FileError
    """
    document = filter_document(file) if is_document(file) else {}
    if "coefficients" in document:
        return document
    fields = filter_fields(file)
    taps = {"form": "fir", "taps": fields.pop("fir"), "sample_rate": SAMPLE_RATE_HZ}
    return fields | {"coefficients": taps}


def curve(text: str, kind: type[Curve], or_number: bool) -> float | Json:
    """Read a curve from a file of two columns, frequency in Hz and values, or a number in its place."""
    if or_number:
        with suppress(ValueError):
            return float(text)
    table = _two_columns(text, kind.column())
    return {"frequency_hz": table[:, 0].tolist(), kind.VALUES: table[:, 1].tolist()}


def _two_columns(file: Path | str, second: str) -> NDArray[np.float64]:
    """Read rows of frequency in Hz and another value; raises BadParameter."""
    try:
        table = read_table(Path(file)).values
    except OSError as error:
        raise click.BadParameter(f"{str(file)!r} is neither a number nor a readable file: {error}") from error
    if table.shape[1] != 2:
        raise click.BadParameter(
            f"{file}: it has {table.shape[1]} columns; frequency in Hz and {second} are needed"
        )
    return table


def n_bins(fields: Json) -> int:
    """Count the bins of a measurement's power spectra: those of its paths, or of the design grid."""
    path = fields["primary"]
    if "complex64" in path:
        return len(base64.b64decode(path["complex64"])) // 8
    return len(path["real"]) if "real" in path else N_BINS


def reference_psd(file: Path, n_bins: int) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Read a power spectrum from a recording or a table.

    A recording's first channel is analysed by Welch's method. Power densities in dB are interpolated linearly over log
    frequency and held beyond the ends.

    Returns
    -------
    tuple[NDArray[np.float64], tuple[str, ...]]
        Mean square per bin, one-sided, [n_bins], and notes.
    """
    n_fft = 2 * (n_bins - 1)
    if file.suffix.lower() not in measurements.AUDIO:
        table = _two_columns(file, "power density in dB")
        if not ((np.diff(table[:, 0]) > 0).all() and table[0, 0] > 0):
            raise FileError(f"{file}: frequencies must be above 0 Hz and rise")
        hz = np.maximum(np.arange(n_bins) * (SAMPLE_RATE_HZ / n_fft), table[0, 0])
        return 10 ** (np.interp(np.log(hz), np.log(table[:, 0]), table[:, 1]) / 10), ()
    from scipy.signal import welch

    samples, notes = measurements.first_channel(file)
    if len(samples) < n_fft:
        raise FileError(f"{file}: it has {len(samples)} samples; record at least {n_fft}, four seconds at best")
    _, density = welch(samples, SAMPLE_RATE_HZ, "hann", n_fft, detrend=False)
    return density * (SAMPLE_RATE_HZ / n_fft), tuple(f"{file}: {note}" for note in notes)
