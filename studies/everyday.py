"""Measure with everyday recordings as probes.

Every ear is measured with six seconds of recordings, an airplane-like noise (nothing above 8 kHz) and white noise,
without and with noise of the error microphone. The model that knows no device designs from all of `/calibrate`'s
answer; filters are scored on the true paths, beside WMMSE's. There is a row per ear, probe, SNR, method and k.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from prime_anc.measure.calibration import calibrate
from prime_anc.measure.checks import judge
from prime_anc.method.bands import WIDE_BANDS
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from prime_anc.method.design import design
from prime_anc.method.types import Fallback, Model
from prime_anc.options import Method
from studies import Request, Row, Work, as_sent, bundled, scored, served, true_paths
from training.datasets.noise import NoiseSet, white_noise
from training.datasets.path_pairs import PathPair
from training.datasets.synthetic_noise import AIRPLANE, airplane_noise
from training.simulated_calibration import record

N = 6 * SAMPLE_RATE_HZ
DESIGNS: tuple[tuple[Method, int], ...] = (
    ("wmmse", 0),
    ("wmmse", 3),
    ("fir_wiener", 1),
    *(("prime", k) for k in (0, 1, 3)),
)
KINDS = ("recording", AIRPLANE, "white")
NONE_DB = 300.0
SNRS_DB = (NONE_DB, 30.0, 20.0)


def rows_of(n: int, pair: PathPair, noise: NoiseSet, kinds: Sequence[str] = KINDS) -> list[Row]:
    """Compute the rows of one ear with some kinds of probe; recordings take turns over ears."""
    model = Model.on("cpu", bundled("generic"))
    recorded = {f"recording {k}": noise.signals[(n + k) % noise.n_recordings] for k in range(2)}
    probes = recorded | {AIRPLANE: airplane_noise(0), "white": white_noise(0)}
    paths, truth, rows = (pair.primary, pair.secondary), true_paths(pair), []
    for place, (name, signal) in enumerate(probes.items()):
        for snr_db in SNRS_DB if name.partition(" ")[0] in kinds else ():
            calibration = calibrate(record(signal[None, :N], paths, snr_db, [n, place, int(snr_db)]))
            sent, verdict = as_sent(calibration), judge(calibration, None)
            for method, k in DESIGNS:
                made = design(sent, served(sent, k, method), model, Fallback())
                score = scored(truth, made.taps, model)
                said = made.prediction.louder_bands + made.prediction.unknown_bands
                louder = -score.band_reduction_db[~np.isin(WIDE_BANDS, said)]
                rows.append(
                    {"probe": name.partition(" ")[0], "snr_db": snr_db, "method": method, "k": k, "ear": pair.name}
                    | {"true_db": score.mean_noise_reduction_db, "amp_db": score.amplification_db}
                    | {"said_db": made.prediction.mean_noise_reduction_db}
                    | {"interval_db": made.prediction.interval_db, "louder_unsaid_db": louder.max(initial=0.0)}
                    | {"noise_cost_db": verdict.noise_cost_db, "passed": verdict.passed}
                )
    return rows


def cases(request: Request) -> dict[str, Work]:
    """Return a case per ear."""
    return {pair.name: partial(rows_of, n, pair, request.noise) for n, pair in enumerate(request.dataset.pairs)}


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Average over ears."""
    error = rows.said_db - rows.true_db
    rows = rows.assign(within=error.abs() <= rows.interval_db, error_db=error)
    by = rows.groupby(["probe", "snr_db", "method", "k"], sort=False)
    means = by[["true_db", "said_db", "amp_db", "within", "passed"]].mean()
    return means.join(by.true_db.min().rename("worst_db")).join(by[["error_db", "louder_unsaid_db"]].max())
