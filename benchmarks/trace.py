"""`python -m benchmarks trace`: operators and bytes of a design, and on a GPU the kernels that it launches.

Operators are those of the reference backend in torch: computing ones count once, views not. Bytes are those of the
tensors that an operator reads and writes, as if without cache. Kernels are counted by torch's profiler while the CUDA
backend designs.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

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
N_PROFILED = 20
_ALLOCATIONS = ("::empty", "::empty_like", "::new_empty", "::empty_strided")


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
    parameters = store.load(options.model).parameters
    counted = N_UPDATES[:2] if options.quick else N_UPDATES
    rows: list[Row] = []
    reference = Model.on("reference", parameters)
    for k in counted:
        call = partial(design_all, ears.batch(0, 1), DesignOptions(n_updates=k), reference)
        rows.append({"backend": "reference", "k": k, **operators(call)})
    if device == "cuda":
        cuda = Model.on("cuda", parameters)
        for k in counted:
            call = partial(design_all, ears.batch(0, 1), DesignOptions(n_updates=k), cuda)
            taps_of(call())  # records the graphs
            rows.append({"backend": "cuda", "k": k, **kernels(call)})
    for row in rows:
        commonest = ", ".join(f"{name} {count}" for name, count in row["commonest"].items())
        amount = f"{row['megabytes']:.2f} MB" if "megabytes" in row else f"{row['busy_ms']:.3f} ms busy"
        print(f"{row['backend']:9} k={row['k']}: {row['count']} {row['what']}, {amount}: {commonest}", flush=True)
    file = results.folder_for(options.out, described) / "trace.json"
    results.write(file, "trace", described, {"model": options.model}, rows, data=ears.data)


class OperatorCounter(TorchDispatchMode):
    """Counts operators that compute, and their bytes, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator, and count it unless it is a view or an allocation."""
        with self:
            decomposed = func.decompose(*args, **(kwargs or {}))
        if decomposed is not NotImplemented:
            return decomposed
        result = func(*args, **(kwargs or {}))
        read = [tree_leave for tree_leave in tree_leaves((args, kwargs or {})) if isinstance(tree_leave, Tensor)]
        made = [tree_leave for tree_leave in tree_leaves(result) if isinstance(tree_leave, Tensor)]
        storages = {item.untyped_storage()._cdata for item in read}
        writes = func._schema.is_mutable
        computes = writes or any(item.untyped_storage()._cdata not in storages for item in made)
        if computes and not func._schema.name.endswith(_ALLOCATIONS):
            name = str(func._schema.name).removeprefix("aten::")
            self.counts[name] += 1
            self.bytes[name] += sum(_stored_bytes(item) for item in (*read, *([] if writes else made)))
        return result


def _stored_bytes(tensor: Tensor) -> int:
    """Return the bytes that an operator moves: an expanded tensor counts as stored."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def operators(call: Callable[[], object]) -> Row:
    """Count the operators of torch in a call."""
    call()
    with OperatorCounter() as counter:
        call()
    return {
        "what": "operators",
        "count": counter.counts.total(),
        "megabytes": counter.bytes.total() / 1e6,
        "commonest": dict(counter.counts.most_common(N_COMMONEST)),
    }


def kernels(call: Callable[[], object]) -> Row:
    """Count kernels per call, and the time that they occupy the GPU."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(N_PROFILED):
            call()
        torch.cuda.synchronize()
    events = [event for event in profiled.events() or [] if event.device_type == torch.autograd.DeviceType.CUDA]
    counts = Counter(event.name for event in events)
    return {
        "what": "kernels",
        "count": len(events) / N_PROFILED,
        "busy_ms": sum(event.device_time for event in events) / N_PROFILED / 1e3,
        "commonest": {name[:60]: count / N_PROFILED for name, count in counts.most_common(N_COMMONEST)},
    }
