"""Filters that run sample by sample, against exact arithmetic and the closed loop's spectrum."""

import numpy as np
import pytest

from hardware.realise import Target, realise
from hardware.running import Machine, run_in_loop
from service.api.export import coefficients_document
from tests.hardware.conftest import simulated
from tests.hardware.test_fixed_point import run_in_integers

PINK = 1 / np.maximum(np.arange(16385), 10.0)


@pytest.mark.parametrize("is_wide", [True, False])
@pytest.mark.parametrize("denominator", ["subtracted", "added"])
def test_sections_run_as_integers(is_wide: bool, denominator: str):
    found = realise([simulated()], PINK, Target(n_sections=2, number_format="q1.23", denominator=denominator))
    sound = 0.002 * np.random.default_rng(0).standard_normal(2000)
    machine = Machine(coefficients_document(found), is_wide=is_wide)
    outputs = np.concatenate((machine.run(sound[:700]), machine.run(sound[700:])))
    assert found.quantised is not None
    assert found.scaling is not None
    headroom = found.scaling.headroom_bits
    words = [int(np.floor(np.rint(x * 2**23) / 2**headroom + 0.5)) for x in sound]
    signs = np.array([1, 1, 1, -1, -1] if denominator == "added" else [1, 1, 1, 1, 1])
    expected, _ = run_in_integers(found.quantised.times(signs), words, is_wide)
    # The reference keeps 32 further bits, the machine a double word.
    np.testing.assert_allclose(outputs * 2 ** (23 - headroom), expected, atol=1.01 if is_wide else 0)


def test_taps_in_fixed_point_round_once_and_saturate():
    found = realise([simulated()], PINK, Target("fir", n_taps=32, number_format="q1.15"))
    machine = Machine(coefficients_document(found))
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
