"""`python -m benchmarks scaling`: cost against the number of taps, the batch and the number of updates.

Batch and updates: whole designs by the backend. Taps: the product has 2048, so one update of the reference
implementation in torch represents other lengths, beside `scipy.linalg.solve_toeplitz` of equal size.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np
import torch
from scipy.linalg import solve_toeplitz

from benchmarks import ears as ears_module
from benchmarks import machine, results
from benchmarks.core import add_model_options
from benchmarks.designers import BackendDesigner
from benchmarks.ears import Ears
from benchmarks.results import Row
from benchmarks.timing import Times, Turn, summary, take_turns
from model_store.store import ModelStore
from synthesis.model import Model
from synthesis.paths import AcousticPaths
from synthesis.profiles import FAST, MAX_UPDATES
from synthesis.update import refine

N_TAPS = (512, 1024, 2048, 4096, 8192)
BATCHES = (1, 2, 4, 8, 16, 32)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    machine.add_options(parser)
    ears_module.add_options(parser)
    add_model_options(parser)
    parser.add_argument("--rounds", type=int, default=40)


def run(options: argparse.Namespace) -> None:
    """Measure one axis after the other, the points of an axis in turns; write scaling.json."""
    device = machine.choose_device(options)
    described = machine.describe(device)
    n_rounds = 2 if options.quick else options.rounds
    ears = ears_module.load(options)
    store = ModelStore(options.store) if options.store else ModelStore()
    model = Model.on(device, store.load(options.model).parameters)

    def chosen(values: Sequence[int]) -> Sequence[int]:
        return values[:: len(values) - 1] if options.quick and len(values) > 1 else values

    batches = BATCHES[:1] if model.backend.is_thread_safe else BATCHES  # a thread-safe backend designs sequentially
    axes: Mapping[tuple[str, str], Mapping[int, Turn]] = {
        ("taps", "reference"): {n: one_update(ears, n) for n in chosen(N_TAPS)},
        ("taps", "solve_toeplitz"): {n: solve(n) for n in chosen(N_TAPS)},
        ("batch", model.backend.name): {n: BackendDesigner(model, ears, 1, n) for n in chosen(batches)},
        ("updates", model.backend.name): {
            k: BackendDesigner(model, ears, k) for k in chosen(range(MAX_UPDATES + 1))
        },
    }
    rows: list[Row] = []
    for (axis, by), turns in axes.items():
        for turn in turns.values():
            turn(0)
        taken = take_turns({str(n): turn for n, turn in turns.items()}, n_rounds)
        for n in turns:
            rows.append({"axis": axis, "value": n, "by": by, "ms": summary(taken[str(n)]["core"])})
            print(
                f"{axis:8} {n:6d} {by:14} {rows[-1]['ms']['p50']:9.3f} / {rows[-1]['ms']['p99']:.3f} ms", flush=True
            )
    settings = {"rounds": n_rounds, "model": str(store.resolve(options.model))}
    file = results.folder_for(options.out, described) / "scaling.json"
    results.write(file, "scaling", described, settings, rows, data=ears.data)


def one_update(ears: Ears, n_taps: int) -> Turn:
    """Make one Gauss-Newton update of the first ear's filter with a number of taps, by torch on the CPU.

    The grid is that of the `fast` profile, or twice the taps if larger.
    """
    n_fft = max(FAST.n_fft, 2 * n_taps)
    primary, secondary = (torch.from_numpy(pair[None, :n_fft]) for pair in ears.pairs[0])
    paths = AcousticPaths.from_impulse_responses(primary, secondary, n_fft).to(torch.float32)
    psd = torch.full((n_fft // 2 + 1,), 1 / n_fft)
    start, profile = torch.zeros(1, n_taps), replace(FAST, n_fft=n_fft)

    @torch.inference_mode()
    def turn(number: int) -> Times:
        began = perf_counter()
        refine(paths, start, psd, n_updates=1, profile=profile)
        return {"core": 1e3 * (perf_counter() - began)}

    return turn


def solve(n_taps: int) -> Turn:
    """Solve a Toeplitz system of a size by Levinson's recursion; its time does not depend on the numbers."""
    column, rhs = 0.5 ** np.arange(n_taps), np.ones(n_taps)

    def turn(number: int) -> Times:
        began = perf_counter()
        solve_toeplitz(column, rhs)
        return {"core": 1e3 * (perf_counter() - began)}

    return turn
