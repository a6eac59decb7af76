"""`python -m benchmarks train`: updates per second and time per model.

A short run is extrapolated to the configuration's number of updates and labelled so; `--full` trains whole models.
"""

from __future__ import annotations

import argparse
import time

import torch

from benchmarks import ears as ears_module
from benchmarks import machine, results
from benchmarks.results import Row
from training.config import load_config
from training.data import make_splits
from training.measurements import Measurements
from training.methods import RECIPES, objective
from training.trainer import GeneratorNetwork, Trainer

N_LISTENERS = 15
WARM_UP_UPDATES = 5


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    machine.add_options(parser)
    ears_module.add_options(parser)
    parser.add_argument("--generator", choices=tuple(RECIPES), default="prime-log")
    parser.add_argument("--updates", type=int, default=100, help="timed updates")
    parser.add_argument("--full", action="store_true", help="train whole models instead of extrapolating")


def run(options: argparse.Namespace) -> None:
    """Calibrate, prepare one split's training set, train, write train.json."""
    name = machine.choose_device(options)
    described = machine.describe(name)
    device = torch.device(name)
    measurements = ears_module.measure(options, 4 if options.quick else N_LISTENERS)
    row = train(measurements, options, device)
    print(
        f"{row['generator']}: {row['updates_per_s']:.2f} updates/s, {row['seconds_per_model']:.1f} s a model"
        f"{' (extrapolated)' if row['extrapolated'] else ''}, after {row['prepare_s']:.1f} s of preparation",
        flush=True,
    )
    data = {
        "dataset": measurements.dataset.name,
        "measured": not measurements.dataset.is_simulated,
        "fingerprint": measurements.dataset.fingerprint,
        "n_listeners": len(measurements.dataset.listeners),
    }
    benchmark = "train" if options.generator == "prime-log" else f"train-{options.generator}"
    settings = {"full": options.full, "threads": torch.get_num_threads()}
    file = results.folder_for(options.out, described) / f"{benchmark}.json"
    results.write(file, benchmark, described, settings, [row], data=data)


def train(measurements: Measurements, options: argparse.Namespace, device: torch.device) -> Row:
    """Measure the rate of a model of the first split."""
    recipe = RECIPES[options.generator]
    config = load_config(
        recipe.kind, interpolation=recipe.interpolation, n_calibrations=2 if options.quick else None
    )
    split = make_splits(measurements.dataset.listeners, 1, None, 0, measurements.dataset.name)[0]
    began = time.perf_counter()
    training_set = measurements.training_set(split.support, config, device)
    layout = recipe.layout(measurements.dataset.n_fft)
    loss_of = objective(config, measurements, device)
    trainer = Trainer(options.generator, lambda: GeneratorNetwork(layout), training_set, loss_of, config, seed=0)
    prepared = time.perf_counter()
    for _ in range(WARM_UP_UPDATES):
        trainer.train_step()
    requested = 3 if options.quick else options.updates
    n_updates = config.n_updates - WARM_UP_UPDATES if options.full else requested
    started = time.perf_counter()
    for _ in range(n_updates):
        loss = trainer.train_step()
    rate = n_updates / (time.perf_counter() - started)
    return {
        "generator": options.generator,
        "timed_updates": n_updates,
        "recipe_updates": config.n_updates,
        "batch_size": config.batch_size,
        "precision": config.precision,
        "updates_per_s": rate,
        "seconds_per_model": config.n_updates / rate,
        "extrapolated": not options.full,
        "prepare_s": prepared - began,
        "loss": loss,
    }
