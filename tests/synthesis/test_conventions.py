"""The shared constants agree with each other and with the Fourier grid they describe."""

import numpy as np
import torch

from synthesis import conventions, spectra


def test_derived_constants_follow_from_the_grid() -> None:
    assert len(np.fft.rfftfreq(conventions.DESIGN_N_FFT)) == conventions.N_BINS
    assert (conventions.SAMPLE_RATE_HZ, conventions.N_TAPS) == (48_000, 2048)
    assert conventions.DESIGN_N_FFT == 32_768


def test_bin_frequencies_are_those_of_the_transform() -> None:
    for n_fft in (4096, 8192, 32_768):
        found = spectra.frequencies_hz(n_fft)
        assert found.dtype == torch.float64
        # Both are products of small integers with an exactly representable spacing.
        np.testing.assert_array_equal(found.numpy(), np.fft.rfftfreq(n_fft, 1 / 48_000))


def test_stages_are_named_once_and_in_order() -> None:
    assert conventions.STAGES == (
        "decode",
        "queue",
        "path_ratio",
        "generate",
        "reconstruct",
        "refine",
        "predict",
        "encode",
    )
