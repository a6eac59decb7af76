"""Every format is read back by something else: SciPy, soundfile, a C compiler."""

import io
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile
from scipy.io import loadmat

from hardware.filter_files import KINDS, write
from hardware.realise import Realised, Target, realise
from hardware.targets import target, targets
from synthesis.errors import InvalidOption
from tests.hardware.conftest import simulated

PINK = 1 / np.maximum(np.arange(16385), 10.0)


def realised(**asked: object) -> Realised:
    """Of a simulated ear."""
    return realise([simulated()], PINK, Target(**asked))  # type: ignore[arg-type]


def test_wav_holds_the_taps_and_the_rate():
    found = realised(form="fir", n_taps=64)
    samples, rate = soundfile.read(io.BytesIO(write(found, "wav")[0]), dtype="float32")
    assert rate == 48_000
    np.testing.assert_array_equal(samples, np.asarray(found.taps, np.float32))


@pytest.mark.parametrize("rate", [48_000.0, 384_000.0])
def test_wav_of_sections_is_their_impulse_response(rate: float):
    found = realised(n_sections=6, sample_rate_hz=rate)
    samples, _ = soundfile.read(io.BytesIO(write(found, "wav")[0]))
    frequency_hz = np.fft.rfftfreq(len(samples), 1 / rate)
    assert found.sections is not None
    np.testing.assert_allclose(np.fft.rfft(samples), found.sections.response(frequency_hz), atol=1e-3)


def test_csv_and_matlab_hold_the_sections():
    found = realised(n_sections=3)
    assert found.sections is not None
    table = np.loadtxt(io.BytesIO(write(found, "csv")[0]), delimiter=",", skiprows=2)
    np.testing.assert_array_equal(table, found.sections.rows)
    matlab = loadmat(io.BytesIO(write(found, "mat")[0]))
    np.testing.assert_array_equal(matlab["sos"], found.sections.rows)
    assert matlab["sample_rate"] == 48_000


def test_minidsp_negates_the_recursive_coefficients():
    found = realised(n_sections=2)
    assert found.sections is not None
    values = [
        float(part.split("=")[1])
        for part in write(found, "minidsp")[0].decode().replace("\n", "").split(",")
        if "=" in part
    ]
    expected = found.sections.rows[:, [0, 1, 2, 4, 5]] * [1, 1, 1, -1, -1]
    np.testing.assert_array_equal(np.reshape(values, (2, 5)), expected)


def test_apo_lines_hold_b_and_a():
    found = realised(n_sections=2)
    assert found.sections is not None
    lines = write(found, "apo")[0].decode().splitlines()
    values = [[float(part) for part in line.split("Coefficients ")[1].split()] for line in lines]
    np.testing.assert_array_equal(values, found.sections.rows)


PROGRAM = """
#include <stdio.h>
#include "control_filter.h"
int main(void) {
    const void *start = control_filter;
    for (size_t i = 0; i < sizeof control_filter / sizeof (%s); i++)
        printf("%s\\n", (%s)((const %s *)start)[i]);
    return 0;
}
"""


@pytest.mark.parametrize("name", ["float32", "float64", "q1.15", "q1.31", "q5.27"])
@pytest.mark.parametrize("form", ["fir", "sos"])
def test_a_c_compiler_reads_the_same_numbers(tmp_path: Path, form: str, name: str):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    found = realised(form=form, n_taps=32, n_sections=3, number_format=name)
    (tmp_path / "control_filter.h").write_bytes(write(found, "c")[0])
    if found.quantised is None:
        kind, layout, cast = ("float" if name == "float32" else "double"), "%.17g", "double"
        rows = found.taps if found.taps is not None else found.sections.rows[:, [0, 1, 2, 4, 5]]
        expected = np.asarray(rows, name).ravel()
    else:
        kind, layout, cast = ("int16_t" if name == "q1.15" else "int32_t"), "%lld", "long long"
        expected = found.quantised.words.ravel()
    (tmp_path / "main.c").write_text(PROGRAM % (kind, layout, cast, kind))
    warnings = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-Wno-unused-const-variable")
    subprocess.run([compiler, *warnings, "-o", tmp_path / "main", tmp_path / "main.c"], check=True)
    printed = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.split()
    np.testing.assert_array_equal(np.array(printed, float).astype(expected.dtype), expected)


@pytest.mark.parametrize("kind", ["c", "csv"])
def test_the_head_states_the_sign_of_the_chain(kind: str):
    found = realised(form="fir", n_taps=8)
    assert "e = d - s * w * x" in write(found, kind)[0].decode()
    assert "e = d + s * w * x" in write(found, kind, "plus")[0].decode()


def test_sox_does_what_the_sections_promise(tmp_path: Path):
    """Sections as sox's `biquad` effects, on noise, beside the response that is predicted from."""
    sox = shutil.which("sox")
    if sox is None:
        pytest.skip("no sox")
    found = realised(n_sections=3, number_format="q1.23")
    assert found.sections is not None
    noise = 0.01 * np.random.default_rng(0).standard_normal(48_000)
    soundfile.write(tmp_path / "in.wav", noise, 48_000, subtype="FLOAT")
    effects = [part for row in found.sections.rows.tolist() for part in ("biquad", *map(repr, row))]
    subprocess.run(
        [sox, tmp_path / "in.wav", "-e", "float", "-b", "32", tmp_path / "out.wav", *effects], check=True
    )
    heard, _ = soundfile.read(tmp_path / "out.wav")
    n_fft = 1 << 17
    expected = np.fft.irfft(np.fft.rfft(noise, n_fft) * found.sections.response(np.fft.rfftfreq(n_fft, 1 / 48_000)))
    error = heard - expected[: len(heard)]
    assert np.sqrt(np.mean(error**2)) < 1e-4 * np.sqrt(np.mean(expected**2))


def test_what_a_file_cannot_hold_is_said():
    with pytest.raises(InvalidOption, match="holds sections, not taps"):
        write(realised(form="fir", n_taps=16), "minidsp")
    with pytest.raises(InvalidOption, match="use one of wav"):
        write(realised(form="fir", n_taps=16), "pdf")
    assert set(KINDS) == {"wav", "csv", "c", "mat", "minidsp", "apo"}


def test_targets_can_be_designed_for():
    for name, item in targets().items():
        assert item.source
        Target(item.form, number_format=item.number_format, sample_rate_hz=item.sample_rate_hz)  # type: ignore[arg-type]
        assert target(name) is item
    with pytest.raises(InvalidOption, match="does not exist"):
        target("none")
