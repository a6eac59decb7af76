"""Designs as hardware runs them: the filter of a realisation, for one ear and for a support of several."""

import pytest
import torch

from hardware.realise import Target
from tests.synthesis.cases import mean_reductions_db, predictions
from training.baselines.realised import IndividualRealisation, SupportSharedRealisation
from training.config import load_config
from training.datasets.noise import simulated_noise
from training.datasets.simulated import simulate_listeners
from training.measurements import Measurements

TARGET = Target(n_sections=6)


@pytest.fixture(scope="module")
def measurements():
    return Measurements.calibrate(simulate_listeners(4, 0), simulated_noise(0), window=8192, conditions="original")


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
