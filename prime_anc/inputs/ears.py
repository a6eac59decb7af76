"""Read measured ears into the fields of a request, from files of any kind or sessions of the page."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.inputs import bench
from prime_anc.measure.files import measurements
from prime_anc.measure.files.arrays import stated_rate
from prime_anc.measure.files.errors import FileError
from prime_anc.measure.files.resampling import Response
from prime_anc.method.conventions import N_BINS, SAMPLE_RATE_HZ

Json = dict[str, Any]

_EARS = {"left": "l", "right": "r"}


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
    document = bench.load(file)
    remarks: tuple[str, ...] = ()
    measured = []
    for found in bench.measurements(file, document):
        remarks += _remarks(file, found)
        label = str(found.get("label", "")) if "session" in document else file.stem
        measured.append((label, bench.path_fields(file, found)))
    settings = bench.settings(file, document, [fields for _, fields in measured]) if "session" in document else {}
    if settings:
        shown = {name: value for name, value in settings.items() if name != "controller_about"}
        if "reference_psd" in shown:
            shown["reference_psd"] = document["noise"].get("name", "")
        if "controller" in shown:
            shown["controller"] = "that it holds"
        said = ", ".join(f"{name} {value}" for name, value in shown.items())
        remarks += (f"options of this session unless you give others: {said}",)
    if len(document.get("session", ())) > 1 and not document.get("joint"):
        remarks += (f"only {measured[0][0]}, the measurement chosen on the page; `session --joint` uses all",)
    if others := bench.stability_only(file, document):
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
    document, found = bench.load(file), []
    for measured in bench.measurements(file, document):
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


def n_bins(fields: Json) -> int:
    """Count the bins of a measurement's power spectra: those of its paths, or of the design grid."""
    path = fields["primary"]
    if "complex64" in path:
        return len(base64.b64decode(path["complex64"])) // 8
    return len(path["real"]) if "real" in path else N_BINS
