"""Training: a resumed run equals an unbroken one, the loss falls, only support cases are touched."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from prime_anc.method.start.features import GeneratorConfig
from training import trainer as trainer_module
from training.config import load_config
from training.data import make_splits
from training.objective import FrequencyDomainObjective
from training.trainer import GeneratorNetwork, Trainer, learning_rate, loss_record

CPU = torch.device("cpu")
SMALL = GeneratorConfig.prime_log(n_channels=8, dilations=(1, 2), n_points=32)


@pytest.fixture(scope="module")
def split(measurements):
    return make_splits(measurements.dataset.listeners, 1, 2, dataset="simulated")[0]


def trainer_for(measurements, split, state_file=None, seed=1, **changes):
    config = load_config("prime-log", n_updates=30, n_calibrations=2).model_copy(update=changes)
    objective = FrequencyDomainObjective(config.objective, measurements.reference_psd.float())
    training_set = measurements.training_set(split.support, config, CPU)
    return Trainer(
        "small", lambda: GeneratorNetwork(SMALL), training_set, objective, config, seed=seed, state_file=state_file
    )


def train_until(update, trainer, monkeypatch, report):
    """Train as a process that is killed after so many updates."""
    step = trainer.train_step

    def dying_step():
        if trainer.update == update:
            raise KeyboardInterrupt
        return step()

    monkeypatch.setattr(trainer, "train_step", dying_step)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(report)


def test_loss_that_is_not_finite_stops_training(measurements, split):
    trainer = trainer_for(measurements, split)
    with torch.no_grad():
        trainer.network.generator.head[0].weight.fill_(torch.nan)
    with pytest.raises(FloatingPointError, match="update 0: the loss is nan"):
        trainer.train_step()


def test_query_listeners_do_not_reach_training(measurements, split):
    """Other query paths, another query estimate: the same training set, bit for bit."""
    config = load_config("prime-log", n_calibrations=1)
    changed_pairs = tuple(
        replace(pair, primary=pair.primary * 3) if pair.listener in split.query else pair
        for pair in measurements.pairs
    )
    estimates = replace(measurements.estimates, primary=measurements.estimates.primary.clone())
    estimates.primary[measurements.indices(split.query)] += 1
    changed = replace(measurements, pairs=changed_pairs, estimates=estimates)
    before, after = (item.training_set(split.support, config, CPU) for item in (measurements, changed))
    assert torch.equal(before.primary_estimates, after.primary_estimates)
    assert torch.equal(before.true.primary, after.true.primary)
    assert before.mixtures == after.mixtures
    touched = measurements.indices(split.support)
    assert before.true.primary.shape[0] == len(touched) == 4


def test_one_cycle_warms_up_and_ends_near_zero():
    config = load_config("prime-log", n_updates=1000)
    rates = [learning_rate(config, update) for update in range(1000)]
    assert max(rates) == pytest.approx(config.learning_rate)
    assert rates[0] == pytest.approx(config.learning_rate / 100)
    assert rates[-1] < 1e-4 * config.learning_rate
    assert np.all(np.diff(rates[100:]) <= 0)


def test_resumed_training_equals_unbroken_one(measurements, split, tmp_path, monkeypatch):
    """Killed after update 5, it goes on from update 4 and ends bit for bit the same; another seed is refused."""
    monkeypatch.setattr(trainer_module, "STATE_EVERY_UPDATES", 2)
    state_file, whole, parts = (tmp_path / name for name in ("state.pt", "whole.csv", "parts.csv"))
    unbroken = trainer_for(measurements, split, n_updates=8).train(loss_record(whole, "small/0"))
    killed = trainer_for(measurements, split, state_file, n_updates=8)
    train_until(5, killed, monkeypatch, loss_record(parts, "small/0"))
    with pytest.raises(ValueError, match="found the state of small, seed 1, expected small, seed 7"):
        trainer_for(measurements, split, state_file, seed=7)
    resumed = trainer_for(measurements, split, state_file, n_updates=8)
    assert resumed.update == 4
    found, expected = (item.state_dict() for item in (resumed.train(loss_record(parts, "small/0")), unbroken))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    losses = pd.read_csv(whole)
    assert losses.columns.tolist() == ["update", "loss"]
    assert losses["update"].tolist() == list(range(1, 9))
    assert parts.read_text() == whole.read_text()
