"""Training: a resumed run equals an unbroken one, the loss falls, only support cases are touched."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from synthesis.generator import GeneratorConfig
from training import trainer as trainer_module
from training.config import load_config
from training.datasets.noise import simulated_noise
from training.datasets.simulated import simulate_listeners
from training.datasets.splits import make_splits
from training.measurements import Measurements
from training.objective import FrequencyDomainObjective, TimeDomainObjective, TruePaths
from training.trainer import Trainer, learning_rate

CPU = torch.device("cpu")
SMALL = GeneratorConfig.prime_log(n_channels=8, dilations=(1, 2), n_points=32)


@pytest.fixture(scope="module")
def measurements():
    return Measurements.calibrate(simulate_listeners(3, 0), simulated_noise(0), window=8192, conditions="original")


@pytest.fixture(scope="module")
def split(measurements):
    return make_splits(measurements.dataset.listeners, 1, 2, dataset="simulated")[0]


def trainer_for(measurements, split, state_file=None, **changes):
    config = load_config("prime-log", n_updates=30, n_calibrations=2).model_copy(update=changes)
    objective = FrequencyDomainObjective(config.objective, measurements.reference_psd.float())
    training_set = measurements.training_set(split.support, config, CPU)
    return Trainer(config, SMALL, training_set, objective, seed=1, device=CPU, state_file=state_file)


def weights(generator):
    return {name: value.clone() for name, value in generator.state_dict().items()}


def test_a_resumed_training_equals_an_unbroken_one(measurements, split, tmp_path, monkeypatch):
    """Killed after update 17, the next process starts from update 10's state and ends bit for bit the same."""
    monkeypatch.setattr(trainer_module, "STATE_EVERY_UPDATES", 10)
    unbroken = weights(trainer_for(measurements, split).train())

    class Killed(Exception):
        pass

    broken = trainer_for(measurements, split, tmp_path / "state.pt")
    step = broken.train_step

    def dying_step():
        if broken.update == 17:
            raise Killed
        return step()

    monkeypatch.setattr(broken, "train_step", dying_step)
    with pytest.raises(Killed):
        broken.train()
    resumed = trainer_for(measurements, split, tmp_path / "state.pt")
    assert resumed.update == 10
    finished = weights(resumed.train())
    assert finished.keys() == unbroken.keys()
    assert all(torch.equal(finished[name], unbroken[name]) for name in unbroken)


def test_training_lowers_the_loss(measurements, split):
    trainer = trainer_for(measurements, split)
    losses = [trainer.train_step().item() for _ in range(30)]
    assert np.mean(losses[-8:]) < np.mean(losses[:4]) - 1.0


def test_seeds_differ_and_repeat(measurements, split):
    config = load_config("prime-log", n_updates=2)
    objective = FrequencyDomainObjective(config.objective, measurements.reference_psd.float())
    training_set = measurements.training_set(split.support, config, CPU)
    first, again, other = (
        weights(Trainer(config, SMALL, training_set, objective, seed=seed, device=CPU).train())
        for seed in (3, 3, 4)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_a_loss_that_is_not_finite_stops_the_training(measurements, split):
    trainer = trainer_for(measurements, split)
    with torch.no_grad():
        trainer.generator.head[0].weight.fill_(torch.nan)
    with pytest.raises(FloatingPointError, match="update 0: found a loss of nan"):
        trainer.train_step()


def test_query_listeners_do_not_reach_the_training(measurements, split):
    """Other query paths, another query estimate: the same training set, bit for bit."""
    config = load_config("prime-log")
    changed_pairs = tuple(
        replace(pair, primary=pair.primary * 3) if pair.listener in split.query else pair
        for pair in measurements.pairs
    )
    estimates = replace(measurements.estimates, primary=measurements.estimates.primary.clone())
    estimates.primary[measurements.indices(split.query)] += 1
    changed = replace(measurements, pairs=changed_pairs, estimates=estimates)
    before, after = (each.training_set(split.support, config, CPU) for each in (measurements, changed))
    assert torch.equal(before.primary_estimates, after.primary_estimates)
    assert torch.equal(before.true.primary, after.true.primary)
    assert before.mixtures == after.mixtures
    touched = measurements.indices(split.support)
    assert before.true.primary.shape[0] == len(touched) == 4


def test_the_generator_sees_estimates_and_the_objective_true_paths(measurements, split):
    """Other true support paths: the same filters, another loss."""
    trainer = trainer_for(measurements, split)
    rng = np.random.default_rng(0)
    primary, secondary, true = trainer.training_set.draw(4, 0.75, rng)
    own = trainer.training_set.true
    altered = replace(trainer.training_set, true=TruePaths(2 * own.primary, own.secondary))
    again = altered.draw(4, 0.75, np.random.default_rng(0))
    assert torch.equal(primary, again[0])
    assert torch.equal(secondary, again[1])
    assert not torch.equal(true.primary, again[2].primary)


def test_a_mixture_shares_its_alpha_between_estimates_and_true_paths(measurements, split):
    training_set = measurements.training_set(split.support, load_config("prime-log", n_calibrations=1), CPU)
    mixture = training_set.mixtures[0]
    only = replace(training_set, mixtures=(mixture,))
    primary, secondary, true = only.draw(1, 1.0, np.random.default_rng(0))
    for found, source in (
        (primary, training_set.primary_estimates[0]),
        (secondary, training_set.secondary_estimates[0]),
        (true.primary, training_set.true.primary),
        (true.secondary, training_set.true.secondary),
    ):
        torch.testing.assert_close(found[0], mixture.of(list(source)), rtol=1e-5, atol=1e-7)


def test_varied_calibrations_differ_and_start_with_the_protocols_own(measurements, split):
    config = load_config("prime-log").model_copy(update={"n_calibrations": 3})
    estimates = measurements.training_set(split.support, config, CPU).primary_estimates
    assert estimates.shape[0] == 3
    own = measurements.estimates.primary[measurements.indices(split.support)].float()
    assert torch.equal(estimates[0], own)
    assert not torch.equal(estimates[1], estimates[0])
    assert not torch.equal(estimates[2], estimates[1])


def test_one_cycle_warms_up_and_ends_near_zero():
    config = load_config("prime-log", n_updates=1000)
    rates = [learning_rate(config, update) for update in range(1000)]
    assert max(rates) == pytest.approx(config.learning_rate)
    assert rates[0] == pytest.approx(config.learning_rate / 100)
    assert rates[-1] < 1e-4 * config.learning_rate
    assert np.all(np.diff(rates[100:]) <= 0)


def test_the_papers_objective_trains_the_papers_generator_in_bfloat16(measurements, split):
    """One real update of `prime` on clips: finite loss, and every weight but the unreached ones moves."""
    config = load_config("prime", n_updates=2)
    objective = TimeDomainObjective(config.objective, measurements.noise, CPU)
    training_set = measurements.training_set(split.support, config, CPU)
    trainer = Trainer(config, GeneratorConfig.prime(8192), training_set, objective, seed=0, device=CPU)
    before = weights(trainer.generator)
    for _ in range(2):
        assert torch.isfinite(trainer.train_step())
    assert all(not torch.equal(before[name], value) for name, value in trainer.generator.state_dict().items())
