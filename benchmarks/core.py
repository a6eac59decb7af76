"""`python -m benchmarks core`: a design from arrays to arrays, without HTTP.

Contenders take turns on the same ears, in a random order per round. They first design all ears once, which warms them
up and yields the noise reduction printed beside the times.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks import ears as ears_module
from benchmarks import machine, results
from benchmarks.designers import BackendDesigner, ToeplitzSolver, untrained
from benchmarks.ears import Ears, taps_of
from benchmarks.results import Row
from benchmarks.timing import Turn, summary, take_turns
from model_store.store import ModelStore
from prime_anc.method.design import design_all
from prime_anc.method.types import DesignOptions, Model

N_UPDATES = (0, 1, 3)
SOLVER = "solve_toeplitz"
WARM_UP_ROUNDS = 5
# Factor by which a large batch is timed in fewer rounds.
LARGE_BATCH_SHARE = 5


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    machine.add_options(parser)
    ears_module.add_options(parser)
    add_model_options(parser)
    parser.add_argument("--rounds", type=int, default=200, help="turns per contender with one ear")
    parser.add_argument("--reference", action="store_true", help="time the torch reference backend too")
    parser.add_argument("--prime", action="store_true", help="time the paper's larger generator, untrained, too")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the published model."""
    parser.add_argument("--model", default="bose-qc20", help="published model")
    parser.add_argument("--store", type=Path, help="folder of published models (default: the bundled ones)")


def run(options: argparse.Namespace) -> None:
    """Measure, print and write core.json."""
    device = machine.choose_device(options)
    described = machine.describe(device)
    n_rounds = 2 if options.quick else options.rounds
    ears = ears_module.load(options)
    store = ModelStore(options.store) if options.store else ModelStore()
    parameters = store.load(options.model).parameters
    models = {device: Model.on(device, parameters)}
    if options.reference:
        models["reference"] = Model.on("reference", parameters)
    if options.prime:
        models[f"{device}, prime untrained"] = Model.on(device, untrained(parameters, "prime"))
    rows: list[Row] = []
    settings = {"rounds": n_rounds, "model": str(store.resolve(options.model))}
    file = results.folder_for(options.out, described) / "core.json"

    def add(found: list[Row]) -> None:
        """Print rows and write them with the earlier ones: an interrupted run keeps its measurements."""
        show(found)
        rows.extend(found)
        results.write(file, "core", described, settings, rows, data=ears.data)

    contenders: dict[str, Turn] = {SOLVER: ToeplitzSolver(ears)}
    quality: dict[str, dict[str, float]] = {}
    for name, model in models.items():
        for k in N_UPDATES:
            designer = BackendDesigner(model, ears, k)
            contenders[f"{name} k={k}"] = designer
            quality[f"{name} k={k}"] = ears.quality(model, designer.all_taps())
    take_turns(contenders, 1 if options.quick else WARM_UP_ROUNDS)
    add(summarised(take_turns(contenders, n_rounds), quality, 1))
    for name, model in models.items():
        if not model.backend.is_thread_safe:  # without threads, concurrent requests become batches
            batch = {f"{name} k={k}": BackendDesigner(model, ears, k, model.backend.max_batch) for k in N_UPDATES}
            take_turns(batch, 1)
            found = take_turns(batch, max(2, n_rounds // LARGE_BATCH_SHARE))
            add(summarised(found, quality, model.backend.max_batch))
    add([throughput(models[device], ears, n, n_rounds) for n in sorted({1, described["cores"]})])


def summarised(
    taken: dict[str, dict[str, list[float]]], quality: dict[str, dict[str, float]], batch: int
) -> list[Row]:
    """Summarise contenders, with core time also as a multiple of the Toeplitz solver's."""
    medians = {name: float(np.median(stages["core"])) for name, stages in taken.items()}
    return [
        {
            "designer": name,
            "batch": batch,
            "core_ms": summary(stages["core"]),
            "over_solve_toeplitz": medians[name] / medians[SOLVER] if SOLVER in medians else None,
            "designs_per_s": 1e3 * batch / medians[name],
            "stages_ms": {stage: summary(item) for stage, item in stages.items() if stage != "core"},
            "quality": quality.get(name),
        }
        for name, stages in taken.items()
    ]


def throughput(model: Model, ears: Ears, n_threads: int, n_rounds: int) -> Row:
    """Measure designs (k = 1) per second: with several threads and one ear each, or one thread in batches."""
    batch = 1 if model.backend.is_thread_safe else model.backend.max_batch
    n_threads = n_threads if model.backend.is_thread_safe else 1
    n_calls, options = 2 * n_rounds, DesignOptions(n_updates=1)

    def design(number: int) -> None:
        taps_of(design_all(ears.batch(number, batch), options, model))

    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(design, range(n_threads)))
        began = perf_counter()
        list(pool.map(design, range(n_calls)))
        seconds = perf_counter() - began
    return {
        "designer": f"{model.backend.name} k=1, {n_threads} threads",
        "batch": batch,
        "designs_per_s": n_calls * batch / seconds,
    }


def show(rows: list[Row]) -> None:
    """Print the table."""
    print(f"{'designer':28} {'batch':>5} {'core p50':>9} {'p99':>8} {'/solver':>8} {'designs/s':>10} {'NR, dB':>7}")
    for row in rows:
        times, quality = row.get("core_ms"), row.get("quality")
        shown = f"{times['p50']:9.3f} {times['p99']:8.3f}" if times else 18 * " "
        ratio = f"{row['over_solve_toeplitz']:8.3f}" if row.get("over_solve_toeplitz") else 8 * " "
        reduction = f"{quality['noise_reduction_db']:7.2f}" if quality else ""
        print(f"{row['designer']:28} {row['batch']:5d} {shown} {ratio} {row['designs_per_s']:10.1f} {reduction}")
