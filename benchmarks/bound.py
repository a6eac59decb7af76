"""`python -m benchmarks bound`: what a processor's stages take that no arrangement of the same calls can save.

One design is recorded: every transform, every matrix product and every other NumPy call of each stage. Each
distinct one is then timed in a loop of its own, on the arrays that it was given, which makes them as warm as they
can be; its count times that is what it must cost on this machine with the libraries in use. Beside the sum stands
the stage as it is measured, design after design: what the sum leaves over are Python itself, torch's buffers, and
arrays that are not in the nearest cache.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from timeit import Timer
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import torch
from scipy.sparse import csr_array

from benchmarks import ears as ears_module
from benchmarks import machine, results
from benchmarks.core import UPDATES, add_model_options
from benchmarks.ears import Ears
from benchmarks.results import Row
from benchmarks.timing import summary, take_turns
from benchmarks.trace import MarkingClock
from model_store.store import ModelStore
from service.engine.cpu_schedule import schedule_of
from service.engine.schedule import Schedule
from service.engine.stage_clock import StageClock
from service.formats.answers import CORE_STAGES
from synthesis import cpu
from synthesis.cpu.transforms import RealTransform
from synthesis.synthesizer import Synthesizer

KINDS = ("transforms", "products", "calls")
TIMED_S = 2e-3
"""A call is repeated for so long, three times: the median counts."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's own."""
    parser.add_argument("--threads", type=int, help="of one operator (default: as the service chooses)")
    parser.set_defaults(device="cpu")
    ears_module.add_options(parser)
    add_model_options(parser)
    parser.add_argument("--rounds", type=int, default=200, help="designs of each kind")
    parser.add_argument("--quick", action="store_true", help="few designs: to see that it runs")


def run(options: argparse.Namespace) -> None:
    """Record, time, print a table, write bound.json."""
    described = machine.describe(machine.prepare(options))
    ears = ears_module.chosen(options)
    n_rounds = 2 if options.quick else options.rounds
    checkpoint = ModelStore(options.store).load(options.model)
    costs = Costs()
    rows = []
    for k in UPDATES:
        recorded = recorded_design(checkpoint.synthesizer(torch.float32, "cpu"), ears, k)
        measured = measured_stages(checkpoint.synthesizer(torch.float32, "cpu"), ears, k, n_rounds)
        recorded["core"] = [call for stage in CORE_STAGES for call in recorded[stage]]
        measured["core"] = [sum(each) for each in zip(*(measured[stage] for stage in CORE_STAGES), strict=True)]
        for stage, calls in recorded.items():
            rows.append(results.rounded({"stage": stage, "k": k} | bound_of(calls, costs, measured[stage])))
    show(rows)
    settings = {"model": options.model, "rounds": n_rounds}
    results.write(options.out, "bound", described, settings, rows, data=ears.data)


@dataclass
class Call:
    """A call of one kind that can be made again. key: what its cost depends on. n_points: of a transform."""

    kind: str
    key: tuple[Any, ...]
    again: Callable[[], Any]
    flop: float = 0.0
    n_points: int = 0


class Recorded(np.ndarray):
    """An array that notes in `calls`, where that is a list, what NumPy does with it; so does what comes of it."""

    calls: ClassVar[list[Call] | None] = None

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        given = [_plain(each) for each in inputs]
        function = getattr(ufunc, method)
        into = None if out is None else tuple(_plain(each) for each in out)
        # Not into the same place again and again, where values would grow beyond all bounds.
        scratch = {} if into is None else {"out": tuple(np.empty_like(each) for each in into)}
        key = ufunc.__name__, method, into is not None
        flop = 2.0 * given[0].size * (given[1].shape[-1] if given[1].ndim > 1 else 1) if ufunc is np.matmul else 0.0
        _note("products" if flop else "calls", key, function, given, options | scratch, flop)
        return _recorded(function(*given, **options, **({} if into is None else {"out": into})))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        given, options = _plain(args), {name: _plain(each) for name, each in kwargs.items()}
        _note("calls", (function.__name__,), function, given, options)
        return _recorded(function(*given, **options))

    def __getitem__(self, place: Any) -> Any:
        return _noted(np.ndarray.__getitem__, self, place)

    def __setitem__(self, place: Any, value: Any) -> None:
        _noted(np.ndarray.__setitem__, self, place, value)

    def copy(self, *arguments: Any) -> Any:
        return _noted(np.ndarray.copy, self, *arguments)

    def astype(self, *arguments: Any, **options: Any) -> Any:
        return _noted(partial(np.ndarray.astype, **options), self, *arguments)


def _noted(function: Any, *arguments: Any) -> Any:
    given = [_plain(each) for each in arguments]
    _note("calls", (getattr(function, "__name__", "astype"),), function, given, {})
    return _recorded(function(*given))


def _note(
    kind: str, key: tuple[Any, ...], function: Any, given: Sequence[Any], options: dict[str, Any], flop: float = 0.0
) -> None:
    if Recorded.calls is not None:
        about = (*key, *(_described(each) for each in (*given, *options.values())))
        Recorded.calls.append(Call(kind, about, partial(function, *given, **options), flop))


