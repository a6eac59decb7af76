"""What a report shows beside the rows: core times, and the paths and filters of each listener."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import torch

from synthesis.cpu import served
from synthesis.gauss_newton import suited_profile
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import Synthesizer
from training.datasets.splits import Split
from training.experiment import Experiment, Piece
from training.methods import BOTH_PROFILES, FITTED, GENERATORS, UNTRAINED, GeneratorDesign, untrained_synthesizer
from training.protocol import Method, Refined
from training.report import design_name
from training.report.inputs import CORE_TIME_FILE, PATHS_FILE
from training.run_folder import write_atomically

N_CALLS = 3
N_TIMED_EARS = 4
SHOWN = ("wmmse", "prime", "prime-log")
SLOW = {"iterative_fir": 1}
"""Methods of seconds per ear are timed on fewer ears."""


def time_designs(experiment: Experiment, methods: tuple[str, ...], splits: list[Split]) -> None:
    """Core time of each design, the paper's way: single queries, three calls each, the median; mean over ears.

    Paths are resident spectra and models are loaded; of three calls the median is a warm one. Ours includes the
    features; the paper's does not. The models of the first split stand for all. A time measured before on this
    device is kept.
    """
    file = experiment.folder.folder / CORE_TIME_FILE
    device = f"{experiment.device_name()}, {torch.get_num_threads()} threads"
    known = pd.read_csv(file, keep_default_na=False).to_dict("records") if file.exists() else []
    done = {row["method"] for row in known if row["device"] == device}
    rows = []
    psd, window = experiment.measurements.reference_psd.float().to(experiment.device), experiment.options.window
    refiner = served(untrained_synthesizer(psd))  # updates as they are served, whatever they start from
    for method, refined in _timeable(experiment, [m for m in methods if m not in done], splits):
        queries = experiment.measurements.indices(experiment.queries(splits[0]))
        ears = [i for i in queries if experiment.measurements.pairs[i].condition == "original"]
        ears = ears[: SLOW.get(method.name, N_TIMED_EARS)]
        paths = [experiment.measurements.paths([ear]).to(torch.float32, experiment.device) for ear in ears]
        start = [_median_ms(lambda p=p, m=method: m.design(p), experiment.device) for p in paths]  # type: ignore[misc]
        rows.append(_row(method.name, 0, "", device, start))
        for each in refined:
            for k in each.n_updates:
                steps = [
                    _median_ms(_refining(refiner, method, each, k, p, window), experiment.device) for p in paths
                ]
                rows.append(
                    _row(method.name, k, each.profile, device, [a + b for a, b in zip(start, steps, strict=True)])
                )
        print(f"core time: {method.name} {statistics.mean(start):.2f} ms", flush=True)
    if rows:
        write_atomically(file, pd.DataFrame([*known, *rows]).to_csv(index=False))


def _timeable(
    experiment: Experiment, methods: list[str], splits: list[Split]
) -> Iterator[tuple[Method, tuple[Refined, ...]]]:
    """Methods that design from estimates. Of those that are fitted no model is kept: one update makes a network
    whose designs take as long."""
    psd = experiment.measurements.reference_psd.float().to(experiment.device)
    for name in methods:
        if name in UNTRAINED:
            method = UNTRAINED[name].make(psd)
            if not getattr(method, "uses_true_paths", False):
                yield method, UNTRAINED[name].refined
        elif name in GENERATORS:
            piece = Piece(name, split=splits[0].index, seed=0)
            if experiment.has_model(piece):
                yield _published(experiment, piece), BOTH_PROFILES
        elif not FITTED[name].needs_generator:
            piece = Piece(name, split=splits[0].index, seed=0)
            with TemporaryDirectory() as folder:
                yield experiment.fit(piece, Path(folder) / "state.pt", n_updates=1), FITTED[name].refined


def _published(experiment: Experiment, piece: Piece) -> GeneratorDesign:
    checkpoint = experiment.store.load(experiment.published(piece))
    return GeneratorDesign(piece.method, served(checkpoint.synthesizer().to(experiment.device)))


def _refining(
    refiner: Synthesizer, method: Method, each: Refined, k: int, paths: AcousticPaths, window: int
) -> Callable[[], object]:
    taps, profile = method.design(paths).taps, suited_profile(each.profile, window)
    return lambda: refiner.refine(paths, taps, k, profile, each.max_gain_db)


@torch.no_grad()
def _median_ms(call: Callable[[], object], device: torch.device) -> float:
    times = []
    for _ in range(N_CALLS):
        started = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(1e3 * (time.perf_counter() - started))
    return statistics.median(times)


def _row(method: str, k: int, profile: str, device: str, times_ms: list[float]) -> dict[str, object]:
    return {
        "method": method,
        "k": k,
        "profile": profile,
        "device": device,
        "core_ms": round(statistics.mean(times_ms), 4),
        "n_cases": len(times_ms),
    }


@torch.no_grad()
def write_exhibits(experiment: Experiment, rows: pd.DataFrame) -> None:
    """True paths of each held-out listener's ears, with the filters of a few designs, for the listener pages.

    A generator's filter is that of the first split which holds the listener out and whose model is there.
    """
    arrays: dict[str, np.ndarray] = {}
    measurements = experiment.measurements
    present = [name for name in SHOWN if (rows.method == name).any()]
    for listener in sorted(rows.listener.unique()):
        for index in measurements.indices((listener,)):
            pair = measurements.pairs[index]
            if pair.condition != "original":
                continue
            key = f"{listener}/{pair.ear}"
            arrays[f"{key}/primary"] = pair.primary.astype(np.float32)
            arrays[f"{key}/secondary"] = pair.secondary.astype(np.float32)
            paths = measurements.paths([index])
            for name in present:
                if name in UNTRAINED:
                    method: Method = UNTRAINED[name].make(measurements.reference_psd.float())
                else:
                    own = rows[(rows.method == name) & (rows.listener == listener) & (rows.seed == 0)]
                    trained = (Piece(name, split=int(split), seed=0) for split in sorted(own["split"].unique()))
                    piece = next((each for each in trained if experiment.has_model(each)), None)
                    if piece is None:
                        continue
                    method = _published(experiment, piece)
                    method.synthesizer.to("cpu")
                arrays[f"{key}/{design_name(name, 0)}"] = method.design(paths).taps[0].numpy()
    file = experiment.folder.folder / PATHS_FILE
    beside = file.with_suffix(f".{os.getpid()}.partial.npz")
    np.savez_compressed(beside, **arrays)  # type: ignore[arg-type]
    os.replace(beside, file)
