"""`python -m benchmarks core`: a design from arrays to arrays, without HTTP.

Contenders take turns on the same ears, in a random order per round, so that disturbances hit all alike. They first
design all ears once, which warms them up and yields the noise reduction printed beside the times. `solve_toeplitz` is
SciPy's solution of the WMMSE equations in float64: how fast the machine is.
"""

from __future__ import annotations

import argparse
import gc
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import solve_toeplitz

from benchmarks import ears as ears_module
from benchmarks import machine, results
from benchmarks.ears import Ears
from model_store.store import ModelStore
from prime_anc.method.conventions import CORE_STAGES
from prime_anc.method.design import design_all
from prime_anc.method.errors import answer_or_raise
from prime_anc.method.types import DesignOptions, Model, ModelParameters

N_UPDATES = (0, 1, 3)
SOLVER = "solve_toeplitz"
N_TAPS, N_FFT = 2048, 32_768
WARM_UP_ROUNDS = 5
# Factor by which a large batch is timed in fewer rounds.
LARGE_BATCH_SHARE = 5

# One measurement in ms, given the number of the round.
Turn = Callable[[int], float]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    machine.add_options(parser)
    ears_module.add_options(parser)
    add_model_options(parser)
    parser.add_argument("--rounds", type=int, default=200, help="turns per contender with one ear")
    parser.add_argument("--prime", action="store_true", help="time the paper's larger generator, untrained, too")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the published model."""
    parser.add_argument("--model", default="bose-qc20", help="published model")
    parser.add_argument("--store", type=Path, help="folder of published models (default: the bundled ones)")


def store_of(options: argparse.Namespace) -> ModelStore:
    """Return the store of these options."""
    return ModelStore(options.store) if options.store else ModelStore()


def run(options: argparse.Namespace) -> int:
    """Measure, print and write core.json."""
    device = machine.choose_device(options)
    described = machine.describe(device)
    n_rounds = 2 if options.quick else options.rounds
    ears = ears_module.load(options)
    parameters = store_of(options).load(options.model).parameters
    models = {device: Model.on(device, parameters)}
    if options.prime:
        models[f"{device}, prime untrained"] = Model.on(device, untrained(parameters))
    designers = {
        (name, k): (model, DesignOptions(n_updates=k)) for name, model in models.items() for k in N_UPDATES
    }
    reduction_db = {key: ears.reduction_db(*item) for key, item in designers.items()}
    turns: dict[Any, Turn] = {key: partial(design_ms, *item, ears, 1) for key, item in designers.items()}
    turns[SOLVER, 0] = solver(ears)
    take_turns(turns, 1 if options.quick else WARM_UP_ROUNDS)
    parts = [summary(take_turns(turns, n_rounds), 1)]
    for name, model in models.items():
        if not model.backend.is_thread_safe:  # without threads, concurrent requests become batches
            n = model.backend.max_batch
            chosen = {key: item for key, item in designers.items() if key[0] == name}
            turns = {key: partial(design_ms, *item, ears, n) for key, item in chosen.items()}
            take_turns(turns, 1)
            parts.append(summary(take_turns(turns, max(2, n_rounds // LARGE_BATCH_SHARE)), n))
    table = pd.concat(parts).join(pd.Series(reduction_db, name="noise_reduction_db").rename_axis(["designer", "k"]))
    table["over_solver"] = table.p50_ms / table.p50_ms[SOLVER, 0]
    print(table.to_string(float_format="%.3f"))
    settings = {"rounds": n_rounds, "model": str(store_of(options).resolve(options.model))}
    results.write(options, "core", described, settings, table.reset_index(), data=ears.data)
    return 0


def take_turns(turns: Mapping[Any, Turn], n_rounds: int) -> pd.DataFrame:
    """Call every contender once per round, in random order; return times in ms, a column per contender.

    The garbage collector runs between rounds only.
    """
    draw, rounds = random.Random(0), []
    gc.collect()
    gc.disable()
    try:
        for number in range(n_rounds):
            rounds.append({key: turns[key](number) for key in draw.sample(list(turns), len(turns))})
            gc.collect(0)
    finally:
        gc.enable()
    return pd.DataFrame(rounds, columns=pd.MultiIndex.from_tuples(turns, names=["designer", "k"]))


def summary(times_ms: pd.DataFrame, batch: int) -> pd.DataFrame:
    """Return median and p99 per contender, and designs per second."""
    table = times_ms.quantile([0.5, 0.99]).T.set_axis(["p50_ms", "p99_ms"], axis=1)
    return table.assign(batch=batch, designs_per_s=1e3 * batch / table.p50_ms)


def design_ms(model: Model, options: DesignOptions, ears: Ears, batch: int, number: int) -> float:
    """Return the time from resident spectra to the filters of a batch, without socket and queue."""
    designs = [answer_or_raise(item) for item in design_all(ears.batch(number, batch), options, model)]
    times_ms = designs[0].times_ms
    return sum(times_ms.get(stage, 0.0) for stage in CORE_STAGES)


def solver(ears: Ears) -> Turn:
    """Return a solution by Levinson's recursion, O(n_taps^2), without whitening and with 1e-4 of white noise added."""
    (paths,) = ears.estimated[0].conditions
    primary, secondary = (np.fft.rfft(path.real, N_FFT) for path in (paths.primary, paths.secondary))
    column = np.fft.irfft(np.abs(secondary) ** 2, N_FFT)[:N_TAPS]
    column[0] *= 1 + 1e-4
    rhs = np.fft.irfft(secondary.conj() * primary, N_FFT)[:N_TAPS]

    def solve(_: int) -> float:
        began = perf_counter()
        solve_toeplitz(column, rhs)
        return 1e3 * (perf_counter() - began)

    return solve


def untrained(parameters: ModelParameters) -> ModelParameters:
    """Return the model with the paper's generator at initial weights, for its times, not its filters."""
    from prime_anc.method.start.features import GeneratorConfig
    from prime_anc.method.start.generator import Generator

    config = GeneratorConfig.prime()
    weights = {name: item.numpy() for name, item in Generator(config).state_dict().items()}
    return replace(parameters, config=config, weights=weights)
