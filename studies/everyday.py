"""Measure with everyday recordings as probes: `python -m studies.everyday --data DIR --noise DIR --out FILE`.

Every ear is measured with six seconds of recordings, an airplane-like noise (nothing above 8 kHz) and white noise,
without and with noise of the error microphone. The model that knows no device designs from all of `/calibrate`'s
answer; filters are scored on the true paths, beside WMMSE's. FILE has a row per ear, probe, SNR, method and k.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from model_store.store import BUNDLED_ROOT, ModelStore
from prime_anc.measure.calibration import calibrate
from prime_anc.measure.checks import judge
from prime_anc.method.bands import WIDE_BANDS
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from prime_anc.method.design import design, predict_all
from prime_anc.method.errors import answer_or_raise
from prime_anc.method.types import Fallback, Model
from prime_anc.options import Method
from studies import Row, as_sent, problem, record, run, served
from training.datasets.noise import NoiseSet, white_noise
from training.datasets.path_pairs import PathDataset, PathPair
from training.datasets.synthetic_noise import AIRPLANE, airplane_noise

N = 6 * SAMPLE_RATE_HZ
DESIGNS: tuple[tuple[Method, int], ...] = (
    ("wmmse", 0),
    ("wmmse", 3),
    ("fir_wiener", 1),
    *(("prime", k) for k in (0, 1, 3)),
)
NONE_DB = 300.0
SNRS_DB = (NONE_DB, 30.0, 20.0)


def rows_of(n: int, pair: PathPair, noise: NoiseSet) -> list[Row]:
    """Compute the rows of one ear; recordings take turns over ears."""
    model = Model.on("cpu", ModelStore(BUNDLED_ROOT).load("generic").parameters)
    recorded = {f"recording {k}": noise.signals[(n + k) % noise.n_recordings] for k in range(2)}
    probes = recorded | {AIRPLANE: airplane_noise(0), "white": white_noise(0)}
    paths, rows = (pair.primary, pair.secondary), []
    truth = problem(*paths)
    for place, (name, signal) in enumerate(probes.items()):
        for snr_db in SNRS_DB:
            found = calibrate(record(signal[None, :N], paths, snr_db, [n, place, int(snr_db)]))
            sent, verdict = as_sent(found), judge(found, None)
            for method, k in DESIGNS:
                made = design(sent, served(sent, k, method), model, Fallback())
                score = answer_or_raise(predict_all([truth], [made.taps], model, is_true=True)[0])
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


def study(dataset: PathDataset, noise: NoiseSet, request: argparse.Namespace) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Measure, design, score and count."""
    pairs = dataset.pairs[: 1 if request.quick else None]
    found = Parallel(request.workers)(delayed(rows_of)(n, pair, noise) for n, pair in enumerate(pairs))
    rows = pd.DataFrame([row for ear in found for row in ear]).round(3)
    error = rows.said_db - rows.true_db
    rows = rows.assign(within=error.abs() <= rows.interval_db, error_db=error)
    by = rows.groupby(["probe", "snr_db", "method", "k"], sort=False)
    table = by[["true_db", "said_db", "amp_db", "within", "passed"]].mean()
    return rows, table.join(by.true_db.min().rename("worst_db")).join(by[["error_db", "louder_unsaid_db"]].max())


if __name__ == "__main__":
    sys.exit(run(__doc__, study))
