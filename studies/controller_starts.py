"""Choose the starts of controllers' fits: `python -m studies.controller_starts --data DIR --out FILE`.

Controllers are fitted to measured ears, to pairs of ears, to ears worn in two ways and to simulated headsets and
headrests, from the present starts and jittered ones. Each answer then starts a fit to every other system; FILE
(`hardware/controller_starts.csv`) holds those from which the best fits come. Directions and handling cases are left to
`studies.hybrid`, which scores on them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model_store.store import BUNDLED_ROOT, ModelStore
from prime_anc.hardware.controller_fit import BARRIER_WEIGHT, N_OF_START, ControllerFit, LoopProblem, start_roots
from prime_anc.hardware.plants import Ear, lent_plants, loop_problem, plant_of
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from prime_anc.method.design import design
from prime_anc.method.types import DesignOptions, Model, Paths, Problem
from prime_anc.options import ControllerFields
from studies import problem
from training.datasets.pandar import read_pandar
from training.datasets.simulated_systems import simulate_system

Real = NDArray[np.float64]
OPTIONS = DesignOptions("prime", 3, "fine")
LATENCIES, RATES = (0.0, 2.0, 4.0), (1, 1, 4, 8)  # samples of 48 kHz; chips' rates over it
N_PAIRS, N_SIMULATED, KINDS = 30, 240, ("headset", "headrest")
# Jittered copies per start, by so many nepers; rows and steps on half of the sub-bands, and on all.
N_JITTERED, SPREAD, N_COARSE, N_KEPT, N_FINE = 3, 0.4, 60, 4, 150
# Starts to choose, and the steps after which they are compared.
N_CHOSEN, N_COMPARED = 24, 40
# J (nepers) above the best at which a system counts as missed.
MISSED = 3.0
HEADER = "start,pole_hz,pole_quality,zero_hz,zero_quality"


def posed(item: Problem, model: Model, wanted: ControllerFields) -> LoopProblem:
    """Pose the fit of a controller to what a filter leaves, as `design_hybrid` first does."""
    plants = [plant_of(item, paths, "") for paths in item.conditions] + lent_plants(item, model.parameters)
    ear = Ear(item, design(item, OPTIONS, model), plants)
    return loop_problem([ear], wanted, model.parameters.reference_psd, np.zeros(0, np.intp))


def systems(data: Path, random: np.random.Generator) -> Iterator[tuple[str, LoopProblem]]:
    """Yield the kind and the loops of all systems."""
    ours, unknown = (
        Model.on("cpu", ModelStore(BUNDLED_ROOT).load(name).parameters) for name in ("bose-qc20", "generic")
    )
    pairs = read_pandar(data).pairs

    def wanted(latency: float, rate: int = 1) -> ControllerFields:
        return ControllerFields(latency_us=1e6 * latency / SAMPLE_RATE_HZ, sample_rate=float(rate * SAMPLE_RATE_HZ))

    for pair in pairs:
        (paths,) = problem(pair.primary, pair.secondary).conditions
        for latency in LATENCIES:
            yield "ear", posed(Problem((paths,), latency_samples=latency), ours, wanted(latency))
        change = ours.parameters.wearing[random.integers(len(ours.parameters.wearing))]
        worn = change.applied(np.fft.rfft(pair.secondary, DESIGN_N_FFT)).astype(np.complex64)
        both = Problem((paths, Paths(paths.primary, worn)), latency_samples=random.choice(LATENCIES))
        yield "worn", posed(both, ours, wanted(both.latency_samples))
    for _ in range(N_PAIRS):
        two = random.choice(len(pairs), 2, replace=False)
        paths_of_two = tuple(problem(pairs[n].primary, pairs[n].secondary).conditions[0] for n in two)
        latency = random.choice(LATENCIES)
        yield "pair", posed(Problem(paths_of_two, latency_samples=latency), ours, wanted(latency))
    for n in range(N_SIMULATED):
        system = simulate_system(n)
        if system.kind in KINDS:
            chip = wanted(random.choice(LATENCIES), int(random.choice(RATES)))
            yield system.kind, posed(problem(system.primary, system.secondary), unknown, chip)


def answer(loops: LoopProblem, random: np.random.Generator) -> tuple[Real, float]:
    """Return the roots of the best controller found, sections in the order of their effect, and J."""
    coarse = ControllerFit(loops.halved(), N_OF_START)
    tried = np.tile(start_roots(), (1 + N_JITTERED, 1, 1))
    tried[len(start_roots()) :] += random.normal(0, SPREAD, tried[len(start_roots()) :].shape)
    rows = coarse.steps(coarse.starts(tried)[0], N_COARSE, BARRIER_WEIGHT)[:N_KEPT]
    fit = ControllerFit(loops, N_OF_START)
    fit.sign = coarse.sign
    rows, value = fit.descend(fit.inside(rows), N_FINE, BARRIER_WEIGHT)
    roots = rows[value.argmin(), :-1].reshape(4, N_OF_START)
    roots[0::2] = np.log(np.arctan(np.exp(roots[0::2])) * fit.sample_rate_hz / np.pi)
    others = roots[:, :-1]  # the last section is 0 at 0 Hz
    for n in (0, 2):  # each pole beside the nearest zero
        others[n : n + 2] = others[n : n + 2, others[n].argsort()]
    effect = np.abs(others[:2] - others[2:]).sum(0)
    roots[:, :-1] = others[:, (-effect).argsort()]
    return roots, float(value.min())


def behind(loops: LoopProblem, roots: Real) -> Real:
    """Return J after few steps from each start, [n_starts]."""
    fit = ControllerFit(loops.halved(), N_OF_START)
    return fit.descend(fit.starts(roots)[0], N_COMPARED, BARRIER_WEIGHT)[1]


def chosen(values: Real, weights: Real) -> list[int]:
    """Choose starts, one after another, from J of all systems and starts: [n_systems, n_starts]."""
    cost = np.minimum(values - values.min(1, keepdims=True), MISSED)
    found: list[int] = []
    reached = np.full(len(cost), MISSED)
    for _ in range(N_CHOSEN):
        found.append(int((weights @ np.minimum(reached[:, None], cost)).argmin()))
        reached = np.minimum(reached, cost[:, found[-1]])
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Choose starts and write the file: some 15 minutes on one core."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="any level of the PANDAR database")
    parser.add_argument("--out", type=Path, required=True, help="CSV file of the starts")
    request = parser.parse_args(arguments)
    random = np.random.default_rng(0)
    found = list(systems(request.data, random))
    roots = []
    for n, (kind, loops) in enumerate(found):
        answered, value = answer(loops, random)
        roots.append(answered)
        print(f"{n + 1} of {len(found)}, {kind}: J {value:.3f}", flush=True)
    values = np.array([behind(loops, np.array(roots)) for _, loops in found])
    kinds = [kind for kind, _ in found]
    weights = np.array([1 / kinds.count(kind) for kind in kinds])
    rows = [(n, *section) for n, start in enumerate(chosen(values, weights)) for section in np.exp(roots[start]).T]
    np.savetxt(request.out, rows, fmt=["%d", *["%.4g"] * 4], delimiter=",", header=HEADER, comments="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
