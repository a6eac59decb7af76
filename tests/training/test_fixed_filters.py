"""Selective and generative fixed filters: their limiting cases, and that training helps held-out ears."""

import numpy as np
import pytest
import torch

from synthesis.paths import AcousticPaths
from synthesis.start.wiener import design_wmmse
from tests.synthesis.cases import mean_reductions_db, predictions
from training.baselines.generative import WeightNetwork, band_edges_hz, fit_generative, sub_filters
from training.baselines.selective import SelectiveFixedFilter
from training.baselines.wmmse import SupportSharedWmmse
from training.config import load_config
from training.datasets.noise import simulated_noise
from training.datasets.simulated import simulate_listeners
from training.measurements import Measurements

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def measurements():
    return Measurements.calibrate(simulate_listeners(5, 0), simulated_noise(0), window=8192, conditions="original")


@pytest.fixture(scope="module")
def support(measurements):
    return tuple(sorted({pair.listener for pair in measurements.pairs}))[:3]


@pytest.fixture(scope="module")
def training_set(measurements, support):
    return measurements.training_set(support, load_config("prime", n_calibrations=1), CPU)


@pytest.fixture(scope="module")
def psd(measurements):
    return measurements.reference_psd.float()


def test_support_case_is_served_by_filter(measurements, support, training_set, psd):
    method = SelectiveFixedFilter.fit(training_set, psd)
    indices = measurements.indices(support)
    paths = measurements.paths(indices)
    assert method.select(paths).tolist() == list(range(len(indices)))
    # The library is designed from the same estimates, in float32 here and float64 there.
    expected = design_wmmse(paths, psd)
    torch.testing.assert_close(
        method.design(paths).taps, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max())
    )


def test_query_gets_filter_that_estimates_predict_best(measurements, support, training_set, psd):
    method = SelectiveFixedFilter.fit(training_set, psd)
    queries = [i for i in range(len(measurements.pairs)) if i not in measurements.indices(support)]
    paths = measurements.paths(queries)
    predicted = [
        mean_reductions_db(predictions(paths, item.expand(len(queries), -1), psd)) for item in method.library
    ]
    chosen = method.design(paths).taps
    found = mean_reductions_db(predictions(paths, chosen, psd))
    np.testing.assert_allclose(found, np.max(predicted, axis=0), atol=1e-3)


def test_sub_filters_sum_to_filter(training_set, psd):
    broad = SupportSharedWmmse.fit(training_set, psd).taps[0].double()
    parts = sub_filters(broad)
    assert parts.shape == (15, 2048)
    # Sums of fifteen numbers in float64.
    torch.testing.assert_close(parts.sum(0), broad, rtol=0, atol=1e-14 * float(broad.abs().max()))
    impulse = torch.zeros(2048, dtype=torch.float64)
    impulse[0] = 1
    gain = torch.fft.rfft(sub_filters(impulse), n=32_768).abs()
    edges, spacing = band_edges_hz(15), 24_000 / 16_384
    # The lowest band reaches down to 0 Hz, and nothing is left two octaves above the two topmost. Differences of
    # fourth-order low passes fall by 6 dB an octave below the band, where their phases differ, by 24 dB above it.
    for number in range(1, 15):
        within = gain[number, round(edges[number] / spacing) : round(edges[number + 1] / spacing)].mean()
        assert gain[number, : round(edges[number] / 4 / spacing)].mean() < 0.25 * within
        assert number >= 13 or gain[number, round(4 * edges[number + 1] / spacing) :].mean() < 1e-3 * within


def test_network_reads_gain_that_broad_band_filter_lacks(psd):
    """Paths that the filter serves exactly lack nothing; a primary path scaled by g lacks g - 1 in every band."""
    broad = torch.zeros(2048)
    broad[:3] = torch.tensor([1.0, -0.4, 0.2])
    network = WeightNetwork(sub_filters(broad), psd)
    secondary = torch.fft.rfft(torch.tensor([[0.5, 0.3]]), n=32_768)
    served = secondary * torch.fft.rfft(broad, n=32_768)
    exact = network.lacking_gain(AcousticPaths(served, secondary))
    scaled = network.lacking_gain(AcousticPaths((0.7 + 0.2j) * served, secondary))
    torch.testing.assert_close(exact, torch.zeros(1, 30), rtol=0, atol=1e-5)
    expected = torch.cat((torch.full((1, 15), -0.3), torch.full((1, 15), 0.2)), -1)
    torch.testing.assert_close(scaled, expected, rtol=0, atol=1e-5)


def test_training_beats_broad_band_filter(measurements, support, training_set, psd):
    queries = [i for i in range(len(measurements.pairs)) if i not in measurements.indices(support)]
    paths = measurements.paths(queries)
    trained = fit_generative(training_set, psd, seed=0, n_updates=200)
    shared = SupportSharedWmmse.fit(training_set, psd)
    learned, fixed = (
        mean_reductions_db(predictions(paths, item.design(paths).taps, psd)).mean() for item in (trained, shared)
    )
    assert learned > fixed + 0.5
