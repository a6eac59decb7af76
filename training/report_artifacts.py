"""What a report shows beside the rows: core times, and the paths and filters of each listener."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from synthesis.backends.reference import build_synthesizer, model_parameters
from synthesis.design import Model, design_all
from synthesis.errors import answer_or_raise
from synthesis.generator import Generator
from synthesis.generator_config import GeneratorConfig
from synthesis.methods import STARTS
from synthesis.octave_bands import WIDE_BANDS
from synthesis.paths import AcousticPaths
from synthesis.profiles import profile_for_resolution
from synthesis.types import DesignOptions, Paths, Problem
from training.checkpoints import has_model, load_model
from training.datasets.splits import Split
from training.evaluation import Method, Updates
from training.methods import BOTH_PROFILES, FITTED, GENERATORS, UNTRAINED, GeneratorDesign
from training.report import design_name
from training.report.inputs import CORE_TIME_FILE, PATHS_FILE
from training.run_data import RunData
from training.run_folder import write_atomically
from training.run_task import fit
from training.tasks import Task

N_CALLS = 3
N_TIMED_EARS = 4
SHOWN = ("wmmse", "prime", "prime-log")
SLOW = {"iterative_fir": 1}
"""Methods of seconds per ear are timed on fewer ears."""

BACKEND_METHODS = ("wmmse", *STARTS)
"""Untrained designs of a backend."""

DESIGN_STAGES = ("path_ratio", "generate", "reconstruct")


def write_core_times(data: RunData, methods: tuple[str, ...], splits: list[Split]) -> None:
    """Core time of each design, as in the paper: single queries, three calls each, the median; mean over ears.

    What a backend designs is timed there, and so are updates, whatever start they follow. Paths are resident
    spectra and models are loaded. Ours includes the features; the paper's does not. The models of the first split
    stand for all. Times in the file that were measured on this device are kept.
    """
    file = data.folder.folder / CORE_TIME_FILE
    device = f"{data.device_name()}, {torch.get_num_threads()} threads"
    known = pd.read_csv(file, keep_default_na=False).to_dict("records") if file.exists() else []
    done = {row["method"] for row in known if row["device"] == device}
    measurements, rows = data.measurements, []
    psd = measurements.reference_psd.float().to(data.device)
    originals = [
        index
        for index in measurements.indices(data.queries(splits[0]))
        if measurements.pairs[index].condition == "original"
    ][:N_TIMED_EARS]
    ears = [measurements.paths([index]).to(torch.float32, data.device) for index in originals]
    untrained = model_parameters(Generator(GeneratorConfig.prime_log()), psd, torch.zeros(2, len(WIDE_BANDS)))
    backend = Model.on(data.device.type, untrained)
    update_ms: dict[tuple[str, int], float] = {}
    for name in (each for each in methods if each not in done):
        task = Task(name, split=splits[0].index, seed=0)
        updates: tuple[Updates, ...] = BOTH_PROFILES
        if name in BACKEND_METHODS:
            start_ms, updates = (
                _backend_ms(backend, ears, DesignOptions(name)),
                UNTRAINED[name].updates,
            )
        elif name in GENERATORS:
            if not has_model(data, task):
                continue
            own = Model.on(data.device.type, load_model(data, task).parameters)
            start_ms = _backend_ms(own, ears, DesignOptions())
        else:
            found = _method(data, task, psd)
            if found is None:
                continue
            method, updates = found
            timed = ears[: SLOW.get(name, N_TIMED_EARS)]
            start_ms = statistics.mean(_median_ms(partial(method.design, ear), data.device) for ear in timed)
        rows.append(_row(name, 0, "", device, start_ms))
        for profile, k in ((each.profile, k) for each in updates for k in each.n_updates):
            if (profile, k) not in update_ms:
                options = DesignOptions(n_updates=k, profile=profile_for_resolution(profile, measurements.window))
                update_ms[profile, k] = _backend_ms(backend, ears, options, ("refine",))
            rows.append(_row(name, k, profile, device, start_ms + update_ms[profile, k]))
        print(f"core time: {name} {start_ms:.2f} ms", flush=True)
    if rows:
        write_atomically(file, pd.DataFrame([*known, *rows]).to_csv(index=False))


def _method(data: RunData, task: Task, psd: Tensor) -> tuple[Method, tuple[Updates, ...]] | None:
    """A method that no backend has, or None for those that adapt on true paths or are made of a generator.

    Fitted methods keep no model: a network of one update takes as long.
    """
    if task.method in UNTRAINED:
        method = UNTRAINED[task.method].make(psd)
        return None if getattr(method, "uses_true_paths", False) else (method, UNTRAINED[task.method].updates)
    if FITTED[task.method].needs_generator:
        return None
    with TemporaryDirectory() as folder:
        return fit(data, task, Path(folder) / "state.pt", n_updates=1), FITTED[task.method].updates


def _backend_ms(
    backend: Model, ears: list[AcousticPaths], options: DesignOptions, stages: tuple[str, ...] = DESIGN_STAGES
) -> float:
    """Mean over ears of the median over calls, of some stages' time."""
    times = []
    for ear in ears:
        given = Problem((Paths(ear.primary[0].cpu().numpy(), ear.secondary[0].cpu().numpy()),))
        calls = []
        for _ in range(N_CALLS):
            design = answer_or_raise(design_all([given], options, backend)[0])
            calls.append(sum(design.times_ms.get(stage, 0.0) for stage in stages))
        times.append(statistics.median(calls))
    return statistics.mean(times)


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


def _row(method: str, k: int, profile: str, device: str, core_ms: float) -> dict[str, object]:
    return {
        "method": method,
        "k": k,
        "profile": profile,
        "device": device,
        "core_ms": round(core_ms, 4),
        "n_cases": SLOW.get(method, N_TIMED_EARS),
    }


@torch.no_grad()
def write_listener_paths(data: RunData, rows: pd.DataFrame) -> None:
    """True paths of each held-out listener's ears, with the filters of a few designs, for the listener pages."""
    arrays: dict[str, np.ndarray] = {}
    measurements = data.measurements
    for listener in sorted(rows.listener.unique()):
        methods = [method for name in SHOWN if (method := _shown(data, rows, name, listener)) is not None]
        for index in measurements.indices((listener,)):
            pair = measurements.pairs[index]
            if pair.condition != "original":
                continue
            key = f"{listener}/{pair.ear}"
            arrays[f"{key}/primary"] = pair.primary.astype(np.float32)
            arrays[f"{key}/secondary"] = pair.secondary.astype(np.float32)
            for method in methods:
                taps = method.design(measurements.paths([index])).taps[0]
                arrays[f"{key}/{design_name(method.name, 0)}"] = taps.numpy()
    file = data.folder.folder / PATHS_FILE
    beside = file.with_suffix(f".{os.getpid()}.partial.npz")
    np.savez_compressed(beside, **arrays)  # type: ignore[arg-type]
    os.replace(beside, file)


def _shown(data: RunData, rows: pd.DataFrame, name: str, listener: str) -> Method | None:
    """A method as the listener's page shows it: a generator's model is of the first split that held them out."""
    own = rows[(rows.method == name) & (rows.listener == listener)]
    if own.empty:
        return None
    if name in UNTRAINED:
        return UNTRAINED[name].make(data.measurements.reference_psd.float())
    trained = (Task(name, split=int(split), seed=0) for split in sorted(own[own.seed == 0]["split"].unique()))
    task = next((each for each in trained if has_model(data, each)), None)
    return None if task is None else GeneratorDesign(name, build_synthesizer(load_model(data, task).parameters))
