"""Path files from the field are read correctly, or refused with advice."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from click.testing import Result

Command = Callable[..., Result]
NPZ, TXT = ((f"P.{kind}", f"S.{kind}") for kind in ("npz", "txt"))


def paths(files: tuple[str, str]) -> tuple[str, ...]:
    return ("--primary", files[0], "--secondary", files[1])


def stored(file: str) -> np.ndarray:
    """The response in an .npz file, beside whatever states its rate."""
    with np.load(file) as loaded:
        return next(np.squeeze(loaded[name]) for name in loaded.files if loaded[name].size > 1)


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
    found = run("design", *paths(NPZ), "-k", 3, "-o", "out.json")
    assert found.exit_code == 0, found.output
    if rate_hz is None:
        with np.load("P.npz") as loaded:
            rate_hz = float(loaded["sr"])
    answer = json.loads(Path("out.json").read_text())
    _, reduction = score.Truth(stored("P.npz"), stored("S.npz"), rate_hz).nr(np.array(answer["fir"]), 48_000)
    reached = np.nanmean(reduction)
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
        found = run("design", *files, "-k", 1, "-o", "out.json")
        assert found.exit_code == 0, found.output
        answers.append(json.loads(Path("out.json").read_text()))
    at_48, at_192 = answers
    assert at_192["loop"]["gain_margin_db"] >= 5.9
    assert at_192["loop"]["peak_db"] == pytest.approx(at_48["loop"]["peak_db"], abs=1)
    means = [answer["prediction"]["mean_noise_reduction_db"] for answer in answers]
    assert means[0] == pytest.approx(means[1], abs=0.8)  # above 20 kHz the files differ


def test_rew_exports_are_read(in_case: Callable[[str], Command], score: ModuleType) -> None:
    """With start times of both files, and numbers with decimal commas."""
    run = in_case("27")
    found = run("design", *paths(TXT), "-k", 1, "-o", "out.json")
    assert found.exit_code == 0, found.output
    responses = []
    for file in TXT:
        lines = Path(file).read_text().replace(",", ".").splitlines()
        begin = lines.index("* Data start") + 1
        start_s = next(float(line.split("//")[0]) for line in lines if "Start time" in line)
        samples = np.array([float(line) for line in lines[begin:] if line])
        responses.append(np.roll(samples, round(start_s * 48_000)))
    taps = np.array(json.loads(Path("out.json").read_text())["fir"])
    assert np.nanmean(score.Truth(*responses, 48_000).nr(taps, 48_000)[1]) > 19
