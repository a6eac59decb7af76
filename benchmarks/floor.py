"""`python -m benchmarks floor`: what each stage must compute and move at the least, from its mathematics.

Sizes are read from the model's configuration and the refinement's profile, so the table follows them. A real
transform of n points counts 2.5 n log2 n operations (half of a complex one). Bytes are a stage's own inputs and
outputs in float32, each once: what is in between fits a cache, or a GPU block's shared memory. Barriers are the
steps that need all of the step before: transforms, convolutions, reductions over frequency. A stage takes as many
launches when each step is one kernel with the element-wise work around it inside, and one when it is one kernel.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from dataclasses import dataclass, field

from benchmarks import machine, results
from benchmarks.core import UPDATES, add_model_options
from benchmarks.results import Row
from model_store.store import ModelStore
from synthesis.conventions import DESIGN_N_FFT, N_TAPS
from synthesis.features import N_CHANNELS
from synthesis.fir_wiener import N_ITERATIONS
from synthesis.gauss_newton import FAST, RefinementProfile
from synthesis.generator import N_OUTPUTS, GeneratorConfig
from synthesis.octave_bands import WIDE_BANDS

FLOAT, COMPLEX = 4, 8
N_POOLED = N_CHANNELS + 2
"""The twelve channels and the two log magnitudes that weight and penalty start from."""
PER_BIN = {"path_ratio": 90, "reconstruct": 60, "refine": 30, "update": 120, "predict": 40}
"""Element-wise operations a bin, counted off the equations, a logarithm or an exponential as one."""


@dataclass
class Work:
    """Of one stage: transforms by their points, other operations, bytes in and out, barriers."""

    transforms: Counter[int] = field(default_factory=Counter)
    other_operations: float = 0.0
    n_bytes: float = 0.0
    n_barriers: int = 0

    @property
    def transform_operations(self) -> float:
        """2.5 n log2 n each."""
        return sum(count * 2.5 * n * math.log2(n) for n, count in self.transforms.items())

    def row(self, stage: str, k: int) -> Row:
        """In plain values."""
        return {
            "stage": stage,
            "k": k,
            "transforms": {str(n): count for n, count in sorted(self.transforms.items())},
            "transform_megaflop": round(self.transform_operations / 1e6, 3),
            "megaflop": round((self.transform_operations + self.other_operations) / 1e6, 3),
            "kilobytes": round(self.n_bytes / 1e3, 1),
            "barriers": self.n_barriers,
        }


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's own."""
    machine.add_options(parser)
    add_model_options(parser)


def run(options: argparse.Namespace) -> None:
    """Print the floor of the model and of the paper's generator stage by stage, write floor.json."""
    described = machine.describe(machine.prepare(options))
    own = ModelStore(options.store).load(options.model).generator.config
    rows = [row for config in (own, GeneratorConfig.prime()) for row in of_generator(config)]
    results.write(options.out, "floor", described, {"model": options.model, "generator": own.to_dict()}, rows)


def of_generator(config: GeneratorConfig) -> list[Row]:
    """The rows of its designs, printed as a markdown table."""
    rows: list[Row] = [
        {"generator": config.kind} | work.row(stage, k)
        for k in UPDATES
        for stage, work in stages(config, FAST, k).items()
    ]
    print(f"\n| {config.kind} | transforms (points: how many) | MFLOP | kB in and out | barriers |")
    print("|---|---|---|---|---|")
    shown: set[str] = set()
    for row in rows:
        name = row["stage"] + (f", k = {row['k']}" if row["stage"] == "refine" else "")
        if name not in shown:
            shown.add(name)
            transforms = ", ".join(f"{n}: {count}" for n, count in row["transforms"].items()) or "none"
            print(f"| {name} | {transforms} | {row['megaflop']:.2f} | {row['kilobytes']:.0f} | {row['barriers']} |")
    return rows


def stages(config: GeneratorConfig, profile: RefinementProfile, k: int) -> dict[str, Work]:
    """Every stage of a design with k updates, without a coherence, one ear."""
    return {
        "path_ratio": path_ratio(config),
        "generate": generate(config),
        "reconstruct": reconstruct(config),
        "refine": refine(profile, k),
        "predict": predict(),
    }


