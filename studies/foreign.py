"""Design for systems that are no earphone of ours.

Simulated ducts, rooms, windows, headrests and headsets, measured pairs of other devices (`.npz` with `primary`,
`secondary` and `sample_rate`, both ways) and the directions of PANDAR's dummy head are sent as responses to the model
that knows no device. Its filters are scored in float64 on these paths, beside exact WMMSE and the filter to which J
converges; a filter for their calibration (white noise, 4 s; SNR in turn none, 40, 20 dB) is scored on them, too. There
is a row per system, way and number of updates.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.signal import resample_poly

from prime_anc.measure.calibration import Calibration, calibrate
from prime_anc.measure.checks import judge
from prime_anc.method.bands import NR_BANDS, WIDE_BANDS, band_membership, columns
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from prime_anc.method.design import design
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.predict import POWER_FLOOR
from prime_anc.method.profiles import FAST, MAX_UPDATES, settling
from prime_anc.method.start.wiener import design_wmmse
from prime_anc.method.types import Design, Fallback, Model
from prime_anc.method.updates.update import refine
from studies import Request, Row, Work, as_sent, bundled, problem, served
from training.datasets.noise import white_noise
from training.datasets.pandar import read_directions
from training.datasets.path_pairs import Float64
from training.datasets.simulated_systems import simulate_system
from training.simulated_calibration import record

MODEL = Model.on("cpu", bundled("generic"))
PSD = torch.from_numpy(MODEL.parameters.reference_psd).double()
MEMBERSHIP = band_membership(WIDE_BANDS, DESIGN_N_FFT)
SCORED = columns(NR_BANDS)
N_SIMULATED = 200
UPDATES = (1, 3, MAX_UPDATES)
SNRS_DB = (200.0, 40.0, 20.0)
# Power of a band over the loudest one's below which a louder band is not heard.
SILENT = 1e-6
# Cost of a ceiling that a warning states.
STATED_DB = 0.2
BEHIND_DB, OPTIMISTIC_DB, LOUDER_DB = 0.3, 3.0, 1.0


def systems(
    n_simulated: int, seed: int, foreign: Path | None, data: Path | None = None
) -> Iterator[tuple[str, str, Float64, Float64]]:
    """Yield kind, name and both paths of all systems."""
    for n in range(n_simulated):
        system = simulate_system(n, seed)
        yield system.kind, f"{system.kind} {n}, seed {seed}", system.primary, system.secondary
    for file in sorted(foreign.glob("*.npz")) if foreign else []:
        with np.load(file) as arrays:
            held = dict(arrays)
        ratio = Fraction(SAMPLE_RATE_HZ, int(held.get("sample_rate", 44_100)))
        pair = [resample_poly(held[name], ratio.numerator, ratio.denominator) for name in ("primary", "secondary")]
        yield "measured", file.stem, pair[0], pair[1]
        yield "measured", f"{file.stem}, exchanged", pair[1], pair[0]
    for n, worn in enumerate(read_directions(data).pairs if data else []):
        yield "dummy head", f"dummy head {n}", worn.primary, worn.secondary


def rows_of(kind: str, name: str, primary: Float64, secondary: Float64) -> list[Row]:
    """Design for a system as sent and as exact, and compare."""
    p, s = (torch.from_numpy(path.astype(np.float32)).double()[None] for path in (primary, secondary))
    paths = AcousticPaths.from_impulse_responses(p, s)
    sent = problem(primary, secondary)
    made = {k: design(sent, served(sent, k), MODEL, Fallback()) for k in UPDATES}
    wmmse = design_wmmse(paths, PSD)
    starts = [wmmse, torch.from_numpy(made[MAX_UPDATES].taps)[None].double()]
    (known,) = made[1].known
    compared: Row = {
        "wmmse_db": bands_db(paths, wmmse[0].numpy())[0][SCORED].mean(),
        "converged_db": max(
            bands_db(paths, converged(paths, taps, known.assumed))[0][SCORED].mean() for taps in starts
        ),
    }
    case: Row = {"kind": kind, "system": name}
    rows = [case | {"way": "sent", "k": k} | compared | scored(paths, item) for k, item in made.items()]
    found = calibrated(name, primary, secondary)
    estimated = as_sent(found)
    measured = design(estimated, served(estimated, 3), MODEL, Fallback())
    codes = " ".join(reason.code for reason in judge(found, None).reasons)
    return [*rows, case | {"way": "calibrated", "k": 3, "codes": codes} | scored(paths, measured)]


def calibrated(name: str, primary: Float64, secondary: Float64) -> Calibration:
    """Measure a system."""
    seed = zlib.crc32(name.encode())
    takes = record(white_noise(1)[None, : 4 * SAMPLE_RATE_HZ], (primary, secondary), SNRS_DB[seed % 3], [seed])
    return calibrate(takes)


def converged(paths: AcousticPaths, taps: torch.Tensor, uncertainty: NDArray[np.floating]) -> Float64:
    """Return the filter at which J no longer falls, in float64 from the given one."""
    unknown = torch.from_numpy(uncertainty).double()[None]
    found = refine(paths, taps, PSD, n_updates=3 * MAX_UPDATES, profile=settling(FAST), uncertainty=unknown)
    return np.asarray(found.taps[0])


def bands_db(paths: AcousticPaths, taps: NDArray[np.floating]) -> tuple[Float64, NDArray[np.bool_]]:
    """Return the noise reduction in 31 bands, and whether the system has power in them."""
    p, s = (item[0].numpy() for item in (paths.primary, paths.secondary))
    left = p - s * np.fft.rfft(taps.astype(float), DESIGN_N_FFT)
    before, after = ((PSD.numpy() * np.abs(item) ** 2) @ MEMBERSHIP for item in (p, left))
    silence = POWER_FLOOR * before.max()
    return 10 * np.log10((before + silence) / (after + silence)), before > SILENT * before.max()


def scored(paths: AcousticPaths, made: Design) -> Row:
    """Compare a design's prediction with its score."""
    (found, is_loud), predicted = bands_db(paths, made.taps), made.prediction
    is_unsaid = ~np.isin(WIDE_BANDS, predicted.louder_bands + predicted.unknown_bands)
    louder = (found < -LOUDER_DB) & is_loud & is_unsaid
    return {
        "true_db": found[SCORED].mean(),
        "predicted_db": predicted.mean_noise_reduction_db,
        "interval_db": predicted.interval_db,
        "ceiling_cost_db": made.ceiling_cost_db or 0.0,
        "method": made.method,
        "louder_unsaid_db": -found[louder].min() if louder.any() else 0.0,
    }


def cases(request: Request) -> dict[str, Work]:
    """Return a case per system."""
    every = systems(N_SIMULATED, 0, request.foreign, request.data)
    return {name: partial(rows_of, kind, name, *paths) for kind, name, *paths in every}


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Count what must hold, per way and number of updates."""
    error = rows.predicted_db - rows.true_db
    is_free = rows.ceiling_cost_db <= STATED_DB
    counted = rows.assign(
        systems=1,
        below_wmmse_unsaid=is_free & (rows.wmmse_db - rows.true_db > BEHIND_DB),
        louder_unsaid=rows.louder_unsaid_db > 0,
        within_interval=error.abs() <= rows.interval_db + 0.01,
        too_optimistic=error > OPTIMISTIC_DB,
        bias_db=error,
        to_converged_db=(rows.converged_db - rows.true_db)[is_free],  # others state what the ceiling costs
    )
    by = counted.groupby(["way", "k"])
    counts = by[["systems", "below_wmmse_unsaid", "louder_unsaid", "too_optimistic"]].sum()
    means = by[["within_interval", "bias_db"]].mean()
    return counts.join(means).join(by.to_converged_db.agg(["median", "max"]).add_prefix("to_converged_db "))
