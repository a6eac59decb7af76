"""Where the joint objective itself ends: `python -m studies.wearing.limits --data DIR --noise DIR --out FILE`.

Filters for closed and pressed, and for four directions, from true paths and from calibrations under the bundled
model's prior: as served, and in double precision with so many updates that none lowers the objective, which as
served weighs the worst band by 0.4 and bounds |W|, and in the paper has 0.05 and no bound. Scored on true paths.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from model_store.store import BUNDLED_ROOT, ModelStore
from studies.wearing.__main__ import (
    CLOSED,
    N_UPDATES,
    PRESSED,
    SNR_DB,
    Designer,
    Directions,
    Row,
    condition,
    spread,
)
from synthesis.gauss_newton import refine
from synthesis.paths import AcousticPaths
from synthesis.profiles import FINE, PAPER, RefinementProfile
from synthesis.types import Float32, Paths
from training.datasets.noise import NoiseSet, read_noise
from training.datasets.pandar import read_directions, read_handling
from training.datasets.path_pairs import DatasetError, PathPair
from training.simulated_calibration import simulate_calibration

N_TO_CONVERGE = 60
N_GIVEN = 4
N_STARTS = 6
CONVERGING = replace(FINE, damping=1e-4, n_iterations=40, tolerance=1e-9)
OBJECTIVES = {
    "as served": CONVERGING,
    "paper's": replace(CONVERGING, risk_weight=PAPER.risk_weight, ceiling_weight=0.0),
}
BUNDLED = ModelStore(BUNDLED_ROOT).load("default").parameters


def converged(conditions: Sequence[Paths], taps: Float32, profile: RefinementProfile) -> Float32:
    """The taps after updates in double precision."""
    primary, secondary = (
        torch.from_numpy(np.stack([getattr(each, name) for each in conditions])).double()
        for name in ("primary", "secondary")
    )
    found = refine(
        AcousticPaths.from_impulse_responses(primary, secondary),
        torch.from_numpy(taps[None]).double(),
        torch.from_numpy(BUNDLED.reference_psd).double(),
        n_updates=N_TO_CONVERGE,
        profile=profile,
        shares=torch.full((len(conditions),), 1 / len(conditions), dtype=torch.float64),
    )
    return np.asarray(found.taps[0].float().numpy(), np.float32)


def calibrated(pairs: Sequence[PathPair], noise: NoiseSet) -> list[Paths]:
    """The pairs as `/calibrate` estimates them."""
    found = simulate_calibration(pairs, noise, snr_db=SNR_DB, prior=BUNDLED.path_prior)
    return [Paths(*(each[n].float().numpy() for each in found.values()[:2])) for n in range(len(pairs))]


def filters(designer: Designer, pairs: Sequence[PathPair], noise: NoiseSet) -> Iterator[tuple[Row, Float32]]:
    """Every design for the pairs, with what it is."""
    for paths, conditions in {
        "true": [condition(each) for each in pairs],
        "calibrated": calibrated(pairs, noise),
    }.items():
        taps = designer.design(conditions).taps
        yield {"paths": paths, "objective": "as served", "updates": str(designer.n_updates)}, taps
        for name, profile in OBJECTIVES.items():
            yield (
                {"paths": paths, "objective": name, "updates": "converged"},
                converged(conditions, taps, profile),
            )


def study(
    designer: Designer, directions: Sequence[PathPair], cases: Sequence[PathPair], noise: NoiseSet
) -> Iterator[Row]:
    """All rows: of what was given, of directions that no filter knew, and the loudest band of any."""
    for side in ("left", "right"):
        by_label = {each.label: each for each in cases if each.ear == side}
        worn = [by_label[CLOSED], by_label[PRESSED]]
        for what, taps in filters(designer, worn, noise):
            scores = designer.score(taps, worn)
            figures = {"mean_db": scores.mean(), "worst_db": scores.min()}
            yield {"ear": side, "case": "closed and pressed"} | what | figures | _loudest(designer, taps, worn)
        own: Directions = [each for each in directions if each.ear == side]
        for start in np.unique(np.linspace(0, len(own) // N_GIVEN, N_STARTS, endpoint=False).astype(int)).tolist():
            given = spread(start, N_GIVEN, len(own))
            left_out = [each for n, each in enumerate(own) if n not in given]
            for what, taps in filters(designer, [own[n] for n in given], noise):
                scores = designer.score(taps, left_out)
                figures = {"mean_db": scores.mean(), "worst_db": scores.min()}
                yield {"ear": side, "case": "directions"} | what | figures | _loudest(designer, taps, left_out)


def _loudest(designer: Designer, taps: Float32, pairs: Sequence[PathPair]) -> Row:
    return {"loudest_db": -min(each.noise_reduction_db.min() for each in designer.predicted(taps, pairs))}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the rows and print their means over starts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="any level of the PANDAR database")
    parser.add_argument("--noise", type=Path, required=True, help="folder of 48-kHz noises, which calibrate")
    parser.add_argument("--out", type=Path, required=True, help="CSV file of the rows")
    request = parser.parse_args(arguments)
    try:
        directions, cases = (read(request.data).pairs for read in (read_directions, read_handling))
        noise = read_noise(request.noise)
    except DatasetError as error:
        print(f"limits: {error}", file=sys.stderr)
        return 2
    rows = pd.DataFrame(study(Designer(N_UPDATES), directions, cases, noise))
    rows.to_csv(request.out, index=False, float_format="%.2f")
    grouped = rows.groupby(["case", "paths", "objective", "updates", "ear"], sort=False)
    print(grouped.mean(numeric_only=True).to_string(float_format="%.2f"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
