"""Responses as text, as programs and spreadsheets write them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prime_anc.measure.files.errors import FileError
from prime_anc.measure.files.measurements import paths_at_48_khz, response
from prime_anc.measure.files.resampling import Response

HZ = np.arange(1, 1025) * 48_000 / 2048
DELAY = 10
LEVEL = -6.02 - 10 * np.log10(1 + (HZ / 6000) ** 2)
PHASE = np.angle(np.exp(-2j * np.pi * HZ * DELAY / 48_000 - 1j * np.arctan(HZ / 6000)))
COHERENCE = np.clip(1 - HZ / 50_000, 0, 1)
SAMPLES = np.round(0.1 * np.exp(-np.arange(300) / 40) * np.random.default_rng(3).standard_normal(300), 6)


def write(
    file: Path, columns: list[Any], head: str = "", separator: str = ",", decimal: str = ".", **text: str
) -> None:
    """A table; text: `encoding`, `minus`."""
    rows = (
        separator.join(f"{cell:.9f}".replace(".", decimal) for cell in row) for row in zip(*columns, strict=True)
    )
    content = "\n".join([*([head] if head else []), *rows])
    file.write_bytes(content.replace("-", text.get("minus", "-")).encode(text.get("encoding", "utf-8")))


def samples(file: Path, **options: float) -> np.ndarray:
    """Read the response of a file."""
    return response(file, **options)[0].samples


@pytest.mark.parametrize(("encoding", "minus"), [("utf-8-sig", "\u2212"), ("utf-16", "-")])
def test_encodings_and_minus_signs_keep_samples(tmp_path: Path, encoding: str, minus: str):
    write(tmp_path / "a.csv", [SAMPLES], encoding=encoding, minus=minus)
    np.testing.assert_array_equal(samples(tmp_path / "a.csv", rate_hz=48_000), SAMPLES)


@pytest.mark.parametrize("cell", ["NaN", "1e999", "#N/A", "*****", "0.1.2", "abc"])
@pytest.mark.parametrize("line", [1, 300])
def test_unreadable_line_is_named(tmp_path: Path, cell: str, line: int):
    lines = list(map(str, SAMPLES))
    lines[line - 1] = cell
    (tmp_path / "a.csv").write_text("\n".join(lines))
    if line == 1 and cell in ("abc", "*****"):  # a name, or the end of a comment
        assert len(samples(tmp_path / "a.csv", rate_hz=48_000)) == 299
        return
    with pytest.raises(FileError, match=f"a.csv, line {line}: "):
        samples(tmp_path / "a.csv", rate_hz=48_000)


@pytest.mark.parametrize("row", ["100,x,3", "100,-5", "100,-5,", "100,-5,3,4"])
def test_broken_row_of_columns_is_named(tmp_path: Path, row: str):
    write(tmp_path / "a.csv", [HZ, LEVEL, PHASE], "freq_hz,level_db,phase_rad")
    lines = (tmp_path / "a.csv").read_text().splitlines()
    for place in (1, 50):
        (tmp_path / "b.csv").write_text("\n".join([*lines[:place], row, *lines[place + 1 :]]))
        with pytest.raises(FileError, match="line "):
            samples(tmp_path / "b.csv")


@pytest.mark.parametrize("comment", ["*", "//", "%"])
def test_comments_are_no_samples(tmp_path: Path, comment: str):
    lines = [f"{comment} measured at 20 degrees", *map(str, SAMPLES), f"{comment} end"]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    np.testing.assert_array_equal(samples(tmp_path / "a.txt", rate_hz=48_000), SAMPLES)


@pytest.mark.parametrize(
    ("head", "columns"),
    [
        ("Frequency (Hz), Magnitude (dB), Phase (deg), Coherence", (HZ, LEVEL, np.rad2deg(PHASE), COHERENCE)),
        ("Freq[kHz];dBV;Phase[°]", (HZ / 1000, LEVEL, np.rad2deg(PHASE))),
        ("phase_rad,freq_Hz,mag_dB", (PHASE, HZ, LEVEL)),
        ("f,Re(H),Im(H)", (HZ, 10 ** (LEVEL / 20) * np.cos(PHASE), 10 ** (LEVEL / 20) * np.sin(PHASE))),
        (",freq,level,phase", (np.arange(1024.0), HZ, LEVEL, np.rad2deg(PHASE))),
        ("omega (rad/s),level_db,phase_rad", (HZ * 2 * np.pi, LEVEL, PHASE)),
    ],
)
def test_head_says_what_columns_are(tmp_path: Path, head: str, columns: tuple[Any, ...]):
    separator = next((name for name in (";", "\t", ",") if name in head), " " if head else ",")
    write(tmp_path / "a.txt", list(columns), head, separator)
    # The spectrum of a response four times as long; its last bin is real.
    found = np.fft.rfft(samples(tmp_path / "a.txt"))[4:-1:4]
    expected = (10 ** (LEVEL / 20) * np.exp(1j * PHASE))[:-1]
    assert np.linalg.norm(found - expected) < 0.01 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    ("head", "columns", "message"),
    [
        ("freq_hz,spl_db,spl_offaxis_db", (HZ, LEVEL, LEVEL - 3), "none is phase"),
        ("freq,level,phase,phase_2", (HZ, LEVEL, PHASE, PHASE), "2 are phase"),
        ("", (HZ, LEVEL, np.rad2deg(PHASE)), "no line names its 3 columns"),
        ("freq,level_db,phase_rad", (HZ, LEVEL, -np.arctan(HZ / 6000)), "minimum phase"),
        ("freq_khz,level,phase_deg", (HZ, LEVEL, PHASE), "covers"),
        ("freq,level,phase", (HZ, LEVEL, 0 * PHASE), "0 everywhere"),
        ("freq,level,phase_rad", (HZ[::-1], LEVEL, PHASE), "do not rise"),
        ("dB", (SAMPLES,), "dB is no impulse response"),
        ("freq,level_db,minimum phase (deg)", (HZ, LEVEL, np.rad2deg(PHASE)), "computed from the level"),
        ("freq,log10 magnitude,phase_rad", (HZ, LEVEL / 20, PHASE), "none is level"),
        ("freq,level_db,phase_deg", (HZ, LEVEL, -np.rad2deg(PHASE)), "phase rises with frequency"),
        ("freq,magnitude,phase_deg", (HZ, 100 * 10 ** (LEVEL / 20), np.rad2deg(PHASE)), "may be linear or in dB"),
        ("freq,level,phase", (HZ, LEVEL, 1.5 * np.unwrap(PHASE) - 90), "degrees or in radians"),
        ("freq,level_db,phase_deg", (HZ[::60], LEVEL[::60], PHASE[::60]), "it has no row"),
    ],
)
def test_columns_in_doubt_are_rejected(tmp_path: Path, head: str, columns: tuple[Any, ...], message: str):
    write(tmp_path / "a.csv", list(columns), head)
    with pytest.raises(FileError, match=message):
        samples(tmp_path / "a.csv", rate_hz=48_000)


@pytest.mark.parametrize("separator", [";", "\t", " ", "; "])
def test_decimal_commas_are_read(tmp_path: Path, separator: str):
    head = "freq_hz level_db phase_rad".replace(" ", separator)
    write(tmp_path / "point.csv", [HZ, LEVEL, PHASE], "freq_hz,level_db,phase_rad")
    write(tmp_path / "comma.csv", [HZ, LEVEL, PHASE], head, separator=separator, decimal=",")
    np.testing.assert_array_equal(samples(tmp_path / "point.csv"), samples(tmp_path / "comma.csv"))
    write(tmp_path / "one.csv", [SAMPLES], decimal=",")
    np.testing.assert_array_equal(samples(tmp_path / "one.csv", rate_hz=48_000), SAMPLES)


@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("start", [-240.25, 3.5])
def test_rew_interval_and_start_are_obeyed(tmp_path: Path, decimal: str, start: float):
    head = [
        "* Impulse Response data saved by REW V5.31",
        "* IR is not normalised",
        "* IR window has not been applied",
        "* IR is not the min phase version",
        "* Delay 0.0000 ms",
        "level and phase are right, 1 kHz, FS is 94 dB",
        "0.1 // Peak value before normalisation",
        f"{len(SAMPLES)} // Response length",
        f"{1 / 44_100:.14e} // Sample interval (seconds)".replace(".", decimal),
        f"{start / 44_100:.14f} // Start time (seconds)".replace(".", decimal),
        "* Data start",
    ]
    write(tmp_path / "a.txt", [SAMPLES], "\n".join(head), decimal=decimal)
    found, _ = response(tmp_path / "a.txt")
    assert (found.rate_hz, found.start_s) == (44_100, pytest.approx(start / 44_100, abs=1e-12))
    np.testing.assert_array_equal(found.samples, SAMPLES)
    text = (tmp_path / "a.txt").read_text()
    (tmp_path / "short.txt").write_text("\n".join(text.splitlines()[:-5]))
    with pytest.raises(FileError, match="states 300 samples, but 295 follow"):
        samples(tmp_path / "short.txt")
    (tmp_path / "scaled.txt").write_text(text.replace("IR is not normalised", "IR is normalised"))
    np.testing.assert_allclose(samples(tmp_path / "scaled.txt"), 0.1 * SAMPLES)


@pytest.mark.parametrize(
    ("line", "rate"),
    [
        ("# fs = 44100", 44_100),
        ("Sampling frequency (Hz): 96000", 96_000),
        ("# control filter at 96000 Hz, e = d - s * w * x", 96_000),
        ("0 // Sample interval (seconds)", 0),
    ],
)
def test_rate_in_head_is_obeyed(tmp_path: Path, line: str, rate: float):
    write(tmp_path / "a.txt", [SAMPLES], line)
    if not rate:
        with pytest.raises(FileError, match="sample rate is 0 Hz"):
            samples(tmp_path / "a.txt")
        return
    assert response(tmp_path / "a.txt")[0].rate_hz == rate


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["# sample rate: 48000", "# fs = 44100", *map(str, SAMPLES)], "several sample rates"),
        (["48000", *map(str, SAMPLES)], "line 1: 48000 is how many"),
        (["1,25", "2,50", "1,75", "3,10", *["1,10"] * 20], "commas may be decimal"),
        ([*map(str, SAMPLES), "", *map(str, -SAMPLES)], "several blocks"),
        (["* IR is the min phase version", "# fs 48000", *map(str, SAMPLES)], "computed from the level"),
        (["# fs 48000", "* Delay 0.2 ms removed", "# delay 0.1 ms removed", *map(str, SAMPLES)], "several delays"),
        (["# fs 48000", "# latency: 3 samples", *map(str, SAMPLES)], "not clear whether 'latency: 3"),
        (["# Normalized to 0 dB at 1 kHz", "# fs 48000", *map(str, SAMPLES)], "by what it is normalised"),
        (["# fs 44100", "time,response", *(f"{n / 48000:.9f},{x}" for n, x in enumerate(SAMPLES))], "states 44100"),
    ],
)
def test_contradictions_are_rejected(tmp_path: Path, lines: list[str], message: str):
    (tmp_path / "a.txt").write_text("\n".join(lines))
    with pytest.raises(FileError, match=message):
        samples(tmp_path / "a.txt", rate_hz=48_000)


def test_start_in_comment_is_obeyed(tmp_path: Path):
    write(tmp_path / "a.txt", [SAMPLES], "# fs = 48000\n# start time: -1.5 ms\n# gain: 20 dB")
    found, notes = response(tmp_path / "a.txt")
    assert found.start_s == pytest.approx(-0.0015)
    assert any("not used: gain: 20 dB" in note for note in notes)


REW_NAMES = "* Freq(Hz) SPL(dB) Phase(degrees)"


def spectrum(file: Path, remark: str, late_s: float = 0.0) -> Response:
    """The response of an export of REW with a remark, whose phase lacks a delay."""
    phase = np.rad2deg(PHASE + 2 * np.pi * HZ * late_s)
    write(file, [HZ, LEVEL, phase], f"* Measurement data measured by REW V5.31\n{remark}\n{REW_NAMES}", " ")
    return response(file)[0]


@pytest.mark.parametrize(
    "remark",
    [
        "Delay 0.1500 ms using estimated IR delay relative to acoustic reference",
        *("Delay removed: 0.15 ms", "150 us delay compensated", "Time of flight 0.15 ms was subtracted"),
    ],
)
def test_removed_delay_is_applied(tmp_path: Path, remark: str):
    whole = spectrum(tmp_path / "a.txt", "* 0.0")
    found = spectrum(tmp_path / "a.txt", f"* {remark}", 150e-6)
    np.testing.assert_allclose(found.samples, whole.samples, atol=1e-3 * whole.samples.max())


@pytest.mark.parametrize(
    "remark", ["Delay 0.15 ms", "delay 0.15 ms, not removed", "removed delay (ms): 0.15", "delay: 7"]
)
def test_unclear_delay_is_refused(tmp_path: Path, remark: str):
    with pytest.raises(FileError, match="not clear whether"):
        spectrum(tmp_path / "a.txt", f"* {remark}")


@pytest.mark.parametrize(
    ("remark", "late_s", "message"),
    [
        ("Phase is the minimum phase response generated by REW", 0.0, "computed from the level"),
        ("phase: Hilbert", 0.0, "computed from the level"),
        ("Delay 0.208333 ms removed", DELAY / 48_000, "is the minimum phase"),
    ],
)
def test_minimum_phase_is_refused(tmp_path: Path, remark: str, late_s: float, message: str):
    with pytest.raises(FileError, match=message):
        spectrum(tmp_path / "a.txt", f"* {remark}", late_s)


@pytest.mark.parametrize(
    "statement",
    ["{} // Data offset (dB)", "* scaled by {}", "* {} dB gain", "* dBFS to SPL: {}", "* 0 dBFS = {} dB SPL"],
)
def test_different_levels_are_named(tmp_path: Path, statement: str):
    paths = {
        name: spectrum(tmp_path / f"{name}.txt", statement.format(level))
        for name, level in (("primary", 100.0), ("secondary", 80.0))
    }
    with pytest.raises(FileError, match=r"different levels .*100.0.*80.0"):
        paths_at_48_khz(paths)
    paths_at_48_khz(paths | {"secondary": paths["primary"]})


def test_frd_needs_no_names(tmp_path: Path):
    write(tmp_path / "a.frd", [HZ, LEVEL, np.rad2deg(PHASE)])
    assert abs(np.argmax(samples(tmp_path / "a.frd")) - DELAY) <= 1


def test_times_give_rate_and_start(tmp_path: Path):
    for scale, head in ((1, "time,response"), (1000, "Time (ms);Pressure"), (1000, "Time [ms];h(t)")):
        separator = ";" if ";" in head else ","
        write(tmp_path / "a.csv", [scale * (np.arange(300) - 5.5) / 44_100, SAMPLES], head, separator)
        found, _ = response(tmp_path / "a.csv")
        assert found.rate_hz == 44_100
        assert found.start_s * 44_100 == pytest.approx(-5.5, abs=1e-3)
    write(tmp_path / "a.csv", [np.r_[0:150, 200:350] / 44_100, SAMPLES], "time,response")
    with pytest.raises(FileError, match="not evenly spaced"):
        samples(tmp_path / "a.csv")
