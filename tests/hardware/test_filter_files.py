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
from scipy.io import loadmat

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


def test_matlab_file_states_rate_and_sections():
    found = realised(n_sections=2, sample_rate_hz=96_000.0)
    read = loadmat(io.BytesIO(write(found, "mat")[0]))
    assert read["sample_rate"] == 96_000
    np.testing.assert_array_equal(read["sos"], found.sections.rows)


def test_minidsp_negates_recursive_coefficients():
    found = realised(n_sections=2)
    values = [
        float(part.split("=")[1])
        for part in write(found, "minidsp")[0].decode().replace("\n", "").split(",")
        if "=" in part
    ]
    expected = found.sections.rows[:, [0, 1, 2, 4, 5]] * [1, 1, 1, -1, -1]
    np.testing.assert_array_equal(np.reshape(values, (2, 5)), expected)


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


RUN = """#include <stdio.h>
#include "filter.h"
int main(void) {
    static %s_state state;
    double x, e;
    while (scanf("%%lf %%lf", &x, &e) == 2) printf("%%.17g\\n", (double)%s_step(&state, %s));
    return 0;
}
"""


@pytest.mark.parametrize("is_both", [False, True])
@pytest.mark.parametrize(
    ("form", "name", "denominator"),
    [
        ("sos", "float32", "subtracted"),
        ("fir", "float64", "subtracted"),
        ("sos", "q1.23", "subtracted"),
        ("sos", "q5.27", "added"),
        ("fir", "q1.15", "subtracted"),
    ],
)
def test_compiled_header_runs(tmp_path: Path, form: str, name: str, denominator: str, is_both: bool):
    """The header's functions are the simulation's, but for a unit where states are narrower."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang") or pytest.skip("no C compiler")
    items = [realised(form=form, n_taps=40, n_sections=3, number_format=name, denominator=denominator)]
    poles = np.array([[0.02, -0.0399, 0.0199, 1, -1.9979, 0.9980], [0.3, -0.2, 0.05, 1, -1.3, 0.5]])
    if is_both:
        items.append(realised_sections(Sections(poles, 48_000.0), name))
    content = write_both(*items, "c")[0] if is_both else write(*items, "c")[0]
    (tmp_path / "filter.h").write_bytes(content)
    kind, prefix = "int32_t" if name[0] == "q" else "double", "hybrid" if is_both else "control_filter"
    arguments = f"({kind})x, ({kind})e" if is_both else f"({kind})x"
    (tmp_path / "main.c").write_text(RUN % (prefix, prefix, arguments))
    strict = (compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o", "main", "main.c")
    subprocess.run(strict, cwd=tmp_path, check=True)
    sanitizer = ("-fsanitize=undefined", "-fno-sanitize-recover")  # not every compiler has one
    subprocess.run([*strict, *sanitizer], cwd=tmp_path, check=False)
    signals = 0.2 * np.random.default_rng(1).standard_normal((500, 2)).clip(-4, 4)
    unit = 1.0 if items[0].quantised is None else 2.0 ** (items[0].quantised.format.n_bits - 1)
    text = "\n".join(f"{x!r} {e!r}" for x, e in (np.rint(signals * unit) if unit > 1 else signals).tolist())
    ran = subprocess.run([tmp_path / "main"], input=text, capture_output=True, text=True, check=True)
    machines = [Machine(coefficients_document(item)) for item in items]
    expected = sum(machine.run(signal) for machine, signal in zip(machines, signals.T, strict=False))
    expected = expected if unit == 1 else expected.clip(-1, 1)
    found = np.array(ran.stdout.split(), float) / unit
    headroom = max(0 if item.scaling is None else item.scaling.headroom_bits for item in items)
    np.testing.assert_allclose(found, expected, atol=1e-9 if unit == 1 else 2 * 2**headroom / unit)
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
    with zipfile.ZipFile(io.BytesIO(write_both(control_filter, controller, "csv", "plus")[0])) as folder:
        assert folder.read("controller.csv").startswith(
            b"# Feedback controller at 48000 Hz, e = d + s * (w * x + k * e)"
        )
