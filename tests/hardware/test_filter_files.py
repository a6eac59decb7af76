"""Files of filters are read back by other programs: SciPy, soundfile, a C compiler."""

import io
import itertools
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import soundfile
import yaml
from scipy.io import loadmat
from scipy.signal import lfilter, sosfilt

from prime_anc.answers import document
from prime_anc.client.client import FileKind
from prime_anc.hardware.filter_files import KINDS, write, write_both
from prime_anc.hardware.realise import Realised, Target, realise, realised_sections
from prime_anc.hardware.running import Machine
from prime_anc.hardware.targets import requested, target, targets
from prime_anc.method.errors import InvalidOption
from prime_anc.method.loops.sections import Sections
from prime_anc.tasks.export import coefficients_answer
from tests.hardware.conftest import PINK, simulated


def realised(**options: object) -> Realised:
    """Realise the filter of a simulated ear."""
    return realise([simulated()], PINK, Target(**options))


def test_client_names_all_kinds():
    assert get_args(FileKind) == KINDS


def test_wav_of_sections_is_impulse_response():
    found = realised(n_sections=6, sample_rate_hz=384_000.0)
    samples, rate = soundfile.read(io.BytesIO(write(found, "wav")[0]))
    assert rate == 384_000
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


def loudspeaker_of_camilladsp(text: str, inputs: np.ndarray) -> np.ndarray:
    """Run CamillaDSP's pipeline on signals [channel, n], read from and written to its devices."""
    document = yaml.safe_load(text)
    devices, signals = document["devices"], inputs
    assert (devices["samplerate"], devices["capture"]["channels"]) == (48_000, len(inputs))
    for step in document["pipeline"]:
        if step["type"] == "Mixer":
            mixer = document["mixers"][step["name"]]
            assert mixer["channels"]["in"] == len(signals)
            mixed = np.zeros((mixer["channels"]["out"], signals.shape[1]))
            for output in mixer["mapping"]:
                for source in output["sources"]:
                    gain = 10 ** (source["gain"] / 20) * (-1 if source["inverted"] else 1)
                    mixed[output["dest"]] += gain * signals[source["channel"]]
            signals = mixed
            continue
        for channel, name in itertools.product(step["channels"], step["names"]):
            item = document["filters"][name]
            values, signal = item["parameters"], signals[channel]
            if item["type"] == "Conv":
                signals[channel] = np.convolve(signal, values["values"])[: len(signal)]
            else:
                numerator = [values[key] for key in ("b0", "b1", "b2")]
                signals[channel] = lfilter(numerator, [1, values["a1"], values["a2"]], signal)
    (played,) = signals
    assert devices["playback"]["channels"] == 1
    return played


def loudspeaker_of_apo(text: str, inputs: np.ndarray) -> np.ndarray:
    """Run Equalizer APO's lines on signals [channel, n]; filters without a channel before them apply to all."""
    signals, chosen = dict(enumerate(inputs, 1)), range(1, len(inputs) + 1)
    for line in text.splitlines():
        name, _, rest = line.partition(": ")
        if name == "Channel":
            chosen = signals if rest == "all" else [int(rest)]
        elif name == "Copy":
            output, _, terms = rest.partition("=")
            signals[int(output)] = sum(signals[int(term)] for term in terms.split("+"))
        elif name == "Filter":
            values = [float(value) for value in rest.split()[5:]]
            for channel in chosen:
                signals[channel] = lfilter(values[:3], values[3:], signals[channel])
        else:
            assert line.startswith("# ")
    return signals[1]


@pytest.mark.parametrize("n_parts", [1, 3])
@pytest.mark.parametrize(
    ("kind", "form", "run"),
    [
        ("camilladsp", "sos", loudspeaker_of_camilladsp),
        ("camilladsp", "fir", loudspeaker_of_camilladsp),
        ("apo", "sos", loudspeaker_of_apo),
    ],
)
def test_loudspeaker_plays_sum_of_parts(kind: str, form: str, run: Callable, n_parts: int):
    parts = [realised(form=form, n_taps=32, n_sections=3, number_format="float64")]
    rows = np.array([[[0.3, -0.2, 0.05, 1, -1.3, 0.5], [1, 0.5, 0, 1, 0.2, 0]], [[0.7, 0.1, 0, 1, -0.4, 0.1]] * 2])
    parts += [realised_sections(Sections(item, 48_000.0), "float64") for item in rows]
    signals = np.random.default_rng(0).standard_normal((n_parts, 300))
    expected = sum(
        lfilter(part.taps, 1, signal) if part.sections is None else sosfilt(part.sections.rows, signal)
        for part, signal in zip(parts[:n_parts], signals, strict=True)
    )
    written = (
        write(parts[0], kind) if n_parts == 1 else write_both(parts[0], parts[1], kind, "minus", *parts[2:n_parts])
    )
    np.testing.assert_allclose(run(written[0].decode(), signals.copy()), expected, rtol=1e-9, atol=1e-12)


def test_unequal_rates_are_refused_together():
    controller = realised_sections(Sections(np.array([[0.3, 0, 0, 1, 0, 0]]), 96_000.0), "float64")
    with pytest.raises(InvalidOption, match="one rate, not the filter at 48000 and the controller at 96000 Hz"):
        write_both(realised(n_sections=1), controller, "apo")


@pytest.mark.parametrize("sign", ["minus", "plus"])
@pytest.mark.parametrize("kind", ["csv", "c", "apo", "camilladsp", "bes", "sigmadsp", "mat"])
def test_remark_states_rate_and_sign(kind: str, sign: str):
    name = {"bes": "pinebuds-pro", "sigmadsp": "openearable-2"}.get(kind)
    found = realise([simulated()], PINK, requested(name, {"n_sections": 1}))
    content = write(found, kind, sign)[0]
    head = str(loadmat(io.BytesIO(content))["about"]) if kind == "mat" else content.decode().partition("\n")[0]
    assert f"{found.sample_rate_hz:g} Hz, e = d {'-' if sign == 'minus' else '+'} s * w * x" in head
    if kind in ("csv", "c", "apo", "camilladsp"):
        controller = realised_sections(Sections(np.array([[0.3, 0, 0, 1, 0, 0]]), found.sample_rate_hz), "float64")
        both = write_both(found, controller, kind, sign)[0]
        if kind == "csv":
            both = zipfile.ZipFile(io.BytesIO(both)).read("controller.csv")
        head = both.decode().partition("\n")[0]
        assert f"e = d {'-' if sign == 'minus' else '+'} s * (w * x + k * e)" in head


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
    [("sos", "float32", "subtracted"), ("sos", "q5.27", "added"), ("fir", "q1.15", "subtracted")],
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
    machines = [Machine(document(coefficients_answer(item))) for item in items]
    expected = sum(machine.run(signal) for machine, signal in zip(machines, signals.T, strict=False))
    expected = expected if unit == 1 else expected.clip(-1, 1)
    found = np.array(ran.stdout.split(), float) / unit
    headroom = max(0 if item.scaling is None else item.scaling.headroom_bits for item in items)
    np.testing.assert_allclose(found, expected, atol=1e-9 if unit == 1 else 2 * 2**headroom / unit)
    assert np.abs(expected).max() > 0.05
