"""The simulated earphone: a causal, listener-dependent stand-in that resembles PANDAR."""

import numpy as np
import pytest

from training.datasets.simulated import Earphone, circuit_spectra, simulate_listeners, simulated_ten_path


def test_two_ears_each_labelled_and_repeatable() -> None:
    dataset = simulate_listeners(3, seed=4)
    assert dataset.is_simulated
    assert "no measurement" in dataset.notes
    assert [(pair.listener, pair.ear) for pair in dataset.pairs[:3]] == [
        ("simulated-001", "left"),
        ("simulated-001", "right"),
        ("simulated-002", "left"),
    ]
    again = simulate_listeners(3, seed=4)
    for first, second in zip(dataset.pairs, again.pairs, strict=True):
        np.testing.assert_array_equal(first.primary, second.primary)
        np.testing.assert_array_equal(first.secondary, second.secondary)
    assert dataset.fingerprint == again.fingerprint


def test_listener_depends_on_seed_and_number_alone() -> None:
    few, many = simulate_listeners(2), simulate_listeners(4)
    np.testing.assert_array_equal(few.pairs[3].primary, many.pairs[3].primary)
    assert few.fingerprint != many.fingerprint
    other = simulate_listeners(2, seed=1)
    assert not np.array_equal(few.pairs[0].secondary, other.pairs[0].secondary)
    secondaries = [pair.secondary for pair in many.pairs]
    assert len({secondary.tobytes() for secondary in secondaries}) == 8


def test_lengths_and_where_energy_ends() -> None:
    for pair in simulate_listeners(8).pairs:
        assert pair.primary.shape == pair.secondary.shape == (8192,)
        energy = pair.secondary**2
        assert 10 * np.log10(energy[2048:].sum() / energy.sum()) < -50
        # A converter's latency: nothing to speak of before 2.7 samples, less the band limit's ringing.
        assert np.abs(pair.secondary[:2]).max() < 0.02 * np.abs(pair.secondary).max()


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


def test_circuit_is_causal() -> None:
    # Before its onset a causal response has nothing; the band limit of 48 kHz leaves a little ringing.
    frequency_hz = np.fft.rfftfreq(65536, 1 / 48000)
    frequency_hz[0] = 1e-3
    for spectrum in circuit_spectra(Earphone(), frequency_hz):
        response = np.fft.irfft(spectrum)
        assert 10 * np.log10(np.sum(response[-16384:] ** 2) / np.sum(response**2)) < -40


def test_ten_path_stand_in_is_labelled_short_and_mono() -> None:
    stand_in = simulated_ten_path()
    assert stand_in.name == "ten-path"
    assert stand_in.is_simulated
    assert "stand-in" in stand_in.notes
    assert len(stand_in.listeners) == 10
    assert {(pair.ear, pair.primary.size, pair.secondary.size) for pair in stand_in.pairs} == {("mono", 2048, 2048)}
    assert (stand_in.primary_taps, stand_in.secondary_taps, stand_in.n_fft) == (2048, 2048, 8192)
