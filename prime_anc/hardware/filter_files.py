"""Write a realised filter as a file that other tools read. Its head, if the format takes remarks, states the sample
rate, the signal at the error microphone and the units of its numbers.

wav      taps, or the impulse response of sections, 32-bit float, at the filter's rate
csv      one row per tap or section, with a header
c        C99 header: coefficients, and a function that runs them
mat      MATLAB 5: `taps` or `sos`, `sample_rate`
minidsp  text of custom biquads; a1 and a2 with the opposite sign (miniDSP, Advanced Biquad Programming)
apo      lines of Equalizer APO: Filter: ON IIR Order 2 Coefficients b0 b1 b2 a0 a1 a2
camilladsp  configuration of CamillaDSP 3, from standard input to standard output: a Biquad of type Free per section,
         or a Conv of type Values
bes      C initialisers of a `struct_anc_cfg`, the ANC coefficients of Bestechnic's chips (OpenPineBuds,
         tgt_hardware.c): q5.27, coef_b = {b0, b1, b2}, coef_a = {1, a1, a2}
sigmadsp  words of SigmaDSP's or FastDSP's parameter memory in hexadecimal, b0, b1, b2, -a1, -a2 per section

In csv and c, a1 and a2 have the sign that the target's sections use.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from prime_anc.hardware import c_header
from prime_anc.hardware.realise import Realised
from prime_anc.method.errors import InvalidOption

Json = dict[str, Any]

# Duration of the impulse response of sections (s). Poles in the bass take up to 0.07 s to decay by 1/e, whatever the
# sample rate.
WAV_S = 32768 / 48000
# Names of the files of both, and what is in them.
_PARTS = {"control_filter": "Control filter", "controller": "Feedback controller", "playback": "Playback"}
_COLUMNS = ("b0", "b1", "b2", "a0", "a1", "a2")
# What each of them filters.
_INPUTS = {"control_filter": "x", "controller": "e", "playback": "what is played"}
# Samples per channel that CamillaDSP waits for.
_CHUNK = 64


@dataclass(frozen=True)
class Needs:
    """What a kind of file needs of a filter; empty: anything."""

    # `sos` for sections.
    form: str = ""
    # Number formats of the words that it holds.
    formats: tuple[str, ...] = ()
    # Signs of a1 and a2 in the words that it holds.
    denominator: str = ""


def equation(sign: str, *, has_controller: bool = False) -> str:
    """Return the signal at the error microphone, for a sign of the signal chain."""
    return f"e = d {'-' if sign == 'minus' else '+'} s * {'(w * x + k * e)' if has_controller else 'w * x'}"


def write(realised: Realised, kind: str, sign: Literal["minus", "plus"] = "minus") -> tuple[bytes, str, str]:
    """Write a filter in one of the formats `KINDS`.

    Parameters
    ----------
    realised
        The filter.
    kind
        Format, one of `KINDS`.
    sign
        Sign of the signal chain, stated in the head of the file.

    Returns
    -------
    tuple[bytes, str, str]
        Content, media type and suggested file name.

    Raises
    ------
    InvalidOption
        The format does not exist, or cannot hold this filter.
    """
    _check(kind)
    _, media_type, suffix = _KINDS[kind]
    return _written(realised, kind, "control_filter", equation(sign)), media_type, f"control_filter.{suffix}"


def _written(realised: Realised, kind: str, name: str, stated: str) -> bytes:
    make, _, _ = _KINDS[kind]
    return make(realised, f"{_PARTS[name]} at {realised.sample_rate_hz:g} Hz, {stated}")


def _check(kind: str) -> None:
    if kind not in _KINDS:
        raise InvalidOption(f"file: {kind!r} does not exist; use one of {', '.join(_KINDS)}", "file")


def write_both(
    control_filter: Realised,
    controller: Realised,
    kind: str,
    sign: Literal["minus", "plus"] = "minus",
    playback: Realised | None = None,
) -> tuple[bytes, str, str]:
    """Write a filter and the controller beside it: one file for `c`, `apo` and `camilladsp`, a ZIP for others.

    Parameters
    ----------
    control_filter, controller
        Both; parameters, results and errors are otherwise those of `write`.
    playback
        Filter of what is played besides, quieter by its headroom; None: none is written.

    Returns
    -------
    tuple[bytes, str, str]
        One file that runs both for `c`, `apo` and `camilladsp`; for other kinds a ZIP of all.

    Raises
    ------
    InvalidOption
        `apo` and `camilladsp` run both at one rate.
    """
    _check(kind)
    stated = equation(sign, has_controller=True)
    _, media_type, suffix = _KINDS[kind]
    if kind == "c":
        return c_header.of_both(control_filter, controller, stated, playback).encode(), media_type, "hybrid.h"
    realised = [item for item in (control_filter, controller, playback) if item is not None]
    parts = dict(zip(_PARTS, realised, strict=False))
    if kind in ("apo", "camilladsp"):
        rates_hz = control_filter.sample_rate_hz, controller.sample_rate_hz
        if rates_hz[0] != rates_hz[1]:
            raise InvalidOption(
                f"file: {kind} runs both at one rate, not the filter at {rates_hz[0]:g} and the controller at "
                f"{rates_hz[1]:g} Hz; export the filter at the controller's rate",
                "file",
            )
        about = f"Filter and controller at {rates_hz[0]:g} Hz, {stated}"
        content = _apo_of(parts, about) if kind == "apo" else _camilladsp_of(parts, about)
        return content, media_type, f"hybrid.{suffix}"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as folder:
        for name, item in parts.items():
            # A fixed date: equal requests have equal answers.
            folder.writestr(zipfile.ZipInfo(f"{name}.{suffix}"), _written(item, kind, name, stated))
    return stream.getvalue(), "application/zip", "hybrid.zip"


def _rows(realised: Realised, kind: str) -> NDArray[np.float64]:
    if realised.sections is None:
        raise InvalidOption(f"file: {kind} holds sections, not taps; set target.form to sos", "file")
    return realised.sections.rows


def _wav(realised: Realised, about: str) -> bytes:
    import soundfile

    samples = realised.taps
    if samples is None:
        from scipy.signal import sosfilt

        impulse = np.zeros(round(WAV_S * realised.sample_rate_hz))
        impulse[0] = 1
        samples = sosfilt(_rows(realised, "wav"), impulse)
    stream = io.BytesIO()
    soundfile.write(
        stream, np.asarray(samples, np.float32), round(realised.sample_rate_hz), format="WAV", subtype="FLOAT"
    )
    return stream.getvalue()


def _csv(realised: Realised, about: str) -> bytes:
    head = f"# {about}"
    if realised.taps is not None:
        return (head + "\ntap\n" + "".join(f"{tap!r}\n" for tap in realised.taps.tolist())).encode()
    held = np.insert(realised.held, 3, 1.0, axis=1)
    lines = (",".join(repr(value) for value in row) for row in held.tolist())
    head += f", y = {c_header.recursion(realised)}\n" + ",".join(_COLUMNS) + "\n"
    return (head + "\n".join(lines) + "\n").encode()


def _mat(realised: Realised, about: str) -> bytes:
    from scipy.io import savemat

    stream = io.BytesIO()
    values = {"taps": realised.taps} if realised.taps is not None else {"sos": _rows(realised, "mat")}
    savemat(stream, values | {"sample_rate": realised.sample_rate_hz, "about": about})  # type: ignore[arg-type]  # a file will do
    return stream.getvalue()


def _minidsp(realised: Realised, about: str) -> bytes:
    blocks = [
        f"biquad{number},\nb0={b0!r},\nb1={b1!r},\nb2={b2!r},\na1={-a1!r},\na2={-a2!r}"
        for number, (b0, b1, b2, _, a1, a2) in enumerate(_rows(realised, "minidsp").tolist(), 1)
    ]
    return (",\n".join(blocks) + "\n").encode()


def _channels(parts: Mapping[str, Realised], first: int) -> str:
    """Say which channel is which signal."""
    inputs = ", ".join(f"channel {n} is {_INPUTS[name]}" for n, name in enumerate(parts, first))
    return f"{inputs}; the loudspeaker plays channel {first}"


def _apo(realised: Realised, about: str) -> bytes:
    lines = [
        f"# {about}",
        *(
            "Filter: ON IIR Order 2 Coefficients " + " ".join(repr(value) for value in row)
            for row in _rows(realised, "apo").tolist()
        ),
    ]
    return ("\n".join(lines) + "\n").encode()


def _apo_of(parts: Mapping[str, Realised], about: str) -> bytes:
    """Filter each channel by one part, and play the sum."""
    text = f"# {about}; {_channels(parts, 1)}\n".encode()
    for n, (name, realised) in enumerate(parts.items(), 1):
        text += b"Channel: %d\n" % n + _apo(realised, _PARTS[name])
    total = "+".join(str(n + 1) for n in range(len(parts)))
    return text + f"Channel: all\nCopy: 1={total}\n".encode()


def _camilladsp(realised: Realised, about: str) -> bytes:
    return _camilladsp_of({"control_filter": realised}, about)


def _camilladsp_of(parts: Mapping[str, Realised], about: str) -> bytes:
    """Filter each channel by one part, and play the sum."""
    filters: Json = {}
    pipeline: list[Json] = []
    for channel, (name, realised) in enumerate(parts.items()):
        if realised.taps is not None:
            items: list[tuple[str, Json]] = [("Conv", {"type": "Values", "values": realised.taps.tolist()})]
        else:
            rows = np.delete(_rows(realised, "camilladsp"), 3, axis=1).tolist()
            columns = ("b0", "b1", "b2", "a1", "a2")
            items = [("Biquad", {"type": "Free"} | dict(zip(columns, row, strict=True))) for row in rows]
        named = {f"{name}_{n}": {"type": kind, "parameters": item} for n, (kind, item) in enumerate(items, 1)}
        filters |= named
        pipeline.append({"type": "Filter", "channels": [channel], "names": list(named)})
    sources = [{"channel": channel, "gain": 0, "inverted": False} for channel in range(len(parts))]
    mixer = {"channels": {"in": len(parts), "out": 1}, "mapping": [{"dest": 0, "sources": sources}]}
    document: dict[str, Json] = {
        "devices": {
            "samplerate": round(next(iter(parts.values())).sample_rate_hz),
            "chunksize": _CHUNK,
            "capture": {"type": "Stdin", "channels": len(parts), "format": "FLOAT64LE"},
            "playback": {"type": "Stdout", "channels": 1, "format": "FLOAT64LE"},
        },
        "filters": filters,
        "mixers": {"loudspeaker": mixer},
    }
    lines = [f"# {about}; {_channels(parts, 0)}", "# put your interface in place of Stdin and Stdout"]
    for name, members in document.items():
        lines += [f"{name}:", *(f"  {key}: {json.dumps(value)}" for key, value in members.items())]
    pipeline.append({"type": "Mixer", "name": "loudspeaker"})
    lines += ["pipeline:", *(f"  - {json.dumps(step)}" for step in pipeline)]
    return ("\n".join(lines) + "\n").encode()


def _words(realised: Realised, kind: str) -> list[list[int]]:
    """Return the words b0, b1, b2, a1, a2 per section of a target that this kind of file is for."""
    _rows(realised, kind)
    formats, denominator = NEEDS[kind].formats, NEEDS[kind].denominator
    quantised = realised.quantised
    found = "floating point" if quantised is None else str(quantised.format)
    if quantised is None or found not in formats or realised.denominator != denominator or quantised.shift.any():
        raise InvalidOption(
            f"file: {kind} holds words in {' or '.join(formats)} whose a1 and a2 are {denominator}, not {found} "
            f"{realised.denominator}; set target.number_format and target.denominator",
            "file",
        )
    rows: list[list[int]] = quantised.words.tolist()
    return rows


def _bes(realised: Realised, about: str) -> bytes:
    rows = _words(realised, "bes")
    lines = [
        f"/* {about}; q5.27, total_gain 512 is 0 dB. */",
        ".total_gain = 512,",
        ".iir_bypass_flag = 0,",
        f".iir_counter = {len(rows)},",
    ]
    for n, (b0, b1, b2, a1, a2) in enumerate(rows):
        lines += [f".iir_coef[{n}].coef_b = {{{b0}, {b1}, {b2}}},"]
        lines += [f".iir_coef[{n}].coef_a = {{{1 << 27}, {a1}, {a2}}},"]
    return ("\n".join(lines) + "\n").encode()


def _sigmadsp(realised: Realised, about: str) -> bytes:
    rows = _words(realised, "sigmadsp")
    assert realised.quantised is not None
    mask = (1 << realised.quantised.format.n_bits) - 1
    lines = [
        f"# {about}; {realised.quantised.format}, most significant byte first; a row per section: b0 b1 b2 -a1 -a2"
    ]
    lines += [" ".join(f"0x{word & mask:08X}" for word in row) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def _c(realised: Realised, about: str) -> bytes:
    return c_header.of_filter(realised, about).encode()


_KINDS: dict[str, tuple[Callable[[Realised, str], bytes], str, str]] = {
    "wav": (_wav, "audio/wav", "wav"),
    "csv": (_csv, "text/csv", "csv"),
    "c": (_c, "text/x-c", "h"),
    "mat": (_mat, "application/octet-stream", "mat"),
    "minidsp": (_minidsp, "text/plain", "txt"),
    "apo": (_apo, "text/plain", "txt"),
    "camilladsp": (_camilladsp, "application/yaml", "yml"),
    "bes": (_bes, "text/plain", "txt"),
    "sigmadsp": (_sigmadsp, "text/plain", "txt"),
}
KINDS = tuple(_KINDS)
EXTENSIONS = {kind: extension for kind, (_, _, extension) in _KINDS.items()}
NEEDS = {
    **dict.fromkeys(KINDS, Needs()),
    "minidsp": Needs("sos"),
    "apo": Needs("sos"),
    "bes": Needs("sos", ("q5.27",), "subtracted"),
    "sigmadsp": Needs("sos", ("q5.23", "q5.27"), "added"),
}
