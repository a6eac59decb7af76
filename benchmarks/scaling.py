"""`python -m benchmarks scaling`: cost against taps, grid, batch and number of updates.

Served: whole designs as requests get them, through `service.engine`, with the freedom that these have: batch,
number of updates, and the grid of the updates by their profile. Reference: what is served has 2048 taps and two
grids, so one update of the reference implementation, recorded as the service records it (captured on a GPU), stands
for other lengths and grids, with scipy's `solve_toeplitz` of as many taps beside it. Every row says which it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.linalg import solve_toeplitz

from benchmarks import ears as ears_module
from benchmarks import machine, results
from benchmarks.core import add_model_options
from benchmarks.designers import ServiceDesigner, core_ms, resident
from benchmarks.ears import Ears
from benchmarks.results import Row
from benchmarks.timing import Turn, summary, take_turns
from model_store.store import ModelStore
from service.designs import Recipe
from service.engine.resident import BATCH_SIZES
from service.engine.stage_clock import StageClock
from synthesis.conventions import N_TAPS
from synthesis.cuda_graph import GraphedStage
from synthesis.gauss_newton import FAST, FINE, MAX_UPDATES, refine
from synthesis.paths import AcousticPaths
from synthesis.wiener import toeplitz_system, wmmse_weights

TAPS = (512, 1024, 2048, 4096, 8192)
GRIDS = (8192, 16_384, 32_768)
SERVED_GRIDS = {FAST.n_fft: FAST.name, FINE.n_fft: FINE.name}
SERVED, REFERENCE, SCIPY = "served", "reference", "scipy"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's own."""
    machine.add_options(parser)
    ears_module.add_options(parser)
    add_model_options(parser)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument(
        "--quick", action="store_true", help="few rounds, both ends of each axis: to see that it runs"
    )


def run(options: argparse.Namespace) -> None:
    """Measure the four axes one after the other, all points of an axis in turns; write scaling.json."""
    device = machine.prepare(options)
    described = machine.describe(device)
    n_rounds = 2 if options.quick else options.rounds
    ears = ears_module.chosen(options)
    model = resident(ModelStore(options.store), options.model, device)

    def chosen(values: Sequence[int]) -> Sequence[int]:
        return values[:: len(values) - 1] if options.quick else values

    def service(batch: int, n_updates: int, profile: str = FAST.name) -> Turn:
        return whole_design(ServiceDesigner(model, ears, Recipe(None, "prime", n_updates, profile)), ears, batch)

    axes: Mapping[tuple[str, str], Mapping[int, Turn]] = {
        ("taps", REFERENCE): {n: one_update(ears, device, n, grid_for(n)) for n in chosen(TAPS)},
        ("taps", SCIPY): {n: solve(ears, n) for n in chosen(TAPS)},
        ("grid", SERVED): {n: service(1, 1, profile) for n, profile in SERVED_GRIDS.items()},
        ("grid", REFERENCE): {n: one_update(ears, device, N_TAPS, n) for n in chosen(GRIDS)},
        ("batch", SERVED): {n: service(n, 1) for n in chosen(BATCH_SIZES)},
        ("updates", SERVED): {n: service(1, n) for n in chosen(range(MAX_UPDATES + 1))},
    }
    rows: list[Row] = []
    for (axis, by), turns in axes.items():
        for turn in turns.values():
            turn(0)
        taken = take_turns({str(n): turn for n, turn in turns.items()}, n_rounds)
        for n in turns:
            for what, spent in taken[str(n)].items():
                row: Row = {"axis": axis, "value": n, "by": by, "what": what, "ms": summary(spent)}
                rows.append(results.rounded(row))
                print(
                    f"{axis:8} {n:6d} {by:10} {what:16} {row['ms']['p50']:9.3f} / {row['ms']['p99']:.3f} ms",
                    flush=True,
                )
    settings = {
        "rounds": n_rounds,
        "model": str(model.version),
        "grids_of_taps": {str(n): grid_for(n) for n in chosen(TAPS)},
        "served_grids": {str(n): profile for n, profile in SERVED_GRIDS.items()},
    }
    results.write(options.out, "scaling", described, settings, rows, data=ears.data)


def grid_for(n_taps: int) -> int:
    """The served grid, or twice the taps where that is more: the least that their Toeplitz matrix needs."""
    return max(FAST.n_fft, 2 * n_taps)


def one_update(ears: Ears, device: torch.device, n_taps: int, n_fft: int) -> Turn:
    """One Gauss-Newton update of the `fast` profile of the first ear's filter of that many taps, on that grid."""
    n_samples = min(n_fft, ears.primary.shape[-1])
    primary, secondary = (torch.from_numpy(each[:1, :n_samples]) for each in (ears.primary, ears.secondary))
    paths = AcousticPaths.from_impulse_responses(primary, secondary, n_fft).to(torch.float32, device)
    psd = torch.from_numpy(regridded(ears.reference_psd.numpy(), n_fft)).float().to(device)
    start = torch.zeros(1, n_taps, device=device)
    profile = replace(FAST, n_fft=n_fft)

    def update(primary: torch.Tensor, secondary: torch.Tensor, taps: torch.Tensor) -> tuple[torch.Tensor, ...]:
        refined = refine(AcousticPaths(primary, secondary), taps, psd, n_updates=1, profile=profile)
        return refined.taps, refined.objective

    stage = GraphedStage(
        update, (paths.primary, paths.secondary, start), capture=device.type == "cuda", share_inputs=True
    )
    clock = StageClock(device)

    def turn(number: int) -> dict[str, float]:
        clock.start()
        stage.run()
        clock.mark("one update")
        return clock.times_ms()

    return turn


def regridded(psd: np.ndarray, n_fft: int) -> np.ndarray:
    """A mean square per bin on another grid: the same density, interpolated."""
    own = np.linspace(0, 1, len(psd))
    wanted = np.linspace(0, 1, n_fft // 2 + 1)
    return np.interp(wanted, own, psd) * (len(psd) - 1) / (len(wanted) - 1)


def solve(ears: Ears, n_taps: int) -> Turn:
    """Levinson's recursion of the first ear's WMMSE equations."""
    paths = AcousticPaths(ears.estimated.primary[:1], ears.estimated.secondary[:1])
    column, rhs = (each[0].numpy() for each in toeplitz_system(paths, wmmse_weights(ears.reference_psd), n_taps))
    clock = StageClock(torch.device("cpu"))

    def turn(number: int) -> dict[str, float]:
        clock.start()
        solve_toeplitz(column, rhs)
        clock.mark("solve_toeplitz")
        return clock.times_ms()

    return turn


def whole_design(designer: ServiceDesigner, ears: Ears, batch: int) -> Turn:
    """The service's core time for a batch, and of that the refinement's."""

    def turn(number: int) -> dict[str, float]:
        _, times = designer(ears.batch(number, batch))
        return {"core": core_ms(times), "refine": times["refine"]}

    return turn
