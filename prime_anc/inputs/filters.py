"""Read control filters, controllers and verifications into the fields of a request."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from prime_anc.client.client import FileKind
from prime_anc.hardware.filter_files import EXTENSIONS
from prime_anc.inputs import bench
from prime_anc.inputs.ears import samples
from prime_anc.measure.files import measurements
from prime_anc.measure.files.errors import FileError
from prime_anc.measure.files.resampling import MAX_CUT, Response, at_48_khz
from prime_anc.method.conventions import N_TAPS, SAMPLE_RATE_HZ
from prime_anc.options import ObjectiveFields

Json = dict[str, Any]

# Kinds of a filter's files, by extension; those of text need their name.
FILTER_FILES: dict[str, Any] = {
    f".{extension}": kind for kind, extension in EXTENSIONS.items() if extension != "txt"
} | {".c": "c"}


def verification(file: Path) -> Json:
    """Read the answer of `verify`; raises FileError."""
    document = bench.load(file)
    if "measured" not in document:
        raise FileError(f"{file}: it is no verification; give what `prime-anc verify --json` printed")
    return document


def is_document(file: Path) -> bool:
    """Return whether a filter's file is JSON: FILE.json, or SESSION.json#NAME."""
    return file.suffix.lower().partition("#")[0] == ".json"


def filter_document(file: Path) -> Json:
    """Read a filter's JSON, or that of one which a session keeps; empty for other files; raises FileError."""
    if not is_document(file):
        return {}
    path, _, name = str(file).partition("#")
    if file.exists():
        path, name = str(file), ""
    return bench.control_filter(Path(path), bench.load(Path(path)), name)


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
        `fir`, taps at 48 kHz or what `export` wrote, and `sign`, `latency_samples`, `controller` and the options of
        its objective if the file states them.

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
        names = ("fir", "sign", "latency_samples", "controller", *(item.name for item in fields(ObjectiveFields)))
        return {name: document[name] for name in names if name in document} | running
    taps, _ = measurements.response(file, "taps", "fir", "w", rate_hz=rate_hz)
    return {"fir": _taps_at_48_khz(taps)} | running


def _with_trim(document: Json) -> Json:
    """Return what `verify` has trimmed, if it wrote the document."""
    return document if {"fir", "coefficients"} & document.keys() else document.get("trim", document) or {}


def trimmed_by(control_filter: Path) -> Json:
    """Return the changes by which `verify` trimmed a file's filter, empty if it did not."""
    document = filter_document(control_filter)
    trim = None if "fir" in document else document.get("trim")
    return {name: trim[name] for name in ("gain_db", "delay_samples", "invert")} if trim else {}


def controller(text: str) -> tuple[object, Json]:
    """Return the controller of a file of `hybrid`, or the trimmed one of `verify`, else the text: a published name.

    The second item is what the file says of it, as `bench.controller_about`.
    """
    if not Path(text).is_file():
        return text, {}
    document = _with_trim(filter_document(Path(text)))
    if document.get("controller") is None:
        raise FileError(f"{text}: it has no controller; give what `prime-anc hybrid` wrote")
    return document["controller"], bench.controller_about(document)


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
    document = filter_document(file)
    if "coefficients" in document:
        return document
    fields = filter_fields(file)
    taps = {"form": "fir", "taps": fields.pop("fir"), "sample_rate": SAMPLE_RATE_HZ}
    return fields | {"coefficients": taps}


def file_kind(output: Path) -> FileKind:
    """Return the kind of a filter's file by its extension."""
    kind: FileKind | None = FILTER_FILES.get(output.suffix.lower())
    if kind is None:
        raise FileError(
            f"{output}: {output.suffix or 'no extension'} is not known; use {', '.join(FILTER_FILES)}, .json, or give "
            f"the kind: {', '.join(get_args(FileKind))}"
        )
    return kind
