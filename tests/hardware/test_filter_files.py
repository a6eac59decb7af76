"""Files of filters are read back by other programs: SciPy, soundfile, a C compiler."""

import io
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile

from hardware.filter_files import write
from hardware.realise import Realised, Target, realise
from hardware.targets import target, targets
from synthesis.errors import InvalidOption
from tests.hardware.conftest import simulated

PINK = 1 / np.maximum(np.arange(16385), 10.0)


def realised(**options: object) -> Realised:
    """Realise the filter of a simulated ear."""
    return realise([simulated()], PINK, Target(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [48_000.0, 384_000.0])
def test_wav_of_sections_is_impulse_response(rate: float):
    found = realised(n_sections=6, sample_rate_hz=rate)
    samples, _ = soundfile.read(io.BytesIO(write(found, "wav")[0]))
    frequency_hz = np.fft.rfftfreq(len(samples), 1 / rate)
    assert found.sections is not None
    np.testing.assert_allclose(np.fft.rfft(samples), found.sections.response(frequency_hz), atol=1e-3)


def test_minidsp_negates_recursive_coefficients():
    found = realised(n_sections=2)
    assert found.sections is not None
    values = [
        float(part.split("=")[1])
        for part in write(found, "minidsp")[0].decode().replace("\n", "").split(",")
        if "=" in part
    ]
    expected = found.sections.rows[:, [0, 1, 2, 4, 5]] * [1, 1, 1, -1, -1]
    np.testing.assert_array_equal(np.reshape(values, (2, 5)), expected)


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
def test_c_compiler_reads_same_numbers(tmp_path: Path, form: str, name: str):
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


def test_targets_can_be_designed_for():
    for name, item in targets().items():
        assert item.source
        Target(item.form, number_format=item.number_format, sample_rate_hz=item.sample_rate_hz)  # type: ignore[arg-type]
        assert target(name) is item
    with pytest.raises(InvalidOption, match="does not exist"):
        target("none")
