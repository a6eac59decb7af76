"""Training: a resumed run equals an unbroken one, the loss falls, only support cases are touched."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from synthesis.generator_config import GeneratorConfig
from training import trainer as trainer_module
from training.config import load_config
from training.data import make_splits
from training.objective import FrequencyDomainObjective
from training.trainer import GroupTrainer, learning_rate

CPU = torch.device("cpu")
SMALL = GeneratorConfig.prime_log(n_channels=8, dilations=(1, 2), n_points=32)


@pytest.fixture(scope="module")
def split(measurements):
    return make_splits(measurements.dataset.listeners, 1, 2, dataset="simulated")[0]


def alone(config, generator_config, training_set, objective, *, seed, device=CPU, state_file=None):
    """A group of one."""
    return GroupTrainer(
        config, generator_config, [training_set], objective, seeds=[seed], device=device, state_file=state_file
    )


def trainer_for(measurements, split, state_file=None, **changes):
    config = load_config("prime-log", n_updates=30, n_calibrations=2).model_copy(update=changes)
    objective = FrequencyDomainObjective(config.objective, measurements.reference_psd.float())
    training_set = measurements.training_set(split.support, config, CPU)
    return alone(config, SMALL, training_set, objective, seed=1, state_file=state_file)


def weights(generator):
    return {name: value.clone() for name, value in generator.state_dict().items()}


def train_until(update, trainer, monkeypatch):
    """Train as a process that is killed after so many updates."""
    step = trainer.train_step

    def dying_step():
        if trainer.update == update:
            raise KeyboardInterrupt
        return step()

    monkeypatch.setattr(trainer, "train_step", dying_step)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()


def test_loss_that_is_not_finite_stops_training(measurements, split):
    trainer = trainer_for(measurements, split)
    with torch.no_grad():
        trainer.group.generators[0].head[0].weight.fill_(torch.nan)
    with pytest.raises(FloatingPointError, match="update 0: the loss is nan"):
        trainer.train_step()


def test_query_listeners_do_not_reach_training(measurements, split):
    """Other query paths, another query estimate: the same training set, bit for bit."""
    config = load_config("prime-log")
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


# Of three models: four cases, six, and two without any mixture.
SUPPORTS = (slice(0, 2), slice(0, 3), slice(1, 2))

# A group norm over one channel takes a convolution's bias away and leaves it a gradient of mere rounding errors, which
# Adam scales up; with two channels in each there is no such weight.
TWO_IN_A_NORM = GeneratorConfig.prime_log(n_channels=16, dilations=(1, 2), n_points=32)


def group_parts(measurements, device=CPU, n_updates=4):
    """Configuration, objective and the three models' training sets."""
    config = load_config("prime-log", n_updates=n_updates, n_calibrations=2)
    objective = FrequencyDomainObjective(config.objective, measurements.reference_psd.float().to(device))
    listeners = measurements.dataset.listeners
    sets = [
        measurements.training_set(listeners[support], config, device, seed=number)
        for number, support in enumerate(SUPPORTS)
    ]
    return config, objective, sets


def test_group_trains_as_models_would_alone(measurements, device):
    """Three models of unequal supports and seeds against three trainings.

    In float32 a batched product sums in another order than a convolution, and Adam turns the sign of a gradient of
    mere rounding errors into a whole step: of a tensor's weights a few in a thousand may go their own way. That all
    others end within a hundredth of the 2e-3 that four updates move them by shows that both met the same cases,
    alphas and calibrations; with other ones no tensor comes near.
    """
    config, objective, sets = group_parts(measurements, device)
    seeds = (5, 3, 5)
    group = GroupTrainer(config, TWO_IN_A_NORM, sets, objective, seeds=seeds, device=device)
    assert [item.n_cases for item in sets] == [4, 6, 2]
    assert not sets[2].mixtures
    together = [weights(item) for item in group.train()]
    for found, training_set, seed in zip(together, sets, seeds, strict=True):
        trainer = alone(config, TWO_IN_A_NORM, training_set, objective, seed=seed, device=device)
        start = weights(trainer.group.generators[0])
        by_itself = weights(*trainer.train())
        for name, expected in by_itself.items():
            moved, apart = expected - start[name], found[name] - expected
            assert moved.abs().max() > 1e-4
            # Measured: up to 0.3 % of the weights, 0.03 of the norm.
            assert (apart.abs() > 1e-2 * moved.abs().max()).sum() <= max(1, 0.01 * apart.numel()), name
            assert apart.norm() < 0.1 * moved.norm(), name


def test_group_resumed_after_kill_equals_unbroken_one(measurements, tmp_path, monkeypatch):
    """Killed after update 5, it goes on from update 4 and ends bit for bit the same; other seeds are refused."""
    monkeypatch.setattr(trainer_module, "STATE_EVERY_UPDATES", 2)
    monkeypatch.setattr(trainer_module, "DRAWN_AHEAD_UPDATES", 3)
    config, objective, sets = group_parts(measurements, n_updates=8)

    def trainer(seeds=(0, 1, 2), state_file=None):
        return GroupTrainer(config, TWO_IN_A_NORM, sets, objective, seeds=seeds, device=CPU, state_file=state_file)

    unbroken = trainer().train()

    train_until(5, trainer(state_file=tmp_path / "state.pt"), monkeypatch)
    with pytest.raises(ValueError, match=r"state of seeds \[0, 1, 2\], not of \[0, 1, 7\]"):
        trainer(seeds=(0, 1, 7), state_file=tmp_path / "state.pt")
    resumed = trainer(state_file=tmp_path / "state.pt")
    assert resumed.update == 4
    for found, expected in zip(resumed.train(), unbroken, strict=True):
        found, expected = weights(found), weights(expected)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
