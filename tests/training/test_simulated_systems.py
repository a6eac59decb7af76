"""Simulated systems and earphones: the same for the same seed; systems are causal, in time, limited to their band."""

import numpy as np
import pytest

from prime_anc.method.conventions import SAMPLE_RATE_HZ
from training.datasets.path_pairs import MAX_PATH_SAMPLES
from training.datasets.simulated import Earphone, circuit_spectra, simulate_listeners
from training.datasets.simulated_systems import KINDS, simulate_system


@pytest.mark.parametrize("number", range(5))
def test_system_is_one_that_was_built_to_work(number: int) -> None:
    system, again, other = (simulate_system(number, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(system.primary, again.primary)
    assert not np.array_equal(system.primary, other.primary)
    assert system.kind == list(KINDS)[number]
    arrivals = []
    for path in (system.primary, system.secondary):
        assert len(path) <= MAX_PATH_SAMPLES
        arrivals.append(np.abs(path).argmax())
        power = np.abs(np.fft.rfft(path)) ** 2
        above = np.fft.rfftfreq(len(path), 1 / SAMPLE_RATE_HZ) > 0.55 * system.rate_hz
        assert not above.any() or power[above].max() < 1e-3 * power.max()
    assert arrivals[1] < arrivals[0]


def test_two_ears_each_labelled_and_repeatable() -> None:
    dataset = simulate_listeners(3, seed=4)
    assert dataset.is_simulated
    names = ["simulated-001/left", "simulated-001/right", "simulated-002/left"]
    assert [f"{pair.listener}/{pair.ear}" for pair in dataset.pairs[:3]] == names
    again = simulate_listeners(3, seed=4)
    for first, second in zip(dataset.pairs, again.pairs, strict=True):
        np.testing.assert_array_equal(first.primary, second.primary)
    assert dataset.fingerprint == again.fingerprint


def test_circuit_obeys_physics() -> None:
    frequency_hz = np.array([1e-2, 150.0, 700.0, 4000.0])
    primary, secondary = np.abs(circuit_spectra(Earphone(), frequency_hz))
    assert primary[0] == pytest.approx(1, abs=1e-3)  # a leak equalises slow pressure
    assert primary[1] > primary[2]  # what seals against higher frequencies
    assert secondary[0] < 1e-2 * secondary[1]  # the same leak and the high-pass take the lows
    assert secondary[2] < 0.3 * min(secondary[1], secondary[3])  # dip between the two resonances

    tighter = Earphone(leak_resistance=1e10)
    assert np.abs(circuit_spectra(tighter, frequency_hz)[0])[1] < 0.8 * primary[1]
    assert np.abs(circuit_spectra(tighter, np.array([20.0]))[1]) > np.abs(
        circuit_spectra(Earphone(), np.array([20.0]))[1]
    )
