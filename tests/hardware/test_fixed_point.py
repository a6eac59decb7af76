"""Fixed-point formats against a simulation in integers; filters that run sample by sample against both."""

import re
from fractions import Fraction

import numpy as np
import pytest
from scipy.signal import sosfilt

from prime_anc.answers import document
from prime_anc.hardware.filter_files import write
from prime_anc.hardware.fixed_point import (
    NumberFormat,
    Quantised,
    parse_format,
    quantise_sections,
    quantise_taps,
    scale_sections,
    sections_scaling,
    taps_scaling,
)
from prime_anc.hardware.realise import Realised, Target, realise
from prime_anc.hardware.running import Machine, run_in_loop
from prime_anc.method.bands import NR_BANDS, band_membership
from prime_anc.method.conventions import DESIGN_N_FFT
from prime_anc.method.errors import InvalidOption
from prime_anc.method.loops.sections import Sections
from prime_anc.tasks.export import coefficients_answer
from tests.hardware.conftest import PINK, simulated

Q1_23 = NumberFormat(1, 23)


def rounded_shift(value: int, bits: int) -> int:
    """Return value 2^-bits rounded to the nearest, as a processor rounds its accumulator."""
    return (value + (1 << (bits - 1))) >> bits if bits > 0 else value << -bits


def run_in_integers(quantised: Quantised, signal: list[int], is_wide: bool) -> tuple[list[int], int]:
    """Run direct form I in Python integers; also return the largest word of any node.

    is_wide: the feedback keeps 32 more bits than the data word.
    """
    largest, extra = 0, 32 if is_wide else 0
    for (b0, b1, b2, a1, a2), shift in zip(quantised.words.tolist(), quantised.shift.tolist(), strict=True):
        x1 = x2 = y1 = y2 = 0
        out = []
        for x in signal:
            total = ((b0 * x + b1 * x1 + b2 * x2) << extra) - a1 * y1 - a2 * y2
            y = rounded_shift(total, quantised.format.fraction_bits - shift)
            x1, x2, y1, y2 = x, x1, y, y1
            out.append(rounded_shift(y, extra))
        largest = max(largest, max(abs(item) for item in out))
        signal = out
    return signal, largest


def test_formats_by_name():
    assert parse_format("q5.23") == NumberFormat(5, 23)
    assert parse_format("q5.23").n_bits == 28
    assert parse_format("float32") is None
    for wrong in ("q1.2.3", "q0.15", "q1.0", "q9.99", "int16", "q1.5"):
        with pytest.raises(InvalidOption, match="number_format"):
            parse_format(wrong)


FORMATS = [NumberFormat(i, n - i) for n in (8, 16, 24, 28, 32, 53, 64) for i in (1, 5, 16) if n - i >= 1]


def c_words(content: bytes) -> list[int]:
    """Parse the numbers of the array in a C header."""
    ((array),) = re.findall(r"control_filter\[\d+\] = \{(.*?)\};", content.decode(), re.DOTALL)
    return [int(eval(part.replace("LL", "").strip(), {})) for part in array.split(",") if part.strip()]


@pytest.mark.parametrize("integer_bits", [1, 5, 16])
def test_words_keep_range_and_sign(integer_bits):
    """Extreme values of either sign and beyond agree in words, values and the C file."""
    for number_format in (item for item in FORMATS if item.integer_bits == integer_bits):
        top, step = 2 ** (number_format.n_bits - 1), Fraction(1, 2**number_format.fraction_bits)
        largest = number_format.largest
        assert 0 <= (top - 1) * step - Fraction(largest) < max(step, Fraction(largest) / 2**52)
        sizes = np.array([1.0, largest, np.nextafter(largest, np.inf), 2.0 ** (integer_bits - 1), 1e5, float(step)])
        for value in (*sizes, *-sizes):
            quantised = quantise_taps(np.array([value, 0.0]), number_format)
            (word, zero), shift = quantised.words.tolist(), int(quantised.shift)
            limited = number_format.words(np.array([value])).tolist()
            negative = quantised.times(np.array([-1, -1])).words.tolist()
            assert all(-top <= item <= top - 1 for item in (word, *limited, *negative))
            assert np.sign(limited[0]) == np.sign(value)
            assert abs(word * step * 2**shift - Fraction(value)) <= step * 2**shift / 2
            assert quantised.values[0] == pytest.approx(value, abs=float(step) * 2**shift / 2)
            realised = Realised(48_000.0, quantised.values, None, quantised, None, np.zeros(1, complex), 0.0)
            assert c_words(write(realised, "c")[0]) == [word, zero] == [word, 0]


@pytest.fixture
def cascade(condition, pink) -> Sections:
    """Five sections from the public design function."""
    realised = realise([condition], pink, Target(n_sections=5, number_format="float64"), max_gain_db=20)
    return realised.sections


def test_scaling_keeps_cascade_and_bounds_nodes(cascade):
    scaled = scale_sections(cascade, Q1_23)
    frequency_hz = np.geomspace(5, 23_000, 300)
    np.testing.assert_allclose(scaled.response(frequency_hz), cascade.response(frequency_hz), rtol=1e-9)
    peak = max(1.0, np.abs(cascade.response(frequency_hz)).max())
    for n in range(1, len(scaled.rows)):
        assert np.abs(Sections(scaled.rows[:n], 48_000).response(frequency_hz)).max() < 1.01 * peak


