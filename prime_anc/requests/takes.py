"""Probe recordings in requests, and the body that contains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, PlainValidator

from prime_anc.fields import Absent, Number
from prime_anc.measure.calibration import MAX_SAMPLES, MIN_SAMPLES
from prime_anc.measure.estimate import GainTake, PlayedTake
from prime_anc.method.types import Float32
from prime_anc.requests.arrays import RateField, finite, floats, is_encoded
from prime_anc.requests.errors import RequestError
from prime_anc.requests.options import CalibrationOptions
from prime_anc.requests.strict import StrictModel, base64_bytes, shown
from prime_anc.requests.wav import read_wav

MAX_TAKES = 64
"""Eight recordings in eight states."""

MIN_GAIN, MAX_GAIN = 1e-6, 1000.0
"""Range of a gain with the loudspeaker on; below -120 dB it is not measurable."""


_MEMBERS = '{"gain", "x", "e"} or {"drive", "x", "e"}'


class Recordings(NamedTuple):
    """Takes as a calibration gets them; each is named by its place."""

    probes: list[GainTake]
    drives: list[PlayedTake]
    # Shares of signals before they were resampled, by `take, signal`.
    clipped_shares: dict[str, float]


def _takes(value: object) -> Recordings:
    """Read the takes of a body; RequestError names the take."""
    if not isinstance(value, list):
        raise RequestError("invalid-field", f"takes: {shown(value)} is not a list of takes", "takes")
    if not 2 <= len(value) <= MAX_TAKES:
        raise RequestError("out-of-range", f"takes: there are {len(value)}; send 2 to {MAX_TAKES}", "takes")
    found = Recordings([], [], {})
    for number, item in enumerate(value):
        _read_take(item, f"takes.{number}", found)
    gains = {take.gain for take in found.probes}
    if 0 not in gains or (len(gains) < 2 and not found.drives):
        raise RequestError(
            "invalid-field",
            f"takes: the gains are {sorted(gains)[:8]}; send 0 and another, or a take with drive",
            "takes",
        )
    return found


def _read_take(value: object, field: str, found: Recordings) -> None:
    """Read one take and add it to those found."""
    if not isinstance(value, dict):
        raise RequestError("invalid-field", f"{field}: {shown(value)} is not {_MEMBERS}", field)
    names = ("drive", "x", "e") if "drive" in value else ("x", "e")
    needed = names if "drive" in value else ("gain", *names)
    for name in needed:
        if name not in value:
            raise RequestError("missing-field", f"{field}: {name} is missing; send {_MEMBERS}", f"{field}.{name}")
    if unknown := sorted(set(value) - {*needed, "clipped_share"}):
        raise RequestError("unknown-field", f"{field}: {shown(unknown[0])} is not known; send {_MEMBERS}", field)
    clipped = read_clipped_share(value.get("clipped_share"), names, field)
    gain = None if "drive" in value else _gain(value["gain"], f"{field}.gain")
    signals = {name: read_signal(value[name], f"{field}.{name}") for name in names}
    _check_signals(signals, field)
    if gain is None:
        found.drives.append(PlayedTake(signals["drive"], signals["x"], signals["e"], field))
    else:
        found.probes.append(GainTake(gain, signals["x"], signals["e"], field))
    found.clipped_shares.update({f"{field}, {name}": share for name, share in clipped.items()})


def _gain(value: object, field: str) -> float:
    """Read the gain of a take."""
    if type(value) not in (int, float):
        raise RequestError("invalid-field", f"{field}: {shown(value)} is not a number", field)
    gain = float(value)  # type: ignore[arg-type]
    if gain != 0 and not MIN_GAIN <= abs(gain) <= MAX_GAIN:
        raise RequestError(
            "out-of-range",
            f"{field}: {gain} is neither 0 nor of a magnitude from {MIN_GAIN:g} to {MAX_GAIN:g}; "
            "send the factor that stood in place of the control filter",
            field,
        )
    return gain


def _check_signals(signals: Mapping[str, Float32], field: str) -> None:
    """Check that a take's signals have one length, and that no microphone has the first one's signal."""
    lengths = {name: len(signal) for name, signal in signals.items()}
    if len(set(lengths.values())) > 1:
        found = " and ".join(f"{name} has {n} samples" for name, n in lengths.items())
        raise RequestError("invalid-field", f"{field}: {found}; send equal numbers", field)
    if not MIN_SAMPLES <= lengths["x"] <= MAX_SAMPLES:
        found = f"there are {lengths['x']} samples; send {MIN_SAMPLES} to {MAX_SAMPLES}"
        raise RequestError("out-of-range", f"{field}: {found}", field)
    source, *microphones = signals
    for name in microphones:
        if _are_same(signals[source][:MIN_SAMPLES], signals[name][:MIN_SAMPLES]):
            raise RequestError(
                "invalid-field",
                f"{field}: {source} and {name} are the same signal: send the outer microphone as x, the error "
                "microphone as e, and as drive what the loudspeaker plays",
                field,
            )


def _are_same(one: Float32, other: Float32) -> bool:
    """Return whether two signals are equal up to a factor, an offset and rounding, and are not constant."""
    one, other = (item - item.mean(dtype=np.float64) for item in (one, other))
    energies = np.dot(one, one) * np.dot(other, other)
    return bool(np.dot(one, other) ** 2 > (1 - 1e-6) * energies)


def read_clipped_share(value: object, signals: Sequence[str], field: str) -> dict[str, float]:
    """Read the clipped shares of a take's signals before they were resampled.

    Parameters
    ----------
    value
        The take's `clipped_share`; None if missing.
    signals
        Names of the take's signals.
    field
        The take, for messages.

    Returns
    -------
    dict[str, float]
        Shares from 0 to 1 by name of the signal.

    Raises
    ------
    RequestError
        It is not such an object.
    """
    given = {} if value is None else value
    if not isinstance(given, dict) or not given.keys() <= set(signals):
        raise RequestError(
            "invalid-field",
            f"{field}.clipped_share: {shown(value)} is not an object with some of {', '.join(signals)}",
            f"{field}.clipped_share",
        )
    for name, share in given.items():
        if type(share) not in (int, float) or not 0 <= share <= 1:
            raise RequestError(
                "out-of-range", f"{field}.clipped_share.{name}: send a share from 0 to 1", f"{field}.clipped_share"
            )
    return given


def read_signal(value: object, field: str) -> Float32:
    """Read a signal in one of its forms; RequestError names the field."""
    if isinstance(value, list | np.ndarray) or is_encoded(value):
        return floats(value, field, MAX_SAMPLES)
    if isinstance(value, dict) and set(value) == {"wav"}:
        return finite(read_wav(base64_bytes(value["wav"], f"{field}.wav"), f"{field}.wav"), field)
    expected = 'a tensor, a list of numbers, {"float32"} or {"wav"}'
    raise RequestError("invalid-field", f"{field}: {shown(value)} is not {expected}", field)


class Signal(StrictModel):
    """A signal of 3072 to 2880000 samples in one of two forms; a list of numbers is read too."""

    float32: Absent[str] = None
    """Base64 of little-endian float32."""
    wav: Absent[str] = None
    """Base64 of a mono WAV file at 48 kHz: 16, 24 or 32 bits, or floats."""


Share = Annotated[Number, Field(ge=0, le=1)]


class ClippedShare(StrictModel):
    """Share of the samples at the extremes, per signal, before it was resampled to 48 kHz."""

    drive: Absent[Share] = None
    x: Absent[Share] = None
    e: Absent[Share] = None


class TakeBody(StrictModel):
    """A recording: with `gain`, or with `drive` in its place."""

    gain: Absent[Annotated[Number, Field(ge=-MAX_GAIN, le=MAX_GAIN)]] = None
    """0, or of a magnitude from 1e-6 to 1000: what stood in place of the control filter."""
    drive: Absent[Signal] = None
    """Signal that the loudspeaker plays alone."""
    x: Signal
    """Reference microphone."""
    e: Signal
    """Error microphone."""
    clipped_share: Absent[ClippedShare] = None


class CalibrationBody(CalibrationOptions):
    """Body of `/calibrate`."""

    takes: Annotated[
        Any,
        PlainValidator(
            _takes,
            json_schema_input_type=Annotated[list[TakeBody], Field(min_length=2, max_length=MAX_TAKES)],
        ),
    ]
    """Recordings of both microphones, at least one with gain 0 (loudspeaker silent) and one without: with gain g
    the control filter is the plain factor g. x: reference microphone; e: error microphone. In place of gains, or
    besides: with `drive`, the loudspeaker plays that signal and nothing else, which gives the feedback path too."""
    sample_rate: RateField
    """Hz."""