def _described(value: Any) -> Any:
    """What the cost of a call depends on: an array's form, not its values."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.strides
    return tuple(map(_described, value)) if isinstance(value, tuple | list) else type(value).__name__


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(_plain(each) for each in value)
    return value.view(np.ndarray) if isinstance(value, Recorded) else value


def _recorded(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_recorded(each) for each in value)
    return value.view(Recorded) if type(value) is np.ndarray else value


@contextmanager
def recording() -> Iterator[None]:
    """Arrays that are made or taken from a tensor are `Recorded`; a transform and a sparse product are one call."""

    def making(function: Any) -> Any:
        return lambda *arguments, **options: _recorded(function(*arguments, **options))

    def whole(kind: str, function: Any) -> Any:
        def call(own: Any, *arguments: Any) -> Any:
            given = [_plain(each) for each in arguments]
            calls, Recorded.calls = Recorded.calls, None  # not what it is made of
            try:
                result = function(own, *given)
            finally:
                Recorded.calls = calls
            if calls is not None:
                n = own.n if isinstance(own, RealTransform) else 0
                key = function.__name__, n, *map(_described, given)
                flop = 0.0 if n else 2.0 * own.nnz * given[0].shape[-1]
                calls.append(Call(kind, key, partial(function, own, *given), flop, n))
            return _recorded(result)

        return call

    with ExitStack() as patches:
        for name in ("empty", "zeros", "ones", "full"):
            patches.enter_context(patch.object(np, name, making(getattr(np, name))))
        patches.enter_context(patch.object(torch.Tensor, "numpy", making(torch.Tensor.numpy)))
        for name in ("forward", "inverse", "unscaled_inverse"):
            patches.enter_context(
                patch.object(RealTransform, name, whole("transforms", getattr(RealTransform, name)))
            )
        patches.enter_context(patch.object(csr_array, "__matmul__", whole("products", csr_array.__matmul__)))
        yield


def recorded_design(synthesizer: Synthesizer, ears: Ears, k: int) -> dict[str, list[Call]]:
    """The calls of each stage of a design of the first ear with k updates."""
    found: dict[str, list[Call]] = {}
    with recording():
        _, design = one_design(synthesizer, ears, k)
        design(MarkingClock(lambda stage: None))  # makes its buffers

        def ended(stage: str) -> None:
            found[stage] = found.get(stage, []) + (Recorded.calls or [])
            Recorded.calls = []

        Recorded.calls = []
        try:
            design(MarkingClock(ended))
        finally:
            Recorded.calls = None
    return found


def measured_stages(synthesizer: Synthesizer, ears: Ears, k: int, n_rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each stage of the same design, as it is served: one after the other."""
    (_, design), clock = one_design(synthesizer, ears, k), StageClock(torch.device("cpu"))

    def timed(_: int) -> dict[str, float]:
        clock.start()
        design(clock)
        return clock.times_ms()

    timed(0)
    return take_turns({"own": timed}, n_rounds)["own"]


def one_design(synthesizer: Synthesizer, ears: Ears, k: int) -> tuple[Schedule, Callable[[StageClock], None]]:
    """Every stage of a design of the first ear on a processor, and the schedule that holds what comes of it."""
    schedule = schedule_of(cpu.served(synthesizer), 1)
    schedule.ears.device.primary.copy_(ears.estimated.primary[:1])
    schedule.ears.device.secondary.copy_(ears.estimated.secondary[:1])

    def design(clock: StageClock) -> None:
        with torch.inference_mode():
            schedule.design("prime", k, "fast", clock)
            schedule.predict("model", clock)

    return schedule, design


@dataclass
class Costs:
    """Milliseconds of a call, each distinct one timed once."""

    known: dict[tuple[Any, ...], float] = field(default_factory=dict)

    def of(self, call: Call) -> float:
        """The median of three loops."""
        if call.key not in self.known:
            with np.errstate(all="ignore"):
                timer = Timer(call.again)
                once = max(timer.timeit(1), timer.timeit(1) / 2, 1e-7)
                number = max(1, int(TIMED_S / once))
                self.known[call.key] = 1e3 * float(np.median(timer.repeat(3, number))) / number
        return self.known[call.key]


def bound_of(calls: Sequence[Call], costs: Costs, measured: Sequence[float]) -> Row:
    """What the calls of a stage take, by kind, beside what it takes."""
    spent = {kind: sum(costs.of(each) for each in calls if each.kind == kind) for kind in KINDS}
    counts = Counter(each.kind for each in calls)
    points = Counter(each.n_points for each in calls if each.n_points)
    flop = sum(each.flop for each in calls)
    whole, total = summary(measured), sum(spent.values())
    return {
        "transforms": {str(n): count for n, count in sorted(points.items())},
        "transforms_ms": spent["transforms"],
        "products": counts["products"],
        "products_megaflop": flop / 1e6,
        "products_gigaflop_per_s": 1e-6 * flop / spent["products"] if flop else None,
        "products_ms": spent["products"],
        "calls": counts["calls"],
        "calls_ms": spent["calls"],
        "sum_ms": total,
        "measured_ms": whole,
        "sum_over_measured": total / whole["p50"],
    }


def show(rows: Sequence[Row]) -> None:
    """A line for each stage, those before the updates once."""
    print("| stage | transforms, ms | products, ms | other calls, ms | sum, ms | measured, ms | sum / measured |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        if row["k"] == rows[0]["k"] or row["stage"] in ("refine", "core"):
            print(
                f"| {row['stage']}, k = {row['k']} | {sum(row['transforms'].values())}: {row['transforms_ms']:.3f} "
                f"| {row['products']}: {row['products_ms']:.3f} | {row['calls']}: {row['calls_ms']:.3f} "
                f"| {row['sum_ms']:.3f} | {row['measured_ms']['p50']:.3f} | {row['sum_over_measured']:.2f} |"
            )
