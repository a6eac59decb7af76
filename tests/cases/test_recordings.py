"""Recordings from the field: hum, spare inputs, the loudspeaker alone."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import soundfile

from tests.cases.conftest import Command, read_design
from tests.measurement.test_checks import of_other_clock


def make() -> None:
    """Run the case's own script."""
    subprocess.run([sys.executable, "make.py"], check=True)


def test_mains_hum_does_not_pass(in_case: Callable[[str], Command]) -> None:
    run = in_case("31")
    make()
    found = run("calibrate", "off.wav", "on.wav", "--gain", 0.35, "-o", "ear.json")
    assert found.exit_code == 4, found.output
    assert "hum: x and e hold tones at" in found.output


def test_spare_inputs_may_be_silent(in_case: Callable[[str], Command]) -> None:
    found = in_case("34")("calibrate", "off.wav", "on.wav", "--gain", 0.35)
    assert found.exit_code in (0, 4), found.output  # a third of a second is too short to pass
    assert "is silent" not in found.output
    assert "of 4 channels the first are taken" in found.output


def test_drive_takes_place_of_on(in_case: Callable[[str], Command], score: ModuleType) -> None:
    run = in_case("39")
    make()
    paths = np.load("paths.npz")
    played = 0.05 * np.random.default_rng(7).standard_normal(8 * 48_000)
    sounds = [np.convolve(path, played)[: len(played)] for path in ([0, 0, 0.01], paths["S"])]
    noise = 1e-4 * np.random.default_rng(8).standard_normal((2, len(played)))
    soundfile.write("drive.wav", np.stack([played, *(np.array(sounds) + noise)], 1), 48_000)
    assert run("calibrate", "off.wav", "--drive", "drive.wav", "-o", "ear.json").exit_code == 0
    assert run("design", "ear.json", "-k", 1, "-o", "out.json").exit_code == 0
    _, bands = score.Truth(paths["P"], paths["S"], 48_000).nr(np.array(read_design("out.json")["fir"]), 48_000)
    assert np.mean(bands) > 15
    assert "feedback" in json.loads(Path("ear.json").read_text())


@pytest.mark.parametrize("ppm", [10.0, 50.0])
def test_two_clocks_are_named(ppm: float, in_case: Callable[[str], Command]) -> None:
    run = in_case("50")
    run("example")
    for name in ("off.wav", "on.wav"):
        samples, rate = soundfile.read(name)
        samples[:, 1] = of_other_clock(samples[:, 1], ppm)
        soundfile.write(name, samples, rate, subtype="FLOAT")
    found = run("calibrate", "off.wav", "on.wav", "--gain", 0.35)
    assert found.exit_code == 4, found.output
    assert f"clock_drift: the clock of e is +{ppm:.1f} ppm faster" in found.output
