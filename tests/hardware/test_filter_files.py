"""Files of filters are read back by other programs: SciPy, soundfile, a C compiler."""

import io
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml

from hardware.filter_files import write, write_both
from hardware.realise import Realised, Target, realise, realised_sections
from hardware.running import Machine
from hardware.targets import requested, target, targets
from service.api.export import coefficients_document
from synthesis.errors import InvalidOption
from synthesis.sections import Sections
from tests.hardware.conftest import simulated

PINK = 1 / np.maximum(np.arange(16385), 10.0)


def realised(**options: object) -> Realised:
    """Realise the filter of a simulated ear."""
    return realise([simulated()], PINK, Target(**options))


@pytest.mark.parametrize("rate", [48_000.0, 384_000.0])
def test_wav_of_sections_is_impulse_response(rate: float):
    found = realised(n_sections=6, sample_rate_hz=rate)
    samples, _ = soundfile.read(io.BytesIO(write(found, "wav")[0]))
    frequency_hz = np.fft.rfftfreq(len(samples), 1 / rate)
    np.testing.assert_allclose(np.fft.rfft(samples), found.sections.response(frequency_hz), atol=1e-3)


def test_minidsp_negates_recursive_coefficients():
    found = realised(n_sections=2)
    values = [
        float(part.split("=")[1])
        for part in write(found, "minidsp")[0].decode().replace("\n", "").split(",")
        if "=" in part
    ]
    expected = found.sections.rows[:, [0, 1, 2, 4, 5]] * [1, 1, 1, -1, -1]
    np.testing.assert_array_equal(np.reshape(values, (2, 5)), expected)


@pytest.fixture
def compiler() -> str:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang") or pytest.skip("no C compiler")


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


@pytest.mark.parametrize(
    ("form", "name"), [("fir", "float32"), ("sos", "float64"), ("fir", "q1.15"), ("sos", "q5.27")]
)
def test_c_compiler_reads_same_numbers(compiler: str, tmp_path: Path, form: str, name: str):
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
        for rate in (item.sample_rate_hz, *item.other_sample_rates_hz):
            requested(name, {"sample_rate_hz": rate})
        assert target(name) is item
    with pytest.raises(InvalidOption, match="does not exist"):
        target("none")


def test_earbud_is_written_as_its_firmware_holds_it():
    """Firmware's own arithmetic on the words gives W: standard signs in q5.27 after an explicit 1."""
    found = realise([simulated()], PINK, requested("pinebuds-pro", {}))
    text = write(found, "bes")[0].decode()
    numerators, denominators = (
        np.array([list(map(int, row.split(", "))) for row in re.findall(rf"coef_{part} = {{(.*?)}}", text)])
        for part in "ba"
    )
    assert f".iir_counter = {len(numerators)}," in text
    assert len(numerators) == 6
    hz = np.geomspace(20, 20_000, 50)
    delay = np.exp(-2j * np.pi * hz / 50_781.25)[:, None] ** np.arange(3)
    response = ((delay @ numerators.T) / (delay @ denominators.T)).prod(1)
    np.testing.assert_allclose(response, found.sections.response(hz), rtol=1e-9)


def test_sigmadsp_words_are_added_and_unsigned():
    found = realise([simulated()], PINK, requested("openearable-2", {"n_sections": 2}))
    rows = [
        [int(word, 16) for word in line.split()] for line in write(found, "sigmadsp")[0].decode().splitlines()[1:]
    ]
    signed = np.array(rows, np.uint32).astype(np.int32) / 2**27
    np.testing.assert_array_equal(signed * [1, 1, 1, -1, -1], found.sections.rows[:, [0, 1, 2, 4, 5]])
    with pytest.raises(InvalidOption, match="holds words in"):
        write(realised(n_sections=2, number_format="q1.23", denominator="added"), "sigmadsp")
    with pytest.raises(InvalidOption, match="holds 5 sections"):
        requested("openearable-2", {"n_sections": 6})