@pytest.mark.parametrize("is_wide", [False, True])
def test_integer_simulation_matches_stated_noise(cascade, is_wide):
    sections, quantised = quantise_sections(scale_sections(cascade, Q1_23), Q1_23)
    stated = sections_scaling(sections, Q1_23)
    random = np.random.default_rng(0)
    full_scale = 1 << 23
    # No node may overflow with the stated headroom.
    signal = (random.integers(-full_scale, full_scale, 60_000) >> stated.headroom_bits).tolist()
    found, largest = run_in_integers(quantised, signal, is_wide)
    assert largest < full_scale
    exact = sosfilt(sections.rows, np.array(signal, float))
    error = (np.array(found) - exact)[10_000:]
    noise_db = 20 * np.log10(np.sqrt(np.mean(error**2)) / full_scale) + 20 * np.log10(2) * stated.headroom_bits
    # Most of the noise lies around the lowest pole, where 30,000 samples are a dozen periods.
    assert noise_db == pytest.approx(stated.wide_noise_db if is_wide else stated.noise_db, abs=3.0)


def test_noise_of_taps_is_one_rounding():
    stated = taps_scaling(np.array([0.5, -0.25]), NumberFormat(1, 15))
    assert stated.wide_noise_db == stated.noise_db
    assert stated.headroom_bits == 0
    assert stated.noise_db == pytest.approx(20 * np.log10(2.0**-15) - 10 * np.log10(12), abs=0.01)


@pytest.mark.parametrize("name", ["float32", "q1.23"])
def test_rounded_sections_keep_reduction_at_high_rate(measured, name):
    """At 192 kHz a pole pair at 20 Hz is two steps of 23 bits away from the unit circle."""
    (condition, *_), noise = measured
    inside, left = band_membership(NR_BANDS, DESIGN_N_FFT), []
    for number_format in ("float64", name):
        target = Target(sample_rate_hz=192_000, number_format=number_format)
        found = realise([condition], noise, target, max_gain_db=30)
        assert found.max_gain_db < 30.1
        residual = (noise * np.abs(condition.primary - condition.secondary * found.response) ** 2) @ inside
        left.append(10 * np.log10(residual).mean())
    # Below 0.1 dB over ten ears; single ones lose up to 0.8.
    assert left[1] - left[0] < 0.8


@pytest.mark.parametrize(("is_wide", "denominator"), [(True, "subtracted"), (False, "added")])
def test_sections_run_as_integers(is_wide: bool, denominator: str):
    found = realise([simulated()], PINK, Target(n_sections=2, number_format="q1.23", denominator=denominator))
    sound = 0.002 * np.random.default_rng(0).standard_normal(2000)
    machine = Machine(document(coefficients_answer(found)), is_wide=is_wide)
    outputs = np.concatenate((machine.run(sound[:700]), machine.run(sound[700:])))
    headroom = found.scaling.headroom_bits
    words = [int(np.floor(np.rint(x * 2**23) / 2**headroom + 0.5)) for x in sound]
    signs = np.array([1, 1, 1, -1, -1] if denominator == "added" else [1, 1, 1, 1, 1])
    expected, _ = run_in_integers(found.quantised.times(signs), words, is_wide)
    # The reference keeps 32 further bits, the machine a double word.
    np.testing.assert_allclose(outputs * 2 ** (23 - headroom), expected, atol=1.01 if is_wide else 0)


def test_taps_in_fixed_point_round_once_and_saturate():
    found = realise([simulated()], PINK, Target("fir", n_taps=32, number_format="q1.15"))
    machine = Machine(document(coefficients_answer(found)))
    sound = np.random.default_rng(0).uniform(-0.3, 0.3, 500)
    step = 2.0 ** (found.scaling.headroom_bits - 15)
    np.testing.assert_allclose(machine.run(sound), np.convolve(sound, found.taps)[:500].clip(-1, 1), atol=20 * step)
    assert np.abs(machine.run(1e3 * sound)).max() <= 1


@pytest.mark.parametrize("delay", [1, 7])
def test_filter_and_controller_close_one_loop(delay: int):
    """(1 + G) m = x with a matrix G, in blocks as long as the paths' delay."""
    random = np.random.default_rng(0)
    filters, paths, n = 0.3 * random.standard_normal((2, 8)), np.zeros((2, 2, 20)), 512
    paths[..., delay:] = 0.2 * random.standard_normal((2, 2, 20 - delay)) * 0.7 ** np.arange(20 - delay)
    sounds = np.zeros((2, n))
    sounds[:, :3] = random.standard_normal((2, 3))
    machines = [Machine({"form": "fir", "taps": taps, "sample_rate": 48_000}) for taps in filters]
    outputs = run_in_loop(machines, sounds, paths)
    loop = np.eye(2) + (np.fft.rfft(paths, n) * np.fft.rfft(filters, n)).transpose(2, 0, 1)
    microphones = np.linalg.solve(loop, np.fft.rfft(sounds, n).T[..., None])[..., 0].T
    expected = np.fft.irfft(np.fft.rfft(filters, n) * microphones, n)
    np.testing.assert_allclose(outputs, expected, atol=1e-6)
