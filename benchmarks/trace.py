"""`python -m benchmarks trace`: operators and bytes of each stage, counted while a design runs.

On the CPU the schedule runs eagerly, operator by operator, and these operators are what a GPU would be given to
launch: one that computes counts as one launch there, a view as none (a transform or a convolution may be several
kernels). The copies by which a stage on a CPU fills its output buffers are not counted, for a captured graph
computes there; how many graphs are launched stands beside the operators. What `synthesis.gpu` does in kernels of
its own, most of a design by `prime-log`, counts as their launches; `--solver torch` counts its operators. A `prime`
generator is taken in the form that a GPU is given (`synthesis.channels_last`), with its copies and changes of type.
Bytes are those of the tensors that an operator reads and writes, each once, as if no cache held any. Those of
`fused` kernels are formulas of what a launch loads and stores, each number once, its constants once for all ears; a
test holds them to what Triton's interpreter counts (`TOLERANCE`). With `--device cuda` the kernels of each
replayed design are counted too, from torch's profiler.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from copy import deepcopy
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks import ears as ears_module
from benchmarks import machine, results
from benchmarks.core import UPDATES, add_model_options
from benchmarks.designers import ServiceDesigner, resident, untrained
from benchmarks.ears import Ears
from benchmarks.results import Row
from model_store.store import ModelStore
from service.designs import BATCH_SIZES, Recipe
from service.engine.resident import ResidentModel
from service.engine.schedule import Schedule
from service.engine.stage_clock import StageClock
from synthesis.channels_last import WrittenOutNorm, for_inference
from synthesis.conjugate_gradients import Solution
from synthesis.cuda_graph import GraphedStage
from synthesis.features import N_CHANNELS
from synthesis.gauss_newton import FAST, Refinement, Refining, Updates
from synthesis.generator import Generator, GeneratorConfig
from synthesis.gpu.served import (
    LAUNCHES_AROUND_A_SOLVE,
    LAUNCHES_OF_A_NORM,
    LAUNCHES_TO_BEGIN,
    LAUNCHES_TO_CORRECT,
    LAUNCHES_TO_PREDICT,
    LAUNCHES_TO_READ,
    LAUNCHES_TO_REALISE,
    N_LAUNCHES,
    POINTS_OF_A_NORM,
)
from synthesis.noise_reduction import Prediction
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import PathRatio, Synthesizer, predicted, read_paths, realised_wiener
from synthesis.toeplitz import ToeplitzSolver, solve_toeplitz

N_COMMONEST = 6
TOLERANCE = 0.03
"""Of the formulas for the bytes of kernels, relative: they leave out rows of bands and single figures."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's own."""
    machine.add_options(parser)
    ears_module.add_options(parser)
    add_model_options(parser)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, BATCH_SIZES[-1]])
    parser.add_argument("--solver", choices=("fused", "torch"), default="fused", help="of filters")
    parser.add_argument("--quick", action="store_true", help="one update alone: to see that it runs")


def run(options: argparse.Namespace) -> None:
    """Count each stage of each design, print a line for it, write trace.json."""
    device = machine.prepare(options)
    described = machine.describe(device)
    ears = ears_module.chosen(options)
    store = ModelStore(options.store)
    checkpoint = store.load(options.model)
    rows: list[Row] = []
    counted = (1,) if options.quick else UPDATES
    own = checkpoint.synthesizer(torch.float32, "cpu")
    papers = Synthesizer(Generator(GeneratorConfig.prime()), own.reference_psd, own.band_uncertainty).eval()
    papers.generator = for_inference(papers.generator, "cuda")
    for synthesizer in (own, papers):
        # On a processor the paper's generator takes minutes for a large batch; its operators are those of one ear.
        for batch in options.batches if synthesizer is own else options.batches[:1]:
            for k in counted:
                rows += traced(synthesizer, ears, batch, k, options.solver == "fused")
    for row in rows:
        print(
            f"{row['generator']:9} batch {row['batch']} k={row['k']} {row['stage']:12} "
            f"{row['operators']:5d} operators in {row['graphs']} graphs {row['megabytes']:9.3f} MB   "
            + ", ".join(f"{name} {count}" for name, count in row["commonest"].items()),
            flush=True,
        )
    if options.solver == "fused":
        print("Bytes of operators are counted, those of fused kernels formulas that a test holds.", flush=True)
    kernels = []
    if device.type == "cuda":
        models = {
            options.model: resident(store, options.model, device),
            "untrained prime": untrained(store, options.model, GeneratorConfig.prime(), device),
        }
        kernels = [counted_kernels(model, name, ears, k) for name, model in models.items() for k in counted]
        for row in kernels:
            print(
                f"{row['model']} k={row['k']}: {row['kernels']} kernels, {row['busy_ms']:.3f} ms busy", flush=True
            )
    settings = {"model": options.model, "batches": options.batches, "solver": options.solver}
    results.write(options.out, "trace", described, settings, rows, data=ears.data, kernels=kernels)


