"""Path files from the field are read correctly, or refused with advice."""

from collections.abc import Callable
from importlib.resources import files
from types import ModuleType

import numpy as np
import pytest
import soundfile
from scipy.io import savemat

from tests.cases.conftest import Command, designed, reached_db, stored

NPZ, TXT = ((f"P.{kind}", f"S.{kind}") for kind in ("npz", "txt"))


def paths(files: tuple[str, str]) -> tuple[str, ...]:
    return ("--primary", files[0], "--secondary", files[1])


@pytest.mark.parametrize(
    ("number", "rate_hz", "least_db"),
    [
        ("06", 8000, 30.0),  # it begins with its largest sample
        ("08", None, 15.0),  # its rate is called sr
    ],
)
def test_resampled_system_is_cancelled(
    number: str, rate_hz: float | None, least_db: float, in_case: Callable[[str], Command], score: ModuleType
) -> None:
    run = in_case(number)
    answer = designed(run, *paths(NPZ), "-k", 3)
    if rate_hz is None:
        with np.load("P.npz") as loaded:
            rate_hz = float(loaded["sr"])
    reached = np.nanmean(reached_db(score.Truth(stored("P.npz"), stored("S.npz"), rate_hz), answer))
    assert reached > least_db
    prediction = answer["prediction"]
    assert abs(prediction["mean_noise_reduction_db"] - reached) < prediction["interval_db"]


def test_feedback_keeps_level_at_any_rate(in_case: Callable[[str], Command]) -> None:
    """From 192 kHz as from 48 kHz: the same filter, and a loop that keeps its margins."""
    run = in_case("11")
    answers = []
    for suffix in ("48", ""):
        files = [part for path, name in (("primary", "P"), ("secondary", "S"), ("feedback", "F"))
                 for part in (f"--{path}", f"{name}{suffix}.wav")]  # fmt: skip
        answers.append(designed(run, *files, "-k", 1))
    at_48, at_192 = answers
    assert at_192["loop"]["gain_margin_db"] >= 5.9
    assert at_192["loop"]["peak_db"] == pytest.approx(at_48["loop"]["peak_db"], abs=1)
    means = [answer["prediction"]["mean_noise_reduction_db"] for answer in answers]
    assert means[0] == pytest.approx(means[1], abs=0.8)  # above 20 kHz the files differ


@pytest.fixture
def pair() -> list[np.ndarray]:
    """P and S of the example ear."""
    with np.load(str(files("prime_anc.cli") / "example_ear.npz")) as ear:
        return [ear[name].astype(float) for name in ("primary", "secondary")]


def reduction_db(run: Command, arguments: tuple[object, ...], truth: tuple[list[np.ndarray], ModuleType]) -> float:
    """What a design from files reaches on the true paths."""
    answer = designed(run, *arguments, "-k", 1)
    return float(np.nanmean(reached_db(truth[1].Truth(*truth[0], 48_000), answer)))


@pytest.mark.parametrize(
    ("number", "kind"),
    [*((n, "csv") for n in ("14", "16", "17", "20")), *((n, "txt") for n in ("24", "27", "43", "45"))],
)
def test_text_is_read_as_it_is_meant(
    number: str, kind: str, in_case: Callable[[str], Command], score: ModuleType, pair: list[np.ndarray]
) -> None:
    """All are of the example ear."""
    arguments = (*paths((f"P.{kind}", f"S.{kind}")), "--rate", 48_000)
    assert reduction_db(in_case(number), arguments, (pair, score)) > 20


@pytest.mark.parametrize(("number", "file"), [("28", "ear.wav"), ("29", "paths.mat")])
def test_file_of_both_paths_is_read(
    number: str, file: str, in_case: Callable[[str], Command], score: ModuleType, pair: list[np.ndarray]
) -> None:
    assert reduction_db(in_case(number), (file,), (pair, score)) > 19


@pytest.mark.parametrize(
    ("number", "kind", "message"), [("22", "csv", "none is phase"), ("47", "txt", "minimum phase")]
)
def test_text_is_refused(number: str, kind: str, message: str, in_case: Callable[[str], Command]) -> None:
    found = in_case(number)("design", *paths((f"P.{kind}", f"S.{kind}")))
    assert found.exit_code == 2
    assert message in found.output


def two_wavs(pair: list[np.ndarray]) -> tuple[str, str]:
    for name, samples in zip("PS", pair, strict=True):
        soundfile.write(f"{name}.wav", np.r_[np.zeros(48_000), samples], 48_000, subtype="FLOAT")
    return "P.wav", "S.wav"


def delayed_rows(pair: list[np.ndarray]) -> tuple[str, str]:
    rows = np.stack([np.r_[np.zeros(4), pair[0]], np.r_[pair[1], np.zeros(4)]])[None]
    np.savez("h.npz", h=rows, Data_Delay=[0, 4], sample_rate=48_000)
    return "h.npz#h[1]", "h.npz#h[2]"


def struct(pair: list[np.ndarray]) -> tuple[str, str]:
    savemat("ir.mat", {"ir": {"P": pair[0], "S": pair[1], "fs": 48_000}})
    return "ir.mat", "ir.mat"


def irs(pair: list[np.ndarray]) -> tuple[str, str]:
    soundfile.write("a.irs", np.stack(pair, 1), 48_000, format="WAV", subtype="FLOAT")
    return "a.irs#1", "a.irs#2"


@pytest.mark.parametrize(
    ("number", "written"), [("48", two_wavs), ("49", delayed_rows), ("54", struct), ("57", irs)]
)
def test_files_of_programs_are_read(
    number: str,
    written: Callable[[list[np.ndarray]], tuple[str, str]],
    in_case: Callable[[str], Command],
    score: ModuleType,
    pair: list[np.ndarray],
) -> None:
    run = in_case(number)
    assert reduction_db(run, paths(written(pair)), (pair, score)) > 20


def test_different_offsets_are_refused(in_case: Callable[[str], Command], pair: list[np.ndarray]) -> None:
    run = in_case("58")
    hz = np.arange(1, 4097) * 48_000 / 8192
    for name, samples, offset in zip("PS", pair, (100.0, 80.0), strict=True):
        spectrum = np.fft.rfft(samples, 8192)[1:]
        table = np.stack([hz, 20 * np.log10(np.abs(spectrum)) + offset, np.angle(spectrum, deg=True)], 1)
        head = f"{offset} // Data offset (dB)\n* Freq(Hz) SPL(dB) Phase(degrees)"
        np.savetxt(f"{name}.txt", table, "%.4f", header=head, comments="")
    found = run("design", *paths(TXT))
    assert found.exit_code == 2
    assert "relative to the same reference" in found.output
