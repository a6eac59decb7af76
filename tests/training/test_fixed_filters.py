"""Selective, generative and realised fixed filters: their limiting cases, and what knowing the listener is worth."""

import numpy as np
import pytest
import torch

from prime_anc.hardware.realise import Target
from prime_anc.method.start.wiener import design_wmmse
from tests.method.cases import mean_reductions_db, predictions
from training.baselines.generative import fit_generative
from training.baselines.realised import IndividualRealisation, SupportSharedRealisation
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


def test_training_beats_broad_band_filter(measurements, support, training_set, psd):
    queries = [i for i in range(len(measurements.pairs)) if i not in measurements.indices(support)]
    paths = measurements.paths(queries)
    trained = fit_generative(training_set, psd, seed=0, n_updates=100)
    shared = SupportSharedWmmse.fit(training_set, psd)
    learned, fixed = (
        mean_reductions_db(predictions(paths, item.design(paths).taps, psd)).mean() for item in (trained, shared)
    )
    assert learned > fixed + 0.5


TARGET = Target(n_sections=6)


def shared(measurements, listeners):
    training_set = measurements.training_set(listeners, load_config("prime", n_calibrations=1), torch.device("cpu"))
    return SupportSharedRealisation.fit(training_set, measurements.reference_psd.float(), TARGET)


def test_shared_filter_serves_all_worse_than_individual(measurements):
    listeners = tuple(sorted({pair.listener for pair in measurements.pairs}))
    support, psd = listeners[:2], measurements.reference_psd.float()
    common = shared(measurements, support)
    paths = measurements.paths(measurements.indices(support))

    def reduction_db(taps):
        return mean_reductions_db(predictions(paths, taps, psd)).mean()

    individual = reduction_db(IndividualRealisation(psd, TARGET).design(paths).taps)
    joint = reduction_db(common.design(paths).taps)
    of_others = reduction_db(shared(measurements, listeners[2:]).design(paths).taps)
    assert of_others < joint < individual