class Counting(TorchDispatchMode):
    """Counts operators that compute, and their bytes, in `counts` and `bytes` under the name of each."""

    def __init__(self) -> None:
        """Starts at zero."""
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.graphs = 0

    def replayed(self, stage: GraphedStage) -> tuple[Tensor, ...]:
        """Run a stage as a captured graph would, which writes its outputs where they stay."""
        with torch.inference_mode():
            values = stage._call()
            counts, moved = self.counts.copy(), self.bytes.copy()
            for buffer, value in zip(stage.outputs, values, strict=True):
                buffer.copy_(value)
        self.counts, self.bytes = counts, moved
        self.graphs += 1
        return stage.outputs

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator, and count it unless it only looks at memory in another way."""
        with self:  # what it is composed of, where it is composite
            decomposed = func.decompose(*args, **(kwargs or {}))
        if decomposed is not NotImplemented:
            return decomposed
        result = func(*args, **(kwargs or {}))
        touched = [each for each in tree_leaves((args, kwargs or {})) if isinstance(each, Tensor)]
        made = [each for each in tree_leaves(result) if isinstance(each, Tensor)]
        storages = {each.untyped_storage()._cdata for each in touched}
        writes = func._schema.is_mutable
        computes = writes or any(each.untyped_storage()._cdata not in storages for each in made)
        if computes and not func._schema.name.endswith(
            ("::empty", "::empty_like", "::new_empty", "::empty_strided")
        ):
            name = str(func._schema.name).removeprefix("aten::")
            self.counts[name] += 1
            self.bytes[name] += sum(_bytes(each) for each in (*touched, *([] if writes else made)))
        return result

    def as_kernels(self, name: str, n_launches: int, n_bytes: int, function: Callable[[], Any]) -> Any:
        """Run what stands for kernels, and count these instead."""
        counts, moved = self.counts.copy(), self.bytes.copy()
        result = function()
        self.counts, self.bytes = counts, moved
        self.counts[name] += n_launches
        self.bytes[name] += n_bytes
        return result

    def fused(self, symbol: Tensor, matched: Tensor, n: int, **options: Any) -> Solution:
        """A solve as `synthesis.gpu` launches it: by the reference, uncounted.

        Of an ear its kernels read symbol (twice) and right-hand side, write and read a cepstrum of 4 n numbers, the
        3 n of the sequences (3 n again) and the 9 n of the spectra, and write n; of constants 6 rows of 2 n twice
        and 10 of n twice.
        """
        on_grid = symbol.shape[-1] == FAST.n_fft // 2 + 1
        n_bytes = 4 * (symbol.shape[0] * (4 * symbol.shape[-1] + (8 + 6 + 18 + 1) * n) + (24 + 20) * n)
        solution: Solution = self.as_kernels(
            "fused solve",
            N_LAUNCHES * on_grid,
            n_bytes * on_grid,
            lambda: solve_toeplitz(symbol, matched, n, **options),
        )
        return solution

    def read(self, generator: Generator, paths: AcousticPaths) -> PathRatio:
        """What a generator reads as `synthesis.gpu` launches it, where it does: by the reference, uncounted.

        Its kernels read the paths at the bins of the generator's own grid twice, 8 numbers a bin, write and read 5,
        and of constants 10: the transform's, and the weights of the points' hats.
        """
        config = generator.config
        if config.kind == "prime":
            return read_paths(generator, paths)
        n_bins = config.n_fft // 2 + 1
        ratio: PathRatio = self.as_kernels(
            "fused features",
            LAUNCHES_TO_READ,
            4 * (paths.batch_size * (13 * n_bins + 14 * config.n_points) + 10 * n_bins),
            lambda: read_paths(generator, paths),
        )
        return ratio

    def corrected(self, generator: Generator) -> Callable[[Tensor], Tensor]:
        """A generator's layers as `synthesis.gpu` launches them, where it does: by the reference, uncounted.

        The kernel reads the weights, a group's channels filled up to a power of two and a product's columns to 32,
        and the features; it writes and reads what lies between the layers.
        """
        config = generator.config
        if config.kind == "prime":
            own = deepcopy(generator)
            for each in own.modules():
                if isinstance(each, WrittenOutNorm):
                    each.forward = partial(self._normed, each.forward, each.n_groups)  # type: ignore[method-assign]
            return lambda features: own(features)
        in_group = config.n_channels // config.n_groups
        places = config.n_groups * (1 << (in_group - 1).bit_length())
        inner = [config.kernel_size * config.n_channels] * 2 * len(config.dilations)
        columns = [config.kernel_size * N_CHANNELS, *inner, config.n_channels]
        n_weights = places * sum(32 * math.ceil(each / 32) + 3 for each in columns)  # bias and norm beside a row
        n_each = (N_CHANNELS + 2 + 2 * (1 + 2 * len(config.dilations)) * config.n_channels) * config.n_points

        def correct(features: Tensor) -> Tensor:
            correction: Tensor = self.as_kernels(
                "fused layers",
                LAUNCHES_TO_CORRECT,
                4 * (len(features) * n_each + n_weights),
                lambda: generator(features),
            )
            return correction

        return correct

    def _normed(self, norm: Callable[..., Tensor], n_groups: int, hidden: Tensor, *carried: Tensor) -> Tensor:
        """A norm as `synthesis.gpu` launches it: read twice, written once, and read what is carried past it; each
        part's sums written by one program and read by all."""
        n_parts = math.ceil(hidden.shape[-1] / POINTS_OF_A_NORM)
        n_sums = len(hidden) * n_parts * (n_parts + 1) * 2 * n_groups
        n_bytes = 3 * _bytes(hidden) + sum(map(_bytes, carried)) + 4 * n_sums
        made: Tensor = self.as_kernels("fused norms", LAUNCHES_OF_A_NORM, n_bytes, lambda: norm(hidden, *carried))
        return made

    def foreseen(
        self, paths: AcousticPaths, taps: Tensor, learned: Tensor, coherence: Tensor | None, reference_psd: Tensor
    ) -> Prediction:
        """A prediction as `synthesis.gpu` launches it: by the reference, uncounted.

        Its kernels read the paths, the reference and a coherence, and write and read a response; without one they
        read the primary path again, and write and read the early samples' shares and their spectrum. Of constants
        they read the transform's, and the turns of its parts and of the bins.
        """
        own = coherence is None
        n_constant = (3 if own else 0) * paths.n_bins + 3 * paths.n_bins + 2 * taps.shape[-1]
        n_each = (15 if own else 10) * paths.n_bins + (9 if own else 1) * taps.shape[-1]
        prediction: Prediction = self.as_kernels(
            "fused prediction",
            LAUNCHES_TO_PREDICT - (not own),
            4 * (len(taps) * n_each + n_constant),
            lambda: predicted(paths, taps, learned, coherence, reference_psd),
        )
        return prediction

    def realised(
        self,
        generator: Generator,
        paths: AcousticPaths,
        log_paths: Tensor,
        correction: Tensor,
        log_ceiling: Tensor | None,
        solve: ToeplitzSolver,
    ) -> Tensor:
        """A Wiener filter as `synthesis.gpu` launches it: by the reference, uncounted.

        Beside `solve`'s its kernels read and write 24 numbers a bin of the generator's grid, and read 18 constants.
        """
        system: list[Any] = []

        def caught(*given: Any, **options: Any) -> Solution:
            system[:] = given, options
            return solve_toeplitz(*given, **options)

        n_bins = generator.config.n_fft // 2 + 1
        taps: Tensor = self.as_kernels(
            "fused filter",
            LAUNCHES_TO_REALISE,
            4 * (24 * paths.batch_size + 18) * n_bins,
            lambda: realised_wiener(generator, paths, log_paths, correction, log_ceiling, caught),
        )
        solve(*system[0], **system[1])
        return taps

    def begin(self, *arguments: Any, **options: Any) -> Updates:
        """Updates as `synthesis.gpu` launches them: by the reference, uncounted."""
        return _CountedUpdates(self, *arguments, **options)


