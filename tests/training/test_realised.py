"""Designs as hardware runs them: the filter of a realisation, for one ear and for a support of several."""

import numpy as np
import pytest
import torch

from hardware.realise import Target, realise
from hardware.residual_power import PathSpectra
from tests.synthesis.cases import mean_reductions_db, predictions
from training.baselines.realised import IndividualRealisation, SupportSharedRealisation
from training.config import load_config
from training.datasets.noise import simulated_noise
from training.datasets.simulated import simulate_listeners
from training.measurements import Measurements

TARGETS = {"fir_2048": Target(form="fir"), "sections_6": Target(n_sections=6)}


@pytest.fixture(scope="module")
def measurements():
    return Measurements.calibrate(simulate_listeners(4, 0), simulated_noise(0), window=8192, conditions="original")


def shared(measurements, listeners, target):
    training_set = measurements.training_set(listeners, load_config("prime", n_calibrations=1), torch.device("cpu"))
    return SupportSharedRealisation.fit(training_set, measurements.reference_psd.float(), target)


@pytest.mark.parametrize("name", TARGETS)
def test_each_ear_gets_realisation(measurements, name):
    paths, psd = measurements.paths([0, 1]), measurements.reference_psd.float()
    taps = IndividualRealisation(psd, TARGETS[name]).design(paths).taps
    for place in range(2):
        ear = PathSpectra(*(item[place].numpy().astype(complex) for item in (paths.primary, paths.secondary)))
        individual = realise([ear], psd.double().numpy(), TARGETS[name], max_gain_db=30.0)
        found = np.fft.rfft(taps[place], 32_768)
        # A cascade's response is cut where it has fallen by 50 dB, and all are in single precision.
        np.testing.assert_allclose(found, individual.response, atol=5e-3 * np.abs(individual.response).max())


@pytest.mark.parametrize("name", TARGETS)
def test_shared_filter_serves_all_worse_than_individual(measurements, name):
    listeners = tuple(sorted({pair.listener for pair in measurements.pairs}))
    support, psd = listeners[:2], measurements.reference_psd.float()
    common = shared(measurements, support, TARGETS[name])
    paths = measurements.paths(measurements.indices(support))

    def reduction_db(taps):
        return mean_reductions_db(predictions(paths, taps, psd)).mean()

    individual = reduction_db(IndividualRealisation(psd, TARGETS[name]).design(paths).taps)
    joint = reduction_db(common.design(paths).taps)
    of_others = reduction_db(shared(measurements, listeners[2:], TARGETS[name]).design(paths).taps)
    assert of_others < joint < individual
