"""Measure which mistakes in a measurement are found: `python -m studies.mistakes --data DIR --noise DIR --out FILE`.

Every ear is measured with every kind of probe, correctly and with every mistake, and judged with the statistics of the
other persons' ears: by the verdict of `/calibrate` and, for mistakes in the paths that a request holds, by the
warnings of `/refine`. Loss: noise reduction of the bundled model's filter (k = 1) against that of a measurement
with white noise and no other noise. FILE has a row per endpoint, mistake, probe and SNR, counted over ears.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy.signal import fftconvolve

from measurement.calibration import Calibration, calibrate
from measurement.checks import judge
from measurement.estimate import GainTake
from model_store.store import BUNDLED_ROOT, ModelStore
from studies import problem, run
from synthesis.conventions import SAMPLE_RATE_HZ
from synthesis.design import design, predict_all
from synthesis.errors import SynthesisError, answer_or_raise
from synthesis.model import Model
from synthesis.plausibility import SupportPrior, find_implausible
from synthesis.support_statistics import learn_support_statistics
from synthesis.types import DesignOptions
from training.datasets.mistakes import PATH_MISTAKES, REQUEST_MISTAKES, TAKE_MISTAKES, Real, Responses, Takes
from training.datasets.noise import TARGET_RMS, NoiseSet, pink_noise, white_noise
from training.datasets.path_pairs import PathDataset, PathPair
from training.measurements import priors_of_others
from training.simulated_calibration import PROBE_GAIN, simulate_calibration

Row = dict[str, object]
SNRS_DB, COSTLY_DB, N = (30.0, 40.0, 50.0), 0.5, 4 * SAMPLE_RATE_HZ


def probe_signals(noise: NoiseSet) -> dict[str, Real]:
    """Return probes of four seconds, [n_takes, n]: white, pink, a sweep 20 Hz to 20 kHz, every second recording."""
    phase = 2 * np.pi * 20 * N / SAMPLE_RATE_HZ / np.log(1000) * np.expm1(np.log(1000) * np.arange(N) / N)
    single = {"white": white_noise(0), "pink": pink_noise(0), "sweep": np.sqrt(2) * TARGET_RMS * np.sin(phase)}
    return {name: x[None, :N] for name, x in single.items()} | {"pool": noise.signals[: noise.n_recordings : 2, :N]}


def record(probes: Real, paths: Responses, snr_db: float, seed: Sequence[int], driven: Real | None = None) -> Takes:
    """Record both states per probe; `driven` is the primary path while the loudspeaker plays, if it differs."""
    takes, rng = [], np.random.default_rng(seed)
    for x in probes:
        quiet, control = (fftconvolve(x, path)[: x.size] for path in paths)
        played = quiet if driven is None else fftconvolve(x, driven)[: x.size]
        noise = 10 ** (-snr_db / 20) * np.sqrt(np.mean(quiet**2))
        for gain, error in ((0.0, quiet), (PROBE_GAIN, played - PROBE_GAIN * control)):
            takes.append(GainTake(gain, x, error + noise * rng.standard_normal(x.size)))
    return takes


def rows_of(n: int, pairs: Sequence[PathPair], noise: NoiseSet, kinds: Sequence[str]) -> list[Row]:
    """Compute all rows of one ear."""
    pair, model = pairs[n], Model.on("cpu", ModelStore(BUNDLED_ROOT).load("bose-qc20").parameters)
    others = [item for item in pairs if item.listener != pair.listener]
    prior, known = priors_of_others(pairs)[pair.listener], simulate_calibration(others, noise)
    support = SupportPrior(learn_support_statistics(known.primary.numpy(), known.secondary.numpy()))
    foreign = next((item.primary, item.secondary) for item in others if item.ear == pair.ear)
    paths, probes = (pair.primary, pair.secondary), probe_signals(noise)

    def reached_db(found: Calibration) -> float:
        measured = problem(found.estimate.primary, found.secondary, found.estimate.coherence)
        taps = design(measured, DesignOptions("prime", 1), model).taps
        return answer_or_raise(
            predict_all([problem(*paths)], [taps], model, is_true=True)[0]
        ).mean_noise_reduction_db

    def judged(name: str, takes: Takes) -> Row:
        try:
            found = calibrate(takes, prior=prior)
        except SynthesisError:
            return {"codes": "refused"}
        loss_db = best_db - reached_db(found) if name in ("right", "SNR 10 dB") else None
        return {"codes": " ".join(reason.code for reason in judge(found, support).reasons), "loss_db": loss_db}

    best_db, rows = reached_db(calibrate(record(probes["white"], paths, 200.0, [n]), prior=prior)), []
    for place, kind in enumerate(kinds):
        seed, snr_db, signals = [n, place], SNRS_DB[(n + place) % 3], probes[kind]
        case: Row = {"probe": kind, "snr_db": snr_db}
        takes = {
            name: record(signals, change(paths, foreign), snr_db, seed) for name, change in PATH_MISTAKES.items()
        }
        takes |= {name: change(takes["right"]) for name, change in TAKE_MISTAKES.items()}
        takes["SNR 10 dB"] = record(signals, paths, 10.0, seed)
        takes["another person's second state"] = record(signals, (paths[0], foreign[1]), snr_db, seed, foreign[0])
        rows += [
            case | {"endpoint": "calibrate", "mistake": name} | judged(name, take) for name, take in takes.items()
        ]
        estimates = [calibrate(record(signals, item, snr_db, seed), prior=prior) for item in (paths, foreign)]
        right, other = ((estimate.estimate.primary, estimate.secondary) for estimate in estimates)
        for name, change in REQUEST_MISTAKES.items():
            found = find_implausible(support, *(path.astype(np.float32) for path in change(right, other)))
            codes = " ".join(item.code for item in found)
            rows.append(case | {"endpoint": "refine", "mistake": name, "codes": codes})
    return rows


def study(dataset: PathDataset, noise: NoiseSet, request: argparse.Namespace) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Count over ears the mistakes found, and those among them that lose COSTLY_DB or more."""
    pairs, kinds = (dataset.pairs[:4], ["white"]) if request.quick else (dataset.pairs, list(probe_signals(noise)))
    jobs = (delayed(rows_of)(n, pairs, noise, kinds) for n in range(1 if request.quick else len(pairs)))
    ears = pd.DataFrame([row for ear in Parallel(request.workers)(jobs) for row in ear])
    found, costly = ears.codes != "", ears.loss_db >= COSTLY_DB
    ears = ears.assign(n=1, n_found=found, n_costly=costly, n_costly_found=found & costly)
    counts = ears.columns[-4:].tolist()
    rows = ears.groupby(["endpoint", "mistake", "probe", "snr_db"], sort=False)[counts].sum().reset_index()
    table = rows.groupby(["mistake", "endpoint"], sort=False)[counts].sum()
    return rows, (100 * table.n_found / table.n).unstack("endpoint")


if __name__ == "__main__":
    sys.exit(run(__doc__, study))