def bins(n_fft: int) -> int:
    """Of a one-sided spectrum."""
    return n_fft // 2 + 1


def n_points(config: GeneratorConfig) -> int:
    """Frequencies that the network sees."""
    return bins(config.n_fft) if config.kind == "prime" else config.n_points


def path_ratio(config: GeneratorConfig) -> Work:
    """One minimum-phase response, and each bin into the two points on either side of it."""
    n, points = config.n_fft, n_points(config)
    pooling = 0 if config.kind == "prime" else N_POOLED * 4 * bins(n)
    return Work(
        Counter({n: 2}),
        PER_BIN["path_ratio"] * bins(n) + pooling,
        2 * COMPLEX * bins(n) + FLOAT * N_POOLED * points,
        5 if pooling else 4,  # largest magnitude, two transforms, statistics, pooling
    )


def generate(config: GeneratorConfig) -> Work:
    """The convolutions; norms and activations are a few operations a value."""
    width, points, outputs = config.n_channels, n_points(config), N_OUTPUTS[config.realisation]
    inner = 2 * len(config.dilations)
    weights = config.kernel_size * width * (N_CHANNELS + inner * width) + width * width + width * outputs
    return Work(
        Counter(),
        2 * weights * points + 10 * (inner + 2) * width * points,
        FLOAT * (weights + N_CHANNELS * points + outputs * points),
        inner + 3,  # stem, blocks, the head's two layers
    )


def reconstruct(config: GeneratorConfig) -> Work:
    """Spectral factorisation of the weight, and a filter of it; see the module that realises it."""
    if config.realisation == "minimum_phase":
        n, transforms, barriers = config.n_fft, Counter({config.n_fft: 3}), 3
    else:
        n = config.n_fft
        transforms, barriers = solve(n, "gohberg_semencul", N_ITERATIONS)
        transforms += Counter({n: 4})  # the ceiling: a response, its excess there and back, the taps
        barriers += 4
    values = FLOAT * (n_points(config) * (2 + N_OUTPUTS[config.realisation]) + N_TAPS)
    return Work(transforms, PER_BIN["reconstruct"] * bins(n), 2 * COMPLEX * bins(n) + values, barriers)


def solve(n_fft: int, preconditioner: str, n_iterations: int) -> tuple[Counter[int], int]:
    """A Toeplitz system of N_TAPS unknowns from its symbol on n_fft points: transforms, and barriers.

    Column and right-hand side are two transforms; the operator's own spectrum one of twice the taps, a product two.
    Gohberg and Semencul's inverse: a minimum-phase factor (two), its inverse's response (one), the spectrum of that
    on twice the taps, which is the reversed one's too, and six an iteration.
    """
    both = 2 * N_TAPS
    transforms = Counter({n_fft: 2, both: 1 + 2 * n_iterations})
    if preconditioner == "gohberg_semencul":
        transforms += Counter({n_fft: 3, both: 1 + 6 * n_iterations})
        return transforms, 1 + 5 + n_iterations * (4 + 2 + 2)
    return transforms, 1 + 1 + n_iterations * (2 + 2)


def refine(profile: RefinementProfile, k: int) -> Work:
    """The start's response once; an update solves a system and transforms its step, trials cost no transform."""
    n = profile.n_fft
    work = Work(
        Counter({n: 1}), PER_BIN["refine"] * bins(n), 2 * COMPLEX * bins(n) + FLOAT * (bins(n) + 2 * N_TAPS), 2
    )
    per_iteration = 12 * N_TAPS
    for _ in range(k):
        transforms, barriers = solve(n, profile.preconditioner, profile.n_iterations)
        work.transforms += transforms + Counter({n: 1})
        work.other_operations += PER_BIN["update"] * bins(n) + per_iteration * profile.n_iterations
        work.n_barriers += barriers + 3  # the step's response, band powers, the choice of its length
    return work


def predict() -> Work:
    """The filter's response, and the estimate's late part there and back; every bin into its band."""
    n = DESIGN_N_FFT
    return Work(
        Counter({n: 3}),
        PER_BIN["predict"] * bins(n),
        2 * COMPLEX * bins(n) + FLOAT * (bins(n) + N_TAPS + len(WIDE_BANDS)),
        4,
    )
