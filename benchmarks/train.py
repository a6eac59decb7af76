"""`python -m benchmarks train`: updates per second and time per model.

A short run is extrapolated to the configuration's number of updates.
"""

from __future__ import annotations

import argparse
import time

import pandas as pd
import torch

from benchmarks import ears, machine, results
from training.config import load_config
from training.data import make_splits
from training.support import RECIPES, objective
from training.trainer import GeneratorNetwork, Trainer

N_LISTENERS = 15
WARM_UP_UPDATES = 5


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    machine.add_options(parser)
    ears.add_options(parser)
    parser.add_argument("--generator", choices=tuple(RECIPES), default="prime-log")
    parser.add_argument("--updates", type=int, default=100, help="timed updates")


def run(options: argparse.Namespace) -> int:
    """Calibrate, prepare one split's training set, train, write train.json."""
    name, recipe = machine.choose_device(options), RECIPES[options.generator]
    described, device = machine.describe(name), torch.device(name)
    measurements = ears.measure(options, 2 if options.quick else N_LISTENERS)
    n_calibrations = 2 if options.quick else None
    config = load_config(recipe.kind, interpolation=recipe.interpolation, n_calibrations=n_calibrations)
    split = make_splits(measurements.dataset.listeners, 1, None, 0, measurements.dataset.name)[0]
    cases = measurements.training_set(split.support, config, device)
    layout = recipe.layout(measurements.dataset.n_fft)
    loss = objective(config, measurements, device)
    trainer = Trainer(options.generator, lambda: GeneratorNetwork(layout), cases, loss, config, seed=0)
    for _ in range(WARM_UP_UPDATES):
        trainer.train_step()
    n_updates = 3 if options.quick else options.updates
    began = time.perf_counter()
    for _ in range(n_updates):
        trainer.train_step()
    rate = n_updates / (time.perf_counter() - began)
    row = {"generator": options.generator, "timed_updates": n_updates, "recipe_updates": config.n_updates}
    row |= {"precision": config.precision, "updates_per_s": rate, "seconds_per_model": config.n_updates / rate}
    print(f"{options.generator}: {rate:.2f} updates/s, {row['seconds_per_model']:.1f} s a model", flush=True)
    settings = {"threads": torch.get_num_threads()}
    file = "train" if recipe.kind == "prime-log" else "train-prime"
    results.write(options, file, described, settings, pd.DataFrame([row]), data=ears.provenance(measurements))
    return 0
