"""By recording, nothing of a held-out person or recording reaches what a split's training makes of its data."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from training import data as data_module
from training.config import Configuration
from training.data import Data, query_probes
from training.datasets.noise import simulated_noise
from training.datasets.simulated import simulate_listeners
from training.measurements import learn_prior
from training.simulated_calibration import simulate_calibration
from training.support import RECIPES, objective

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def noise():
    """Four recordings, white and pink."""
    whole = simulated_noise(0)
    return whole.of(whole.names[:4], ("white", "pink"))


def one_probe(noises, split):
    """The first held-out recording of a split and its noise."""
    name = split.query_recordings[0]
    return {name: query_probes(noises, split)[name]}


@pytest.fixture
def opened(monkeypatch, tmp_path, noise):
    """A function that opens data of three simulated listeners, or of given ones, with one held-out probe."""

    def opened(dataset=None, noises=noise, protocol="by-recording"):
        chosen = dataset or simulate_listeners(3)
        changes = {
            "SNRS_DB": (None,), "N_SYNTHETIC": 1, "QUICK_QUERIES": 1, "query_probes": one_probe,
            "open_dataset": lambda *_, **__: chosen, "simulated_noise": lambda: noises,
        }  # fmt: skip
        for name, value in changes.items():
            monkeypatch.setattr(data_module, name, value)
        given = {
            "dataset": "simulated", "out": tmp_path, "protocol": protocol, "window": 4096, "splits": 2, "support": 2,
            "calibration": "prior", "quick": True, "device": "cpu",
        }  # fmt: skip
        return Data(Configuration.load(given))

    return opened


def learnt(data):
    """All tensors that training and its constants are made of, for the first split."""
    split = data.splits[0]
    measurements = data.fold(split).support
    config = RECIPES["prime-log"].training(data.configuration).model_copy(update={"n_calibrations": 1})
    training_set = data.training_set(measurements, split.support, config, split.index)
    made = objective(config, measurements, CPU)
    prior = measurements.path_prior(split.support)
    return [
        training_set.primary_estimates,
        training_set.secondary_estimates,
        training_set.true.primary,
        training_set.true.secondary,
        measurements.reference_psd,
        measurements.support_uncertainty(split.support),
        torch.tensor(measurements.support_statistics(split.support).mean),
        *map(torch.from_numpy, prior.arrays().values()),
        *(var for var in vars(made).values() if isinstance(var, torch.Tensor)),
    ]


def scored(data):
    """A held-out estimate from a held-out recording, and the spectra that score."""
    fold, split = data.fold(data.splits[0]), data.splits[0]
    alone = next(query for query in fold.queries if query.probe == split.query_recordings[0])
    return alone.estimates.primary, fold.score._reference


def test_held_out_data_never_trains(opened, noise):
    """Other held-out persons, recordings, white and pink: bit for bit the same training; other scores.

    Another recording of the support: another training.
    """
    data = opened()
    split, dataset = data.splits[0], data.dataset
    before, before_scored = learnt(data), scored(data)
    strange, signals = np.random.default_rng(0), noise.signals.copy()
    for row, name in enumerate(noise.names):
        if name not in split.support_recordings:
            signals[row] = 0.05 * strange.standard_normal(signals.shape[1])
    pairs = tuple(
        replace(pair, primary=pair.primary[::-1].copy(), secondary=2 * pair.secondary)
        if pair.listener in split.query
        else pair
        for pair in dataset.pairs
    )
    other = opened(
        replace(dataset, pairs=pairs, fingerprint="other"),
        replace(noise, signals=signals, fingerprint="other"),
    )
    after, after_scored = learnt(other), scored(other)
    assert other.splits == data.splits
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))
    assert not any(torch.equal(one, two) for one, two in zip(before_scored, after_scored, strict=True))
    signals = noise.signals.copy()
    row = noise.names.index(split.support_recordings[0])
    signals[row] = 0.05 * strange.standard_normal(signals.shape[1])
    support = opened(data.dataset, replace(noise, signals=signals, fingerprint="third")).fold(split).support
    assert not torch.equal(support.estimates.primary, data.fold(split).support.estimates.primary)
    assert not torch.equal(support.reference_psd, before[4])


def test_priors_know_other_listeners_alone(opened, noise):
    """By person too: each support ear under its fellows' prior, each held-out ear under the whole support's."""
    data = opened(protocol="by-person")
    split, fold = data.splits[0], data.fold(data.splits[0])
    for measurements, known in ((fold.support, split.support[1:]), (fold.queries[0], split.support)):
        pairs, prior = measurements.pairs[:1], learn_prior(data.dataset.of(known))
        expected = simulate_calibration(pairs, noise, window=4096, priors={pairs[0].listener: prior})
        torch.testing.assert_close(measurements.estimates.primary[0], expected.primary[0], rtol=0, atol=1e-9)
