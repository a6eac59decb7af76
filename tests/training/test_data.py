"""Splits by listener; nothing of a held-out person or recording reaches what a split's training makes of its data."""

from dataclasses import replace
from math import comb

import numpy as np
import pytest
import torch

from training import data as data_module
from training.config import Configuration
from training.data import Data, default_n_support, make_splits, query_probes, with_recordings
from training.datasets.path_pairs import DatasetError
from training.datasets.simulated import simulate_listeners
from training.measurements import learn_prior
from training.simulated_calibration import simulate_calibration
from training.support import RECIPES, objective

CPU = torch.device("cpu")
PERSONS = tuple(f"person-{number:02d}" for number in range(1, 16))


def one_probe(noises, split):
    """The first held-out recording of a split and its noise."""
    name = split.query_recordings[0]
    return {name: query_probes(noises, split)[name]}


@pytest.fixture
def opened(monkeypatch, tmp_path, few_noises):
    """A function that opens data of three simulated listeners, or of given ones, with one held-out probe."""

    def opened(dataset=None, noises=few_noises, protocol="by-recording", calibration="prior"):
        chosen = dataset or simulate_listeners(3)
        changes = {
            "SNRS_DB": (None,), "N_SYNTHETIC": 1, "QUICK_QUERIES": 1, "query_probes": one_probe,
            "open_dataset": lambda *_, **__: chosen, "simulated_noise": lambda: noises,
        }  # fmt: skip
        for name, value in changes.items():
            monkeypatch.setattr(data_module, name, value)
        given = {
            "dataset": "simulated", "out": tmp_path, "protocol": protocol, "window": 4096, "splits": 2, "support": 2,
            "calibration": calibration, "quick": True, "device": "cpu",
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


def test_held_out_data_never_trains(opened, few_noises):
    """Other held-out persons, recordings, white and pink: bit for bit the same training; other scores.

    Another recording of the support: another training.
    """
    data = opened()
    split, dataset = data.splits[0], data.dataset
    before, before_scored = learnt(data), scored(data)
    strange, signals = np.random.default_rng(0), few_noises.signals.copy()
    for row, name in enumerate(few_noises.names):
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
        replace(few_noises, signals=signals, fingerprint="other"),
    )
    after, after_scored = learnt(other), scored(other)
    assert other.splits == data.splits
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))
    assert not any(torch.equal(one, two) for one, two in zip(before_scored, after_scored, strict=True))
    signals = few_noises.signals.copy()
    row = few_noises.names.index(split.support_recordings[0])
    signals[row] = 0.05 * strange.standard_normal(signals.shape[1])
    third = replace(few_noises, signals=signals, fingerprint="third")
    one, two = (opened(dataset, item, calibration="paper").fold(split).support for item in (few_noises, third))
    assert not torch.equal(one.estimates.primary, two.estimates.primary)
    assert not torch.equal(one.reference_psd, two.reference_psd)


def test_priors_know_other_listeners_alone(opened, few_noises):
    """By person too: each support ear under its fellows' prior, each held-out ear under the whole support's."""
    data = opened(protocol="by-person")
    split, fold = data.splits[0], data.fold(data.splits[0])
    for measurements, known in ((fold.support, split.support[1:]), (fold.queries[0], split.support)):
        pairs, prior = measurements.pairs[:1], learn_prior(data.dataset.of(known))
        expected = simulate_calibration(pairs, few_noises, window=4096, priors={pairs[0].listener: prior})
        torch.testing.assert_close(measurements.estimates.primary[0], expected.primary[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("n_listeners", [2, 3, 14, 23])
@pytest.mark.parametrize("dataset", ["pandar", "ten-path", "simulated"])
def test_splits_partition_listeners(n_listeners: int, dataset: str) -> None:
    listeners = [f"person-{number:02d}" for number in range(n_listeners)]
    n_splits = min(10, comb(n_listeners, default_n_support(n_listeners, dataset)))
    for split in make_splits(listeners, n_splits, dataset=dataset):
        assert not set(split.support) & set(split.query)
        assert sorted(split.support + split.query) == listeners


def test_splits_differ_and_repeat_by_seed() -> None:
    splits = make_splits(PERSONS, 10, seed=3)
    assert [split.index for split in splits] == list(range(10))
    assert len({split.support for split in splits}) == 10
    assert splits == make_splits(reversed(PERSONS), 10, seed=3)
    assert splits != make_splits(PERSONS, 10, seed=4)
    assert make_splits(PERSONS, 4, seed=3) == splits[:4]


def test_pairs_of_splits_hold_out_all_recordings() -> None:
    names = tuple(f"place{number}" for number in range(8))
    splits = with_recordings(make_splits(PERSONS, 4), names)
    assert splits == with_recordings(make_splits(PERSONS, 6), names)[:4]
    for first, second in (splits[:2], splits[2:]):
        assert len(first.support_recordings) == len(first.query_recordings) == 4
        assert sorted(first.support_recordings + first.query_recordings) == sorted(names)
        assert second.support_recordings == first.query_recordings
    assert len({split.support_recordings for split in splits}) == 4
    with pytest.raises(DatasetError, match="found 1 recordings"):
        with_recordings(splits, names[:1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"listeners": [*PERSONS[:1]] * 5}, "found 1 listeners, expected at least 2"),
        ({"n_support": 15}, "n_support = 15, expected 1 to 14 of 15"),
        ({"listeners": PERSONS[:4], "n_splits": 7, "n_support": 2}, "n_splits = 7, expected at most 6"),
    ],
)
def test_impossible_number_is_rejected(options: dict, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        make_splits(**({"listeners": PERSONS} | options))
