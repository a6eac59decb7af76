"""Filters for hardware at the rate of a 16 kHz system, and for processors that add the recursive coefficients."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile
from scipy.signal import sosfilt

from tests.cases.conftest import Command, designed, reached_db, stored

PATHS = {"13": ("--primary", "P.npz", "--secondary", "S.npz"), "37": ("--primary", "P.wav", "--secondary", "S.wav")}


def exporter(in_case: Callable[[str], Command], number: str) -> tuple[dict[str, Any], Callable[..., None]]:
    """The case's design, and a runner of `export` of it."""
    run = in_case(number)
    answer = designed(run, *PATHS[number], "-k", 1)

    def export(*arguments: object) -> None:
        found = run("export", "out.json", *PATHS[number], *arguments)
        assert found.exit_code == 0, found.output

    return answer, export


@pytest.mark.parametrize("size", [("--taps", 683), ("--sections", 6)], ids=["taps", "sections"])
def test_export_serves_16_khz_system(in_case: Callable[[str], Command], score: ModuleType, size: tuple) -> None:
    """The filter at the system's rate performs on the true paths as the 48 kHz one, and as predicted."""
    design, export = exporter(in_case, "13")
    export(*size, "--rate", 16_000, "-o", "f16.json", "-o", "f16.wav")
    taps, rate = soundfile.read("f16.wav")
    assert rate == 16_000
    answer = json.loads(Path("f16.json").read_text())
    if "sos" in answer["coefficients"]:
        pulse = np.zeros(len(taps))
        pulse[0] = 1
        np.testing.assert_allclose(sosfilt(answer["coefficients"]["sos"], pulse), taps, atol=1e-5)
    assert {10_000, 12_500, 16_000, 20_000} <= set(answer["prediction"]["unknown_bands_hz"])
    truth = score.Truth(stored("P.npz"), stored("S.npz"), 16_000)
    _, found = truth.nr(taps, rate)
    assert np.mean(found) > np.mean(reached_db(truth, design)) - (4.0 if "--sections" in size else 0.3)
    predicted = np.array(answer["prediction"]["noise_reduction_db"][: len(found)])
    # The responses rise towards their ends, as estimates do: more of them counts as unknown than of exact ones.
    assert abs(predicted.mean() - found.mean()) < answer["prediction"]["interval_db"]


def test_sigmadsp_words_are_negated(in_case: Callable[[str], Command]) -> None:
    """Its cells add what the sections subtract."""
    exporter(in_case, "37")[1]("--target", "adau1761", "-o", "adau.h", "-o", "adau.json")
    head, rest = Path("adau.h").read_text().split("control_filter[8][5] = {", 1)
    assert "a1 and a2 are negated" in head
    words = np.array(re.findall(r"\{(.+?)\}", rest)[0].split(","), float) / 2**23
    first = json.loads(Path("adau.json").read_text())["coefficients"]["sos"][0]
    np.testing.assert_allclose(words[3:], -np.array(first[4:]), atol=2**-23)


def test_apo_text_states_rate(in_case: Callable[[str], Command]) -> None:
    run = in_case("52")
    for arguments in (
        ("example",),
        ("calibrate", "off.wav", "on.wav", "--gain", 0.35, "-o", "ear.json"),
        ("design", "ear.json", "-k", 1, "-o", "filter.json"),
        ("export", "filter.json", "ear.json", "--sections", 6, "--kind", "apo", "-o", "apo.txt"),
    ):
        assert run(*arguments).exit_code == 0, arguments
    first = Path("apo.txt").read_text().splitlines()[0]
    assert first.startswith("#")
    assert "48000 Hz, e = d - s * w * x" in first
