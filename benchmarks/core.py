"""`python -m benchmarks core`: the stages and the whole of a design, beside others who design the same ears.

All designers take turns, round after round, on the same ears, so that whatever disturbs the machine disturbs all of
them. Before that each designs every ear once, which warms it up and gives the noise reduction beside its times.
In turns every designer finds the caches as its rivals left them; so the service's own and SciPy's solver are timed
alone too, one after the other, each on caches that hold nothing but its own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks import ears as ears_module
from benchmarks import machine, results
from benchmarks.designers import (
    AdafiltDesigner,
    Designer,
    PaperDesigner,
    ServiceDesigner,
    ToeplitzSolver,
    core_ms,
    resident,
    untrained,
)
from benchmarks.ears import Ears
from benchmarks.paper_refinement import Settings
from benchmarks.results import Row
from benchmarks.timing import Times, Turn, summaries, summary, take_turns
from model_store.store import DEFAULT_ROOT, ModelStore
from service.designs import Design, Ear, Recipe
from service.engine.resident import BATCH_SIZES, ResidentModel
from service.formats import wire
from synthesis.gauss_newton import FAST
from synthesis.generator import GeneratorConfig

UPDATES = (0, 1, 3)
YARDSTICK = "k=1"
"""Every core time is also given as a multiple of the service's own with one update."""
EQUAL_RESIDUAL_ITERATIONS = (16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512, 768, 1024)
SOLVER = "solve_toeplitz"
WARM_UP_ROUNDS = 5
"""Of a designer that is timed alone, before its rounds."""
SLOW_ROUNDS_SHARE = 5
"""Rounds of a batch, and of the refinement to equal residual, are fewer by this factor."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's own."""
    machine.add_options(parser)
    ears_module.add_options(parser)
    add_model_options(parser)
    parser.add_argument("--rounds", type=int, default=200, help="turns of each designer at batch 1")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, BATCH_SIZES[-1]])
    parser.add_argument("--quick", action="store_true", help="few rounds, few ears: to see that it runs")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Which published model is measured."""
    parser.add_argument("--model", default="default", help="published model to measure")
    parser.add_argument("--store", type=Path, default=DEFAULT_ROOT, help="folder of published models")


def run(options: argparse.Namespace) -> None:
    """Measure, print, write core.json."""
    device = machine.prepare(options)
    described = machine.describe(device)
    n_rounds = 2 if options.quick else options.rounds
    ears = ears_module.chosen(options)
    store = ModelStore(options.store)
    model = resident(store, options.model, device)
    plain = resident(store, options.model, device, fused=False) if device.type == "cuda" else None
    paper_layout = untrained(store, options.model, GeneratorConfig.prime(), device)
    rows: list[Row] = []
    alone: list[Row] = []
    for batch in options.batches:
        contenders = designers(model, paper_layout, ears, device, batch, plain)
        few = n_rounds if batch == 1 else max(2, n_rounds // SLOW_ROUNDS_SHARE)
        rows += measured(contenders, ears, batch, few)
        show(rows, batch)
        alone += measured_alone(contenders, ears, batch, few)
        show_alone(alone, rows, batch)
    step = gauss_newton_step(model, ears, device, max(2, n_rounds // SLOW_ROUNDS_SHARE))
    show_step(step)
    support = store.manifest(options.model).support
    in_support = sum(name.split("/")[0] in support for name in ears.names)
    if in_support and ears.data["measured"]:
        print(
            f"NOTE: the model was trained on {in_support} of the {len(ears)} ears; docs/results.md holds ears out"
        )
    results.write(
        options.out,
        "core",
        described,
        {
            "rounds": n_rounds,
            "batches": options.batches,
            "model": str(model.version),
            "digest": model.version.digest,
        },
        rows,
        data=ears.data | {"n_ears_in_support": in_support},
        alone=alone,
        yardstick_over_solver=[yardstick_over_solver(rows, alone, batch) for batch in options.batches],
        gauss_newton_step=step,
    )


def designers(
    model: ResidentModel,
    paper_layout: ResidentModel,
    ears: Ears,
    device: torch.device,
    batch: int,
    plain: ResidentModel | None = None,
) -> dict[str, Designer]:
    """Everybody, by name; without a batch of the paper's generator on a CPU, which would take seconds a turn.

    plain: the model with torch's operators alone, where it has kernels of its own.
    """
    found: dict[str, Designer] = {}
    for k in UPDATES:
        found[f"k={k}"] = ServiceDesigner(model, ears, Recipe(n_updates=k))
        if plain is not None:
            found[f"torch's operators, k={k}"] = ServiceDesigner(plain, ears, Recipe(n_updates=k))
    if batch == 1 or device.type == "cuda":
        for k in UPDATES:
            found[f"paper's generator, untrained, k={k}"] = ServiceDesigner(
                paper_layout, ears, Recipe(n_updates=k), net=False
            )
    start = ServiceDesigner(model, ears, Recipe())
    for k in UPDATES[1:]:
        found[f"paper's refinement, eager, k={k}"] = PaperDesigner(start, ears, k, device, captured=False)
        if device.type == "cuda":
            found[f"paper's refinement, graph, k={k}"] = PaperDesigner(start, ears, k, device, captured=True)
    found[SOLVER] = ToeplitzSolver(ears)
    try:
        found["adafilt"] = AdafiltDesigner(ears)
    except ImportError:
        print("adafilt: not installed (pip install .[benchmarks]), left out", file=sys.stderr, flush=True)
    return found


def measured(contenders: Mapping[str, Designer], ears: Ears, batch: int, n_rounds: int) -> list[Row]:
    """Quality on all ears, then times in turns; one row each."""
    quality = {name: quality_of(designer, ears, batch) for name, designer in contenders.items()}
    taken = take_turns({name: turn(designer, ears, batch) for name, designer in contenders.items()}, n_rounds)
    yardstick = float(np.median(taken[YARDSTICK]["core"]))
    rows: list[Row] = []
    for name, stages in taken.items():
        core = summary(stages.pop("core"))
        row: Row = {
            "designer": name,
            "batch": batch,
            "core_ms": core,
            "core_over_yardstick": core["p50"] / yardstick,
            "designs_per_s": 1e3 * batch / core["p50"],
            "stages_ms": summaries(stages),
            "quality": quality[name],
        }
        rows.append(results.rounded(row))
    return rows


def turn(designer: Designer, ears: Ears, batch: int) -> Turn:
    """Its stages and the core time of a round's ears."""

    def timed(number: int) -> Times:
        _, times = designer(ears.batch(number, batch))
        return times | {"core": core_ms(times)}

    return timed


