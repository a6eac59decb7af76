"""Planned transforms against NumPy's, and what their kept buffers promise."""

import numpy as np
import pytest

from synthesis.cpu.transforms import RealTransform

EPS = np.finfo(np.float32).eps


@pytest.mark.parametrize("n", [4096, 8192, 32_768])
def test_there_and_back_are_numpys(n: int) -> None:
    rng = np.random.default_rng(n)
    samples = rng.standard_normal(n).astype(np.float32)
    transform = RealTransform(n)
    spectrum = transform.forward(samples).copy()
    assert spectrum.dtype == np.complex64
    expected = np.fft.rfft(samples.astype(np.float64))
    # Rounding of a transform grows with the logarithm of its length, relative to the whole's norm.
    assert np.linalg.norm(spectrum - expected) < 5 * EPS * np.linalg.norm(expected)
    back = transform.inverse(spectrum)
    assert back.dtype == np.float32
    assert np.linalg.norm(back - samples) < 5 * EPS * np.linalg.norm(samples)


def test_fewer_samples_are_padded_whatever_came_before() -> None:
    transform = RealTransform(4096)
    transform.forward(np.ones(4096, np.float32))
    found = transform.forward(np.arange(5, dtype=np.float32))
    expected = np.fft.rfft(np.arange(5.0), 4096)
    assert np.linalg.norm(found - expected) < 5 * EPS * np.linalg.norm(expected)


def test_real_spectra_are_transformed_as_complex_ones() -> None:
    transform = RealTransform(4096)
    real = np.random.default_rng(0).standard_normal(2049).astype(np.float32)
    found = transform.inverse(real).copy()
    assert np.array_equal(found, transform.inverse(real.astype(np.complex64)))
    assert np.linalg.norm(found - np.fft.irfft(real)) < 5 * EPS * np.linalg.norm(found)


def test_imaginary_parts_at_zero_and_nyquist_are_ignored() -> None:
    """As NumPy and torch do: a spectrum that a client sends may hold any number there."""
    transform = RealTransform(4096)
    spectrum = np.fft.rfft(np.random.default_rng(0).standard_normal(4096)).astype(np.complex64)
    clean = transform.inverse(spectrum).copy()
    spectrum[[0, -1]] += 1e3j
    assert np.linalg.norm(transform.inverse(spectrum) - clean) < 5 * EPS * np.linalg.norm(clean)


def test_what_is_passed_in_stays_as_it_is() -> None:
    transform = RealTransform(4096)
    rng = np.random.default_rng(0)
    samples, spectrum = rng.standard_normal(4096).astype(np.float32), np.zeros(2049, np.complex64)
    spectrum[3] = 1j
    kept = samples.copy(), spectrum.copy()
    transform.forward(samples)
    transform.inverse(spectrum)
    assert np.array_equal(samples, kept[0])
    assert np.array_equal(spectrum, kept[1])


def test_a_result_may_be_passed_straight_back() -> None:
    """The chains of the solver: its own buffer, or the beginning of it."""
    transform = RealTransform(4096)
    samples = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    expected = np.fft.rfft(samples.astype(np.float64)[:2048], 4096)
    found = transform.forward(transform.inverse(transform.forward(samples))[:2048])
    assert np.linalg.norm(found - expected) < 10 * EPS * np.linalg.norm(expected)


def test_a_plan_gives_the_same_bits_every_time() -> None:
    samples = np.random.default_rng(0).standard_normal(8192).astype(np.float32)
    first = RealTransform(8192).forward(samples).copy()
    assert np.array_equal(RealTransform(8192).forward(samples), first)
