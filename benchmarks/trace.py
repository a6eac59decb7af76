"""`python -m benchmarks trace`: the kernels that a design launches on a GPU, or the operators of torch on a CPU.

torch's profiler counts both. The operators are those of the reference backend; their inner operators count too.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from functools import partial

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks import ears as ears_module
from benchmarks import machine, results
from benchmarks.core import N_UPDATES, add_model_options
from benchmarks.ears import taps_of
from benchmarks.results import Row
from model_store.store import ModelStore
from synthesis.design import design_all
from synthesis.model import Model
from synthesis.types import DesignOptions

N_COMMONEST = 6
# On a GPU; on a CPU, where the profiler takes seconds for the operators of one design, it is one.
N_PROFILED = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    machine.add_options(parser)
    ears_module.add_options(parser)
    add_model_options(parser)


def run(options: argparse.Namespace) -> None:
    """Count, print and write trace.json."""
    device = machine.choose_device(options)
    described = machine.describe(device)
    ears = ears_module.load(options)
    store = ModelStore(options.store) if options.store else ModelStore()
    backend = "cuda" if device == "cuda" else "reference"
    model = Model.on(backend, store.load(options.model).parameters)
    rows: list[Row] = []
    for k in N_UPDATES[:2] if options.quick else N_UPDATES:
        design = partial(design_all, ears.batch(0, 1), DesignOptions(n_updates=k), model)
        taps_of(design())  # records the graphs
        row = {"backend": backend, "k": k, **events(design, is_gpu=backend == "cuda")}
        commonest = ", ".join(f"{name} {count}" for name, count in row["commonest"].items())
        print(f"{backend:9} k={k}: {row['count']} events, {row['busy_ms']:.3f} ms busy: {commonest}", flush=True)
        rows.append(row)
    file = results.folder_for(options.out, described) / "trace.json"
    results.write(file, "trace", described, {"model": options.model}, rows, data=ears.data)


def events(call: Callable[[], object], *, is_gpu: bool) -> Row:
    """Count kernels or operators per call, and the time that they occupy the device."""
    activity, kind = (ProfilerActivity.CUDA, DeviceType.CUDA) if is_gpu else (ProfilerActivity.CPU, DeviceType.CPU)
    n_calls = N_PROFILED if is_gpu else 1
    with profile(activities=[activity]) as profiled:
        for _ in range(n_calls):
            call()
    found = [event for event in profiled.events() or [] if event.device_type == kind]
    busy_us = sum(event.device_time if is_gpu else event.self_cpu_time_total for event in found)
    counts = Counter(event.name for event in found)
    return {
        "count": len(found) / n_calls,
        "busy_ms": busy_us / n_calls / 1e3,
        "commonest": {name[:60]: count / n_calls for name, count in counts.most_common(N_COMMONEST)},
    }