def measured_alone(contenders: Mapping[str, Designer], ears: Ears, batch: int, n_rounds: int) -> list[Row]:
    """The service's designers and the solver, each all of its rounds without a rival between them; one row each."""
    rows: list[Row] = []
    for name in (*(f"k={k}" for k in UPDATES), SOLVER):
        own = {name: turn(contenders[name], ears, batch)}
        take_turns(own, WARM_UP_ROUNDS)
        stages = take_turns(own, n_rounds)[name]
        core = summary(stages.pop("core"))
        row: Row = {"designer": name, "batch": batch, "core_ms": core, "stages_ms": summaries(stages)}
        rows.append(results.rounded(row))
    return rows


def yardstick_over_solver(rows: list[Row], alone: list[Row], batch: int) -> Row:
    """One update's core time over the solver's recursion, its equations left out: in turns, and both alone."""
    found: Row = {"batch": batch}
    for how, timed in (("in_turns", rows), ("alone", alone)):
        own, solver = (
            next(each for each in timed if (each["designer"], each["batch"]) == (name, batch))
            for name in (YARDSTICK, SOLVER)
        )
        found[how] = own["core_ms"]["p50"] / solver["stages_ms"]["solve"]["p50"]
    rounded: Row = results.rounded(found)
    return rounded


def quality_of(designer: Designer, ears: Ears, batch: int) -> dict[str, float]:
    """Figures over all ears, designed in batches of the size that is timed."""
    places = list(range(len(ears)))
    parts = []
    for first in range(0, len(ears), batch):
        chosen = [place % len(ears) for place in range(first, first + batch)]
        taps, _ = designer(chosen)
        parts.append(taps[: len(ears) - first].double())
    return ears.quality(places, torch.cat(parts))


