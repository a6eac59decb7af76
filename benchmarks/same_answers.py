"""Whether the kernels answer as the reference does: every ear, every number of updates, every size of a batch.

    python -m benchmarks.same_answers --data DATA --workers 2 --out FILE.json

A published model as a GPU is given it, features, network, filter, updates and prediction in kernels; without a GPU
they run in Triton's interpreter, twenty minutes on two busy cores. Each ear alone, k = 0 to 3, against the
reference in double precision; the tests' paths that a careless inversion would divide by, which must end in
numbers, with an objective that falls; and batches of every size, k = 1, whose ears must be to the bit what they are
alone. Runs in a checkout, for the sake of those paths.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from itertools import repeat
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch

from benchmarks import ears as ears_module
from benchmarks import long_form
from benchmarks.ears import Ears
from model_store.store import ModelStore
from service.designs import BATCH_SIZES, Float32
from service.threads import prepare_thread
from synthesis.gauss_newton import Refinement
from synthesis.gpu.served import with_kernels
from synthesis.noise_reduction import Prediction
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import DEFAULT_MAX_GAIN_DB, Synthesizer
from tests.synthesis.cases import HOPELESS, hopeless_paths, relative_error
from tests.synthesis.gpu.interpreter import quick_interpreter

N_UPDATES = 3
TOLERANCES = {"taps": 8e-3, "mean_db": 0.01, "band_db": 0.02, "predicted_db": 0.02, "updates": 0}
"""Of the taps relative to their norm, where the systems' condition is 1e4; of the noise reduction in the mean and
in a band, both filters' judged in double precision; of all that is predicted in decibels, each filter's by its own
form; of the number of updates applied."""

Differences = dict[str, float]
Answer = tuple[Refinement, Prediction]


@dataclass
class Outcome:
    """What was seen so far.

    largest: by k, the largest differences from the reference and whose ear; `torch_taps` is what torch's single
    precision makes of the same. hopeless: kinds of paths that ended in numbers for every k. batches: by size, how
    many ears were to the bit what they are alone. data: which ears.
    """

    n_ears: int = 0
    largest: dict[str, dict[str, tuple[float, str]]] = field(default_factory=dict)
    hopeless: list[str] = field(default_factory=list)
    batches: Counter[int] = field(default_factory=Counter)
    data: dict[str, Any] = field(default_factory=dict)
    mistakes: Counter[str] = field(default_factory=Counter)

    def saw(self, name: str, by_updates: Sequence[Differences]) -> None:
        """One ear beside the reference."""
        self.n_ears += 1
        for k, differences in enumerate(by_updates):
            largest = self.largest.setdefault(f"k={k}", {})
            for figure, difference in differences.items():
                largest[figure] = max(largest.get(figure, (0.0, "")), (difference, name))
                if not difference <= TOLERANCES.get(figure, np.inf):
                    self.mistakes[f"{figure}: {name}, k={k}"] += 1
            seen = " ".join(f"{figure}={difference:.2g}" for figure, difference in differences.items())
            long_form.say(f"{name} k={k}: {seen}")


def answers(synthesizer: Synthesizer, paths: AcousticPaths, asked: range) -> Iterator[Answer]:
    """What is designed and predicted after so many updates, as `service.engine.schedule` goes about it."""
    psd = synthesizer.reference_psd
    paths = paths.to(psd.dtype, psd.device)
    ceiling = torch.full((paths.batch_size, 1), DEFAULT_MAX_GAIN_DB, dtype=psd.dtype, device=psd.device)
    start = synthesizer.initial_filter(paths, "prime", ceiling)
    updates = synthesizer.refining(paths, start, "fast", ceiling, psd.expand(paths.batch_size, -1))
    for k in range(asked.stop):
        if k:
            updates.update()
        if k in asked:
            refinement = updates.result()
            yield refinement, synthesizer.predict(paths, refinement.taps)


class Forms:
    """The ears, and a model that designs for them: the reference in double and in single precision, and kernels."""

    def __init__(self, ears: Ears, model: str, device: torch.device) -> None:
        """device: the kernels'; on a CPU they run in the interpreter."""
        checkpoint = ModelStore().load(model)
        self._ears, self._twin, self._torchs = ears, checkpoint.synthesizer(torch.float64), checkpoint.synthesizer()
        self._kernels = with_kernels(checkpoint.synthesizer(device=device))

    def beside(self, place: int, n_updates: int) -> tuple[list[Differences], list[Float32]]:
        """How far an ear's answers are from the reference's after each update; the one after the first."""
        paths, asked = self._ears.estimated[place : place + 1], range(n_updates + 1)
        forms = (answers(each, paths, asked) for each in (self._kernels, self._torchs, self._twin))
        found, kept = [], []
        for k, ((own, predicted), (torchs, _), (exact, wanted)) in enumerate(zip(*forms, strict=True)):
            if k == 1:
                kept = _arrays((own, predicted))
            judged = self._twin.predict(paths, own.taps.cpu().double())
            levels = [each.name for each in fields(Prediction) if each.name.endswith("_db")]
            found.append(
                {
                    "taps": relative_error(own.taps, exact.taps),
                    "torch_taps": relative_error(torchs.taps, exact.taps),
                    "mean_db": _distance(judged, wanted, "mean_noise_reduction_db"),
                    "band_db": _distance(judged, wanted, "noise_reduction_db"),
                    "predicted_db": max(_distance(predicted, wanted, name) for name in levels),
                    "updates": abs(int(own.n_applied) - int(exact.n_applied)),
                }
            )
        return found, kept

    def together(self, places: Sequence[int]) -> list[Float32]:
        """All that is answered to the ears as one batch after one update."""
        (answer,) = answers(self._kernels, self._ears.estimated[list(places)], range(1, 2))
        return _arrays(answer)

    def holds(self, kind: str, n_updates: int) -> bool:
        """Whether such paths end in numbers after each update, and the objective falls."""
        held = True
        for refinement, prediction in answers(self._kernels, hopeless_paths((kind,)), range(n_updates + 1)):
            objective = refinement.objective[refinement.objective.isfinite()]
            figures = [getattr(prediction, each.name) for each in fields(prediction)]
            held &= all(bool(each.isfinite().all()) for each in (refinement.taps, *figures))
            held &= len(objective) == int(refinement.n_applied) + 1 and bool((objective.diff() < 0).all())
        return held