@pytest.mark.parametrize("form", ["fir", "sos"])
def test_camilladsp_names_every_filter_in_its_pipeline(form: str):
    found = realised(form=form, n_taps=32, n_sections=3)
    document = yaml.safe_load(write(found, "camilladsp")[0])
    names = document["pipeline"][0]["names"]
    assert list(document["filters"]) == names
    parameters = [document["filters"][name]["parameters"] for name in names]
    if form == "fir":
        np.testing.assert_array_equal(parameters[0]["values"], found.taps)
    else:
        rows = [
            [1.0 if name == "a0" else item[name] for name in ("b0", "b1", "b2", "a0", "a1", "a2")]
            for item in parameters
        ]
        np.testing.assert_array_equal(rows, found.sections.rows)


RUN_BOTH = """#include <stdio.h>
#include "hybrid.h"
int main(void) {
    static hybrid_state state;
    double x, e;
    while (scanf("%%lf %%lf", &x, &e) == 2) printf("%%.17g\\n", (double)hybrid_step(&state, (%s)x, (%s)e));
    return 0;
}
"""


@pytest.mark.parametrize(
    ("form", "name"), [("sos", "float32"), ("sos", "q1.23"), ("sos", "q5.27"), ("fir", "q1.15")]
)
def test_compiled_header_runs_both(compiler: str, tmp_path: Path, form: str, name: str):
    """The header's functions are the simulation's, but for a unit where states are narrower."""
    control_filter = realised(form=form, n_taps=40, n_sections=3, number_format=name)
    poles = np.array([[0.02, -0.0399, 0.0199, 1, -1.9979, 0.9980], [0.3, -0.2, 0.05, 1, -1.3, 0.5]])
    controller = realised_sections(Sections(poles, 48_000.0), name)
    (tmp_path / "hybrid.h").write_bytes(write_both(control_filter, controller, "c")[0])
    kind = "double" if name == "float32" else "int32_t"
    (tmp_path / "main.c").write_text(RUN_BOTH % (kind, kind))
    strict = (
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-fsanitize=undefined",
        "-fno-sanitize-recover",
    )
    built = subprocess.run([compiler, *strict, "-o", tmp_path / "main", tmp_path / "main.c"], check=False)
    if built.returncode:
        pytest.skip("the compiler has no sanitizer")
    signals = 0.2 * np.random.default_rng(1).standard_normal((500, 2)).clip(-4, 4)
    unit = 1.0 if controller.quantised is None else 2.0 ** (controller.quantised.format.n_bits - 1)
    text = "\n".join(f"{x!r} {e!r}" for x, e in (np.rint(signals * unit) if unit > 1 else signals).tolist())
    ran = subprocess.run([tmp_path / "main"], input=text, capture_output=True, text=True, check=True)
    machines = [Machine(coefficients_document(item)) for item in (control_filter, controller)]
    expected = sum(machine.run(signal) for machine, signal in zip(machines, signals.T, strict=True))
    expected = expected if unit == 1 else expected.clip(-1, 1)
    found = np.array(ran.stdout.split(), float) / unit
    headroom = max(
        0 if item.scaling is None else item.scaling.headroom_bits for item in (control_filter, controller)
    )
    np.testing.assert_allclose(found, expected, atol=1e-6 if unit == 1 else 2 * 2**headroom / unit)
    assert np.abs(expected).max() > 0.05


def test_both_are_in_files_of_all_kinds():
    control_filter = realised(n_sections=2)
    controller = realised_sections(Sections(np.array([[0.3, -0.2, 0.05, 1, -1.3, 0.5]]), 48_000.0), "float32")
    text = write_both(control_filter, controller, "apo")[0].decode()
    assert [line for line in text.splitlines() if "Channel" in line] == ["Channel: 1", "Channel: 2", "Channel: all"]
    content, media_type, _ = write_both(control_filter, controller, "minidsp")
    assert media_type == "application/zip"
    with zipfile.ZipFile(io.BytesIO(content)) as folder:
        assert folder.read("controller.txt") == write(controller, "minidsp")[0]
    with zipfile.ZipFile(io.BytesIO(write_both(control_filter, controller, "csv")[0])) as folder:
        assert folder.read("controller.csv").startswith(
            b"# Feedback controller at 48000 Hz, e = d - s * (w * x + k * e)"
        )