class _CountedUpdates:
    """The kernels of `synthesis.gpu.refinement` by the reference, on the grid of the `fast` profile.

    Numbers of a bin that they read and write: to begin the reference's on the paths' own grid and 26.5 on the
    profile's, in an update 34 beside the solve's; of constants 7 and 11.
    """

    def __init__(self, counting: Counting, paths: AcousticPaths, *arguments: Any, **options: Any) -> None:
        self._counting = counting
        self._n_bins, self._n_items = FAST.n_fft // 2 + 1, paths.batch_size
        self._updates: Refining = counting.as_kernels(
            "fused updates",
            LAUNCHES_TO_BEGIN,
            4 * (self._n_items * paths.n_bins + 53 * self._n_items * self._n_bins // 2 + 7 * self._n_bins),
            lambda: Refining(paths, *arguments, **options | {"solve": self._solve}),
        )

    def update(self) -> None:
        n_bytes = 4 * (34 * self._n_items + 11) * self._n_bins
        self._counting.as_kernels("fused updates", LAUNCHES_AROUND_A_SOLVE, n_bytes, self._updates.update)
        self._counting.fused(*self._system, **self._options)

    def result(self) -> Refinement:
        return self._updates.result()

    def _solve(self, *system: Any, **options: Any) -> Solution:
        self._system, self._options = system, options
        return solve_toeplitz(*system, **options)


def _bytes(tensor: Tensor) -> int:
    """What lies in memory: an expanded tensor is read from where it is stored."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


class MarkingClock(StageClock):
    """A clock of no times: calls back at the end of each stage."""

    def __init__(self, ended: Callable[[str], None]) -> None:
        """ended: called with the stage's name."""
        super().__init__(torch.device("cpu"))
        self._ended = ended

    def mark(self, stage: str) -> None:
        """The stage ends here."""
        self._ended(stage)


def traced(synthesizer: Synthesizer, ears: Ears, batch: int, k: int, fused: bool = True) -> list[Row]:
    """Operators and bytes of every stage of a design with k updates: one row each, in order.

    fused: what `synthesis.gpu` does counts as its kernels, not as torch's operators.
    """
    schedule = Schedule(synthesizer, batch)
    paths = ears.estimated.to(torch.float32)
    places = ears.batch(0, batch)
    schedule.ears.device.primary.copy_(paths.primary[places])
    schedule.ears.device.secondary.copy_(paths.secondary[places])
    found: dict[str, tuple[Counter[str], Counter[str]]] = defaultdict(lambda: (Counter(), Counter()))
    graphs: Counter[str] = Counter()

    def design(clock: StageClock) -> None:
        with torch.inference_mode():
            schedule.design("prime", k, "fast", clock)
            schedule.predict("model", clock)

    design(MarkingClock(lambda stage: None))  # records the stages
    counting = Counting()
    correct = counting.corrected(synthesizer.generator)
    with counting, ExitStack() as patches:
        patches.enter_context(patch.object(GraphedStage, "run", lambda stage: counting.replayed(stage)))
        if fused:
            patches.enter_context(patch.object(synthesizer, "solve", counting.fused))
            patches.enter_context(patch.object(synthesizer, "read", counting.read))
            patches.enter_context(patch.object(synthesizer, "generate", correct))
            patches.enter_context(patch.object(synthesizer, "foresee", counting.foreseen))
            patches.enter_context(patch.object(synthesizer, "realise", counting.realised))
            patches.enter_context(patch.object(synthesizer, "begin_updates", counting.begin))

        def ended(stage: str) -> None:
            counts, moved = found[stage]
            counts.update(counting.counts)
            moved.update(counting.bytes)
            graphs[stage] += counting.graphs
            counting.graphs = 0
            counting.counts.clear()
            counting.bytes.clear()

        design(MarkingClock(ended))
    return [
        {
            "generator": synthesizer.generator.config.kind,
            "stage": stage,
            "k": k,
            "batch": batch,
            "operators": counts.total(),
            "graphs": graphs[stage],
            "megabytes": round(moved.total() / 1e6, 4),
            "commonest": dict(counts.most_common(N_COMMONEST)),
            "counts": dict(counts),
        }
        for stage, (counts, moved) in found.items()
    ]


def counted_kernels(model: ResidentModel, name: str, ears: Ears, k: int) -> Row:
    """Kernels that a GPU ran for one design, and how long it was busy with them, from torch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    designer = ServiceDesigner(model, ears, Recipe(n_updates=k), net=False)  # an untrained one's would be WMMSE's
    designer([0])
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        designer([0])
        torch.cuda.synchronize()
    events = [each for each in profiler.events() or [] if each.device_type == torch.autograd.DeviceType.CUDA]
    kernels = [each for each in events if not each.name.startswith(("Memcpy", "Memset"))]
    longest = Counter({each.name: 0.0 for each in kernels})
    for each in kernels:
        longest[each.name] += each.device_time
    return {
        "model": name,
        "k": k,
        "kernels": len(kernels),
        "copies": len(events) - len(kernels),
        "busy_ms": sum(each.device_time for each in kernels) / 1e3,
        "longest_us": dict(longest.most_common(N_COMMONEST)),
    }
