"""Seven functions on files or arrays: from recordings of an ear to a filter on a chip.

Their answers are those of the command and of HTTP, computed in this process. Arrays may be lists, and a file may stand
for what was read of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from prime_anc import answers
from prime_anc.answers import (
    CalibrationAnswer,
    DesignAnswer,
    EvaluationAnswer,
    ExportAnswer,
    HybridAnswer,
    VerificationAnswer,
)
from prime_anc.client import Client, Condition, DriveTake, Recording, Take
from prime_anc.client.client import FileKind
from prime_anc.client.options import EXPORT, FILTER, REFINEMENT, takes_options
from prime_anc.inputs import bench, ears, filters, recordings
from prime_anc.local import LocalClient
from prime_anc.measure.files.errors import FileError
from prime_anc.options import Sign

File = str | PathLike[str]
Ear = CalibrationAnswer | Condition | Sequence[File | CalibrationAnswer | Condition]
Filter = DesignAnswer | ExportAnswer

# Fields by which a file's answer is known, the more special one first.
_KINDS: tuple[tuple[str, type[answers.Answer]], ...] = (
    ("coefficients", ExportAnswer),
    ("refinement", DesignAnswer),
    ("verdict", CalibrationAnswer),
    ("diagnosis", VerificationAnswer),
    ("prediction", EvaluationAnswer),
)


def read(file: File, *, side: str = "left", sample_rate: float | None = None) -> Any:
    """Read a file: a measured ear, or an answer that was saved.

    Parameters
    ----------
    file
        What `save` or the command wrote, or a measurement with a primary and a secondary channel (.npz, .mat, .ita,
        WAV, text).
    side
        Which ear, of a file with both: `left` or `right`.
    sample_rate
        Sample rate of a file that states none, Hz.

    Returns
    -------
    Answer or Condition
        What was saved; a Condition for measured paths.

    Raises
    ------
    FileError
        The file cannot be used; the message says why, and what to do.
    """
    if side not in ("left", "right"):
        raise ValueError(f"side: {side!r}; give left or right")
    path = Path(file)
    if path.suffix.lower() == ".json":
        document = bench.load(path)
        kind = next((kind for name, kind in _KINDS if name in document), None)
        if kind is not None:
            kind = HybridAnswer if "conditions" in document.get("loop", ()) else kind
            return answers.read(kind, document)
    fields = _noted(*ears.ear(path, side, sample_rate))
    paths = {name: ears.samples(fields[name]) for name in ("primary", "secondary", "feedback") if name in fields}
    besides: dict[str, Any] = {"coherence": fields.get("coherence"), "feedback": paths.get("feedback")}
    return Condition(paths["primary"], paths["secondary"], **besides, label=path.stem)


def calibrate(
    off: File | ArrayLike,
    on: File | ArrayLike | None = None,
    *,
    gain: float | None = None,
    drive: File | ArrayLike | None = None,
    sign: Sign | None = None,
    model: str | None = None,
) -> CalibrationAnswer:
    """Estimate an ear's paths from recordings of both microphones, and judge them.

    Parameters
    ----------
    off
        Recording with the loudspeaker silent: a stereo file, or [2, n] or [n, 2] at 48 kHz; outer microphone, then the
        one at the ear.
    on
        Recording while the loudspeaker plays the outer microphone's signal times `gain`.
    gain
        Gain of `on`.
    drive
        Recording of the loudspeaker alone, in place of `on` or besides: what is played, then both microphones.
    sign
        Sign of the signal chain: `minus` (default) or `plus`.
    model
        Model whose listeners the paths are compared with, such as `bose-qc20`.

    Returns
    -------
    CalibrationAnswer
        Look at its `verdict`: a calibration that did not pass is returned, too.

    Raises
    ------
    ValueError, FileError, ClientError
        A recording cannot be used; the message says why, and what to do.
    """
    if on is not None and not (gain and isinstance(gain, Real)):
        raise ValueError("gain: give the factor between outer microphone and loudspeaker in `on`, other than 0")
    takes: list[Take | DriveTake] = [Take(0.0, *_signals(off, ("x", "e")))]
    if on is not None:
        takes.append(Take(float(gain or 0.0), *_signals(on, ("x", "e"))))
    if drive is not None:
        takes.append(DriveTake(*_signals(drive, ("drive", "x", "e"))))
    return local().calibrate(takes, sign=sign, model=model)


@takes_options(REFINEMENT)
def design(ear: File | Ear | ArrayLike, secondary: ArrayLike | None = None, **options: Any) -> DesignAnswer:
    """Design the control filter of an ear, or one filter for several conditions.

    Parameters
    ----------
    ear
        A calibration, a file of one, measured paths as a Condition, several of these, or the primary path: an impulse
        response at 48 kHz (real) or a one-sided spectrum (complex).
    secondary
        The secondary path beside the primary one.
    **options
        The options below.

    Returns
    -------
    DesignAnswer
        2048 causal `taps` at 48 kHz with their `prediction`.

    Raises
    ------
    TypeError, ValueError, FileError, ClientError
        There is no such option, or an array, a file or a value cannot be used.
    """
    return local().refine(_ear(ear), secondary, **options)


@takes_options(REFINEMENT)
def hybrid(ear: File | Ear | ArrayLike, secondary: ArrayLike | None = None, **options: Any) -> HybridAnswer:
    """Design a feedback controller on the error microphone, and the filter beside it.

    Parameters
    ----------
    ear, secondary, **options
        As of `design`; `controller` is what the controller has to be: {"n_sections": 8, "sample_rate": 192000,
        "latency_us": 10, "number_format": "q5.27"}, all optional.

    Returns
    -------
    HybridAnswer
        With its `controller`; `loop.conditions` holds the loop of each plant.
    """
    return local().hybrid(_ear(ear), secondary, **options)


@takes_options(FILTER)
def predict(
    control_filter: File | Filter | ArrayLike,
    ear: File | Ear | ArrayLike,
    secondary: ArrayLike | None = None,
    **options: Any,
) -> EvaluationAnswer:
    """Predict the effect of a filter on an ear.

    Parameters
    ----------
    control_filter
        A design, an export, a file of either, or 2048 taps at 48 kHz.
    ear, secondary, **options
        As of `design`, of one ear.

    Returns
    -------
    EvaluationAnswer
        With its `prediction`.
    """
    return local().evaluate(_filter(control_filter), _ear(ear), secondary, **options)


@takes_options(FILTER)
def verify(
    control_filter: File | Filter | ArrayLike,
    ear: File | Ear | ArrayLike,
    off: File | ArrayLike,
    on: File | ArrayLike,
    **options: Any,
) -> VerificationAnswer:
    """Measure the effect of a running filter, and diagnose deviations from its prediction.

    Parameters
    ----------
    control_filter, ear, **options
        As of `predict`; two arrays as a Condition.
    off, on
        Recordings of both microphones with the filter off and on, as `off` of `calibrate`.
    """
    silent, running = ([Recording(*_signals(state, ("x", "e")))] for state in (off, on))
    return local().verify(_filter(control_filter), silent, running, _ear(ear), **options)


@takes_options(EXPORT)
def export(
    control_filter: File | DesignAnswer | ArrayLike,
    ear: File | Ear | ArrayLike,
    *files: File,
    sections: int | None = None,
    taps: int | None = None,
    sample_rate: float | None = None,
    format: str | None = None,
    target: str | None = None,
    kind: FileKind | None = None,
    **options: Any,
) -> ExportAnswer:
    """Realise a filter as hardware runs it, and write its files.

    Parameters
    ----------
    control_filter, ear, **options
        As of `design`; two arrays as a Condition.
    *files
        Files to write: .wav, .csv, .h, .mat, .yml (CamillaDSP), .json, or .txt with `kind`.
    sections, taps
        Number of second-order sections (1 to 32, default 8), or of taps.
    sample_rate
        That of the hardware, Hz.
    format
        Number format: `float32`, `float64`, or qI.F such as `q1.23`.
    target
        A known device, whose form, rate and format are taken: `prime-anc targets` lists them.
    kind
        Kind of file, where its extension does not say.
    """
    kinds = [
        None if Path(file).suffix.lower() == ".json" else kind or filters.file_kind(Path(file)) for file in files
    ]
    wishes = {"n_sections": sections, "n_taps": taps, "sample_rate": sample_rate, "number_format": format}
    wishes |= {"name": target, "form": None if taps is None else "fir"}
    asked = _filter(control_filter), {name: value for name, value in wishes.items() if value is not None}, _ear(ear)
    answer = local().export(*asked, **options)
    for file, written in zip(files, kinds, strict=True):
        if written is None:
            answer.save(file)
        else:
            Path(file).write_bytes(local().export(*asked, **options, file=written))
    return answer


@cache
def local() -> Client:
    """Return the client that answers in this process."""
    return LocalClient()


def _ear(ear: Any) -> Any:
    """Return an ear as the client takes it: files read, and calibrations that did not pass warned of."""
    if isinstance(ear, list | tuple) and any(isinstance(one, str | PathLike | answers.Answer) for one in ear):
        return [_ear(one) for one in ear]
    found = read(ear) if isinstance(ear, str | PathLike) else ear
    if isinstance(found, CalibrationAnswer):
        if not found.verdict.passed:
            reasons = "; ".join(f"{item.code}: {item.detail}" for item in found.verdict.reasons)
            warnings.warn(f"this calibration did not pass: {reasons}", stacklevel=3)
    elif isinstance(found, answers.Answer):
        raise FileError(f"{ear if found is not ear else type(found).__name__}: it is no measurement of an ear")
    return found


def _filter(control_filter: Any) -> Any:
    """Return a filter as the client takes it."""
    if not isinstance(control_filter, str | PathLike):
        return control_filter
    path = Path(control_filter)
    return read(path) if path.suffix.lower() == ".json" else filters.filter_fields(path)["fir"]


def _noted(fields: Mapping[str, Any], notes: Sequence[str]) -> Mapping[str, Any]:
    """Return what was read of a file; what had to be changed or assumed is warned of."""
    for note in notes:
        warnings.warn(note, stacklevel=4)
    return fields


def _signals(recording: Any, names: Sequence[str]) -> list[Any]:
    """Return the signals of a recording, in the order of their names."""
    if isinstance(recording, str | PathLike):
        fields = _noted(*recordings.recording(Path(recording), names))
        return [fields[name] for name in names]
    try:
        array = np.asarray(recording)
    except ValueError as error:
        raise ValueError(f"a recording is no array of numbers: its signals differ in length ({error})") from error
    if array.ndim != 2 or len(names) not in array.shape:
        raise ValueError(
            f"a recording of the shape {list(array.shape)}: give [{len(names)}, n], {' then '.join(names)}, at 48 kHz"
        )
    return list(array if len(array) == len(names) else array.T)