def gauss_newton_step(model: ResidentModel, ears: Ears, device: torch.device, n_rounds: int) -> Row:
    """One update of the service beside the paper's: as it is, and iterated to the service's own residual.

    A step's time is the median of `refine` with one update less the median without. `equal residual`: the service's
    risk bands and weight, no cap, and as many iterations as the paper's preconditioner needs until the median over
    ears of the relative residual is as small as the service's.
    """
    places = list(range(len(ears)))
    start = ServiceDesigner(model, ears, Recipe())
    ours = [ServiceDesigner(model, ears, Recipe(n_updates=k)) for k in (0, 1)]
    target = float(np.median([residual_of(model, ears, place) for place in places]))
    reached, n_iterations, settings = float("nan"), EQUAL_RESIDUAL_ITERATIONS[-1], Settings()
    for n_iterations in EQUAL_RESIDUAL_ITERATIONS:
        settings = Settings(FAST.risk_bands, FAST.risk_weight, n_iterations, step_cap=None)
        designer = PaperDesigner(start, ears, 1, device, captured=False, settings=settings)
        reached = float(np.median([paper_residual(designer, place) for place in places]))
        if reached <= target:
            break
    captured = device.type == "cuda"
    paper = [PaperDesigner(start, ears, k, device, captured=captured) for k in (0, 1)]
    equal = [PaperDesigner(start, ears, k, device, captured=captured, settings=settings) for k in (0, 1)]
    contenders: dict[str, Sequence[Designer]] = {"service": ours, "paper": paper, "equal residual": equal}

    def refining(designer: Designer) -> Turn:
        return lambda number: {"refine": designer(ears.batch(number, 1))[1]["refine"]}

    turns = {f"{name} {k}": refining(both[k]) for name, both in contenders.items() for k in (0, 1)}
    for each in turns.values():
        each(0)
    taken = take_turns(turns, n_rounds)
    step_ms = {
        name: float(np.median(taken[f"{name} 1"]["refine"]) - np.median(taken[f"{name} 0"]["refine"]))
        for name in contenders
    }
    found: Row = results.rounded(
        {
            "service_ms": step_ms["service"],
            "service_residual": target,
            "paper_ms": step_ms["paper"],
            "paper_iterations": Settings().n_iterations,
            "equal_residual_ms": step_ms["equal residual"],
            "equal_residual_iterations": n_iterations,
            "equal_residual": reached,
            "equal_residual_reached": reached <= target,
            "service_over_equal_residual": step_ms["service"] / step_ms["equal residual"],
            "n": n_rounds,
        }
    )
    return found


def residual_of(model: ResidentModel, ears: Ears, place: int) -> float:
    """The relative residual that the service reports for its first update; infinite where it made none."""
    (design,) = model.design(Recipe(n_updates=1), [Ear(*wire.decode(ears.bodies[place]))])
    found = design.refinement["pcg_residual"] if isinstance(design, Design) else []
    return float(found[0]) if found else float("inf")


def paper_residual(designer: PaperDesigner, place: int) -> float:
    """That of the paper's first update."""
    designer([place])
    return float(designer.residuals[0, 0])


def show(rows: list[Row], batch: int) -> None:
    """The batch's rows as a table."""
    print(f"\nbatch {batch}: core time of a whole batch, ms; noise reduction on the true paths, dB")
    print(f"{'designer':38} {'p50':>9} {'p99':>9} {'x k=1':>7} {'NR':>7} {'worst':>7} {'AMP':>7}")
    for row in (each for each in rows if each["batch"] == batch):
        core, quality = row["core_ms"], row["quality"]
        print(
            f"{row['designer']:38} {core['p50']:9.3f} {core['p99']:9.3f} {row['core_over_yardstick']:7.2f} "
            f"{quality['noise_reduction_db']:7.2f} {quality['worst_ear_db']:7.2f} "
            f"{quality['amplification_db']:7.3f}"
        )
    ours = next(each for each in rows if each["batch"] == batch and each["designer"] == YARDSTICK)
    for name, spent in ours["stages_ms"].items():
        print(f"  {YARDSTICK} {name:12} {spent['p50']:9.3f} {spent['p99']:9.3f}")


def show_alone(alone: list[Row], rows: list[Row], batch: int) -> None:
    """The batch's rows without rivals, and one update beside the solver in either way."""
    print("alone, one after the other, core time, ms (of solve_toeplitz the recursion):")
    for row in (each for each in alone if each["batch"] == batch):
        spent = row["stages_ms"]["solve"] if row["designer"] == SOLVER else row["core_ms"]
        print(f"{row['designer']:38} {spent['p50']:9.3f} {spent['p99']:9.3f}")
    ratio = yardstick_over_solver(rows, alone, batch)
    print(
        f"{YARDSTICK} over the recursion of scipy's solve_toeplitz: {ratio['in_turns']:.2f} in turns, "
        f"{ratio['alone']:.2f} alone"
    )


def show_step(step: Row) -> None:
    """The comparison of one update."""
    reached = "" if step["equal_residual_reached"] else " (not reached)"
    print(
        f"\none update: service {step['service_ms']:.3f} ms at residual {step['service_residual']:.3g}; paper's "
        f"{step['paper_ms']:.3f} ms at {step['paper_iterations']} iterations; with "
        f"{step['equal_residual_iterations']} iterations, residual {step['equal_residual']:.3g}{reached}, "
        f"{step['equal_residual_ms']:.3f} ms: ratio {step['service_over_equal_residual']:.3f}"
    )
