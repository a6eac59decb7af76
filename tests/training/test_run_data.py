"""By recording, nothing of a held-out person or recording reaches what a split's training makes of its data."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from training import run_data
from training.datasets.noise import NoiseSet, simulated_noise
from training.datasets.path_pairs import PathDataset
from training.datasets.simulated import simulate_listeners
from training.measurements import Measurements, learn_prior
from training.methods import GENERATORS, objective
from training.run_data import Options, RunData
from training.simulated_calibration import simulate_calibration

CPU = torch.device("cpu")
N_LISTENERS = 4


def opened(
    monkeypatch: pytest.MonkeyPatch,
    dataset: PathDataset,
    noise: NoiseSet,
    folder: Path,
    protocol: Literal["by-person", "by-recording"] = "by-recording",
    calibration: Literal["paper", "prior"] = "prior",
) -> RunData:
    monkeypatch.setattr(run_data, "open_dataset", lambda *_: dataset)
    monkeypatch.setattr(run_data, "simulated_noise", lambda: noise)
    options = Options(
        dataset="simulated", data=None, noise=None, protocol=protocol, window=4096, regularisation=1e-6,
        calibration=calibration, conditions="original", n_splits=2, support=2, updates=2, quick=True,
        device="cpu", store=folder, out=folder,
    )  # fmt: skip
    return RunData(options)


def learnt(data: RunData) -> list[torch.Tensor]:
    """All tensors that training and its constants are made of, for the first split."""
    split = data.splits[0]
    measurements = data.support_measurements(split)
    config = data.configuration(GENERATORS["prime-log"]).model_copy(update={"n_calibrations": 3})
    training_set = data.training_set(measurements, split.support, config, split.index)
    made = objective(config, measurements, CPU)
    return [
        training_set.primary_estimates,
        training_set.secondary_estimates,
        training_set.true.primary,
        training_set.true.secondary,
        measurements.reference_psd,
        measurements.support_uncertainty(split.support),
        torch.tensor(measurements.support_statistics(split.support).mean),
        *_prior_tensors(measurements, split.support),
        *(each for each in vars(made).values() if isinstance(each, torch.Tensor)),
    ]


def _prior_tensors(measurements: Measurements, support: tuple[str, ...]) -> list[torch.Tensor]:
    prior = measurements.path_prior(support)
    assert prior is not None
    return [torch.from_numpy(each) for each in prior.arrays().values()]


def scored(data: RunData) -> tuple[torch.Tensor, torch.Tensor]:
    """A held-out estimate from a held-out recording, and the spectra that score."""
    measurements = data.query_measurements(data.splits[0])
    alone = next(each for each in measurements if each.probe == data.splits[0].query_recordings[0])
    return alone.estimates.primary, data.score(data.splits[0])._reference


@pytest.mark.parametrize("calibration", ["paper", "prior"])
def test_what_scores_takes_no_part_in_training(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, calibration: Literal["paper", "prior"]
) -> None:
    """Other held-out persons, recordings, white and pink: bit for bit the same training; other scores."""
    dataset, noise = simulate_listeners(N_LISTENERS), simulated_noise(0)
    data = opened(monkeypatch, dataset, noise, tmp_path, calibration=calibration)
    split = data.splits[0]
    before, before_scored = learnt(data), scored(data)

    strange = np.random.default_rng(0)
    signals = noise.signals.copy()
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
        monkeypatch,
        replace(dataset, pairs=pairs, fingerprint="other"),
        replace(noise, signals=signals, fingerprint="other"),
        tmp_path,
        calibration=calibration,
    )
    assert other.splits == data.splits
    after, after_scored = learnt(other), scored(other)
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))
    assert not any(torch.equal(one, two) for one, two in zip(before_scored, after_scored, strict=True))


def test_what_trains_takes_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The test above could not fail if nothing were read: another support recording changes the training."""
    dataset, noise = simulate_listeners(N_LISTENERS), simulated_noise(0)
    data = opened(monkeypatch, dataset, noise, tmp_path)
    before = learnt(data)
    signals = noise.signals.copy()
    row = noise.names.index(data.splits[0].support_recordings[0])
    signals[row] = 0.05 * np.random.default_rng(0).standard_normal(signals.shape[1])
    after = learnt(opened(monkeypatch, dataset, replace(noise, signals=signals, fingerprint="third"), tmp_path))
    assert not torch.equal(before[0], after[0])
    assert not torch.equal(before[4], after[4])


def test_splits_of_one_run_differ_in_both_and_cover_every_recording(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    noise = simulated_noise(0)
    data = opened(monkeypatch, simulate_listeners(N_LISTENERS), noise, tmp_path)
    held_out = [name for split in data.splits for name in split.query_recordings]
    assert sorted(held_out) == sorted(noise.names[:8])
    for split in data.splits:
        support = data.support_measurements(split)
        assert {pair.listener for pair in support.pairs} == set(split.support)
        for asked in data.query_measurements(split):
            assert {pair.listener for pair in asked.pairs} <= set(split.query)
            assert torch.equal(asked.reference_psd, support.reference_psd)


def test_a_calibration_under_a_prior_knows_other_support_listeners_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By person too: each support ear under its fellows' prior, each held-out ear under the whole support's."""
    dataset, noise = simulate_listeners(N_LISTENERS), simulated_noise(0)
    data = opened(monkeypatch, dataset, noise, tmp_path, "by-person")
    split = data.splits[0]
    support, (asked,) = data.support_measurements(split), data.query_measurements(split)
    for measurements, known in ((support, split.support[1:]), (asked, split.support)):
        pair = measurements.pairs[0]
        prior = learn_prior(dataset.of(known))
        expected = simulate_calibration([pair], noise, window=4096, prior=prior)
        # Several pairs at once are summed in another order.
        torch.testing.assert_close(measurements.estimates.primary[0], expected.primary[0], rtol=0, atol=1e-9)
        assert expected.secondary_variance is not None
        assert measurements.estimates.secondary_variance is not None
        found = measurements.estimates.secondary_variance[0]
        torch.testing.assert_close(found, expected.secondary_variance[0], rtol=1e-6, atol=0)
    assert torch.equal(asked.reference_psd, support.reference_psd)