def _arrays(answer: Answer) -> list[Float32]:
    """Copies of all that is in it; buffers are written again by the next update."""
    return [getattr(each, one.name).cpu().numpy().copy() for each in answer for one in fields(each)]


def _distance(found: Prediction, expected: Prediction, name: str) -> float:
    return float((getattr(found, name).cpu().double() - getattr(expected, name)).abs().max())


_forms: Forms
_entered = ExitStack()


def _prepare(ears: Ears, model: str, device: torch.device) -> None:
    """What a worker needs, for as long as it lives."""
    global _forms
    prepare_thread(1)
    _entered.enter_context(torch.inference_mode())
    if device.type == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are imported
        _entered.enter_context(quick_interpreter())
    _forms = Forms(ears, model, device)


def _done(name: str, *arguments: Any) -> Any:
    return getattr(_forms, name)(*arguments)


def run(
    ears: Ears,
    device: torch.device,
    outcome: Outcome,
    n_updates: int = N_UPDATES,
    sizes: Sequence[int] = BATCH_SIZES,
    kinds: Sequence[str] = HOPELESS,
    model: str = "default",
    n_workers: int = 1,
) -> None:
    """All of it, in processes of their own."""
    outcome.data = ears.data
    pool = ProcessPoolExecutor(n_workers, get_context("spawn"), _prepare, (ears, model, device))

    def each(name: str, *arguments: Iterable[Any]) -> Iterator[Any]:
        return pool.map(_done, repeat(name), *arguments)

    try:
        alone = []
        for name, (differences, kept) in zip(
            ears.names, each("beside", range(len(ears)), repeat(n_updates)), strict=True
        ):
            outcome.saw(name, differences)
            alone.append(kept)
        for kind, held in zip(kinds, each("holds", kinds, repeat(n_updates)), strict=True):
            long_form.say(f"{kind}: {'numbers' if held else 'NOT ALL NUMBERS'}")
            if held:
                outcome.hopeless.append(kind)
            else:
                outcome.mistakes[f"hopeless: {kind}"] += 1
        largest_first = sorted(sizes, reverse=True)
        batches = [ears.batch(0, size) for size in largest_first]
        for size, places, found in zip(largest_first, batches, each("together", batches), strict=True):
            for row, place in enumerate(places):
                pairs = zip(found, alone[place], strict=True)
                if all(np.array_equal(many[row], one[0], equal_nan=True) for many, one in pairs):
                    outcome.batches[size] += 1
                else:
                    outcome.mistakes[f"bits: {ears.names[place]} in a batch of {size}"] += 1
            long_form.say(f"batch of {size}: {outcome.batches[size]} ears to the bit")
    finally:
        pool.shutdown(cancel_futures=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the long form; the exit status says whether it held."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.same_answers", description=__doc__)
    ears_module.add_options(parser)
    parser.add_argument("--model", default="default")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--quick", action="store_true", help="one ear, one update, one batch, one kind of paths")
    outcome = Outcome()

    def work(options: argparse.Namespace, rest: Sequence[str]) -> None:
        device = torch.device(rest[1])
        if not options.quick:
            ears = ears_module.chosen(options)
            run(ears, device, outcome, model=options.model, n_workers=options.workers)
            return
        ears = Ears.of(ears_module.measure(options, n_listeners=1), 1)
        run(ears, device, outcome, 1, (2,), ("60 dB notch",), options.model)

    return long_form.main("same_answers", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())
