"""One-third-octave bands against IEC 61260-1 and against the twin's plain loop."""

import numpy as np
import pytest
import torch

from prime_anc.method.bands import WIDE_BANDS, band_matrix, centre_hz, edges_hz, frequencies_hz, nominal_hz
from tests.oracles import octave_bands as oracle

# IEC 61260-1:2014, table E.1: exact base-10 mid-band frequencies to the digits printed there, and nominal labels;
# one band of each place in a decade.
KNOWN = {
    13: (19.953, 20.0),
    15: (31.623, 31.5),
    17: (50.119, 50.0),
    20: (100.0, 100.0),
    22: (158.49, 160.0),
    24: (251.19, 250.0),
    26: (398.11, 400.0),
    31: (1258.9, 1250.0),
    38: (6309.6, 6300.0),
    39: (7943.3, 8000.0),
}


def test_centres_and_labels_are_standards() -> None:
    for n, (exact, nominal) in KNOWN.items():
        assert centre_hz(n) == pytest.approx(exact, rel=5e-5)  # the table prints five digits
        assert nominal_hz(n) == nominal


@pytest.mark.parametrize("n_fft", [8192, 32_768])
def test_bin_belongs_to_one_band(n_fft: int) -> None:
    membership = band_matrix(WIDE_BANDS, n_fft, torch.ones(1)).bool()
    frequency = torch.from_numpy(frequencies_hz(n_fft))
    inside = (frequency >= edges_hz(WIDE_BANDS[0])[0]) & (frequency < edges_hz(WIDE_BANDS[-1])[1])
    assert torch.equal(membership.sum(-1) == 1, inside)
    assert not membership.sum(-1).gt(1).any()
    for column, n in enumerate(WIDE_BANDS):
        expected = oracle.band_bins(n, n_fft)
        np.testing.assert_array_equal(membership[:, column].nonzero()[:, 0].numpy(), expected)


def test_cached_matrix_is_differentiable_later() -> None:
    with torch.inference_mode():
        band_matrix((20, 21, 22), 4096, torch.ones(1, dtype=torch.float64))
    power = torch.rand(2, 2049, dtype=torch.float64, requires_grad=True)
    membership = band_matrix((20, 21, 22), 4096, power)
    (gradient,) = torch.autograd.grad((power @ membership).sum(), power)
    assert torch.equal(gradient.bool(), membership.sum(-1).bool().expand(2, -1))
