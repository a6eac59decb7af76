"""Measure which mistakes in a measurement are found: `python -m studies.mistakes --data DIR --noise DIR --out FILE`.

Every third ear is measured with half of the kinds of probe, correctly and with every mistake, and judged with the
statistics of the other persons' ears: by the verdict of `/calibrate` and, for mistakes in the paths that a request
holds, by the warnings of `/refine`. Loss: noise reduction of the bundled model's filter (k = 1) against that of a
measurement with white noise and no other noise. Other devices (simulated systems, and measured ones of `--foreign`) are
measured correctly and judged by the same model, and with the mistakes that physics can show by one that knows no
device. FILE has a row per endpoint, mistake, probe and SNR, counted over ears or systems. Printed: shares of cases
found and of those taken for another device; and, for each limit of the comparison, one chosen on half of persons and
systems beside the wrong decisions on the other half.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from model_store.store import BUNDLED_ROOT, ModelStore
from prime_anc.measure.calibration import Calibration, calibrate
from prime_anc.measure.checks import OTHER_DEVICE, judge
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from prime_anc.method.design import design, predict_all
from prime_anc.method.errors import SynthesisError, answer_or_raise
from prime_anc.method.plausibility import Explanation, SupportPrior, find_implausible
from prime_anc.method.support_statistics import learn_support_statistics
from prime_anc.method.types import Model, ModelParameters
from studies import Row, problem, record, run, served
from studies.foreign import systems
from training.datasets.mistakes import (
    PATH_MISTAKES,
    REQUEST_MISTAKES,
    TAKE_MISTAKES,
    Real,
    Responses,
    Takes,
    later,
)
from training.datasets.noise import TARGET_RMS, NoiseSet, pink_noise, white_noise
from training.datasets.path_pairs import PathDataset, PathPair
from training.measurements import priors_of_others
from training.simulated_calibration import simulate_calibration

SNRS_DB, COSTLY_DB, N = (30.0, 40.0, 50.0), 0.5, 4 * SAMPLE_RATE_HZ
EVERY = 3
# Simulated systems, on none of which a limit was set; one in five is measured with mistakes.
N_SYSTEMS, SEED, WITH_MISTAKES_EVERY = 100, 41, 5
# Mistakes in the takes that need no knowledge of a device to be seen.
PHYSICAL = (
    *(f"microphone turned by {level_db:+d} dB" for level_db in (-3, -1, 1, 3)),
    "microphone inverted",
    "channels swapped",
    "states swapped",
    "dead outer microphone",
    "dead error microphone",
    "clipped",
    "probe ends before half",
    "takes of 0.2 s",
)
# Samples by which a loudspeaker is later than the noise.
LATE = 24
# Mistakes that a limit must find, and the quantity that it limits.
LIMITS = {
    "level_db": ("declared gain x 2", "declared gain x 0.5"),
    "delay_samples": ("1 sample late",),
    "primary_delay_samples": ("primary 16 samples late",),
    "distance": ("another device",),
}


def probe_signals(noise: NoiseSet) -> dict[str, Real]:
    """Return probes of four seconds, [n_takes, n]: white, pink, a sweep 20 Hz to 20 kHz, every second recording."""
    phase = 2 * np.pi * 20 * N / SAMPLE_RATE_HZ / np.log(1000) * np.expm1(np.log(1000) * np.arange(N) / N)
    single = {"white": white_noise(0), "pink": pink_noise(0), "sweep": np.sqrt(2) * TARGET_RMS * np.sin(phase)}
    return {name: x[None, :N] for name, x in single.items()} | {"pool": noise.signals[: noise.n_recordings : 2, :N]}


def judged(takes: Takes, model: ModelParameters) -> tuple[Row, Calibration | None]:
    """Judge takes as `/calibrate` does."""
    try:
        found = calibrate(takes, prior=model.path_prior, support=model.support)
    except SynthesisError:
        return {"codes": "refused", "is_other": False}, None
    verdict = judge(found, model.support)
    codes = " ".join(reason.code for reason in verdict.reasons)
    is_other = verdict.explanation is not None and not verdict.explanation.is_device
    return {"codes": codes, "is_other": is_other} | traits(verdict.explanation), found


def compared(model: ModelParameters, paths: Responses) -> Row:
    """Judge the paths of a request as `/refine` does."""
    sent = [path.astype(np.float32) for path in paths]
    codes = [item.code for item in find_implausible(model.support, *sent)]
    return {"codes": " ".join(codes), "is_other": OTHER_DEVICE in codes}


def traits(found: Explanation | None) -> Row:
    """Return what the limits are compared with."""
    return {} if found is None else {name: abs(getattr(found, name)) for name in LIMITS}


def rows_of(n: int, pairs: Sequence[PathPair], noise: NoiseSet, kinds: Sequence[str]) -> list[Row]:
    """Compute all rows of one ear."""
    listeners = sorted({item.listener for item in pairs})
    pair, known = pairs[n], ModelStore(BUNDLED_ROOT).load("bose-qc20").parameters
    others = [item for item in pairs if item.listener != pair.listener]
    learnt = simulate_calibration(others, noise)
    support = SupportPrior(learn_support_statistics(learnt.primary.numpy(), learnt.secondary.numpy()))
    known = replace(known, path_prior=priors_of_others(pairs)[pair.listener], support=support)
    model = Model.on("cpu", known)
    foreign = next((item.primary, item.secondary) for item in others if item.ear == pair.ear)
    paths, probes = (pair.primary, pair.secondary), probe_signals(noise)

    def reached_db(found: Calibration) -> float:
        measured = problem(found.estimate.primary, found.estimate.secondary, found.estimate.coherence)
        taps = design(measured, served(measured, 1), model).taps
        (true,) = predict_all([problem(*paths)], [taps], model, is_true=True)
        return answer_or_raise(true).mean_noise_reduction_db

    _, best = judged(record(probes["white"], paths, 200.0, [n]), known)
    assert best is not None
    best_db, rows = reached_db(best), []
    for kind in kinds:
        place = list(probes).index(kind)
        seed, snr_db, signals = [n, place], SNRS_DB[(n + place) % 3], probes[kind]
        case: Row = {"half": listeners.index(pair.listener) % 2, "probe": kind, "snr_db": snr_db}
        takes = {
            name: record(signals, change(paths, foreign), snr_db, seed) for name, change in PATH_MISTAKES.items()
        }
        takes |= {name: change(takes["right"]) for name, change in TAKE_MISTAKES.items()}
        takes["SNR 10 dB"] = record(signals, paths, 10.0, seed)
        takes["another person's second state"] = record(signals, (paths[0], foreign[1]), snr_db, seed, foreign[0])
        for name, take in takes.items():
            row, found = judged(take, known)
            if found is not None and name in ("right", "SNR 10 dB"):
                row["loss_db"] = best_db - reached_db(found)
            rows.append(case | {"endpoint": "calibrate", "mistake": name} | row)
        estimates = [
            calibrate(record(signals, item, snr_db, seed), prior=known.path_prior) for item in (paths, foreign)
        ]
        right, other = ((estimate.estimate.primary, estimate.estimate.secondary) for estimate in estimates)
        for name, change in REQUEST_MISTAKES.items():
            rows.append(case | {"endpoint": "refine", "mistake": name} | compared(known, change(right, other)))
    return rows


def rows_of_system(n: int, paths: Responses) -> Iterator[Row]:
    """Compute all rows of another device."""
    device, generic = (ModelStore(BUNDLED_ROOT).load(name).parameters for name in ("bose-qc20", "generic"))
    probe, seed, snr_db = white_noise(0)[None, :N], [n], SNRS_DB[n % 3]
    case: Row = {"half": n % 2, "probe": "white", "snr_db": snr_db}
    takes = {"right": record(probe, paths, snr_db, seed)}
    row, _ = judged(takes["right"], device)
    yield case | {"endpoint": "calibrate", "mistake": "another device"} | row
    yield case | {"endpoint": "refine", "mistake": "another device"} | compared(device, paths)
    if n % WITH_MISTAKES_EVERY == n // WITH_MISTAKES_EVERY % WITH_MISTAKES_EVERY:  # every kind of system in turn
        takes |= {name: TAKE_MISTAKES[name](takes["right"]) for name in PHYSICAL}
        turned = record(probe, (paths[0], -paths[1]), snr_db, seed)[1:]
        takes["sign between takes"] = takes["right"] + turned
        (played,) = takes["right"][1:]
        takes["gain between takes"] = [*takes["right"], replace(played, gain=2 * played.gain)]
        behind = max(LATE + round(calibrate(takes["right"]).lead_samples), LATE)
        takes["late loudspeaker"] = record(probe, (paths[0], later(paths[1], behind)), snr_db, seed)
    for name, take in takes.items():
        row, _ = judged(take, generic)
        yield case | {"endpoint": "generic", "mistake": name} | row


def limits_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Choose each limit on one half, between the right cases' largest value and the mistakes' smallest, and count the
    wrong decisions on the other.
    """
    chosen = []
    of_ears = rows[(rows.endpoint == "calibrate") & rows.distance.notna()]
    for name, mistakes in LIMITS.items():
        is_wrong = of_ears.mistake.isin(mistakes)
        is_right = ~is_wrong & of_ears.mistake.isin([*PATH_MISTAKES] if name == "distance" else ["right"])
        for half in (0, 1):
            on, off = of_ears.half == half, of_ears.half != half
            most = of_ears.loc[on & is_right, name].quantile(0.99)
            least = of_ears.loc[on & is_wrong, name].quantile(0.01)
            limit = np.sqrt(most * least)
            chosen.append(
                {"limit": name, "right_99": most, "wrong_1": least, "chosen": limit}
                | {"refused": (of_ears.loc[off & is_right, name] > limit).sum(), "of right": (off & is_right).sum()}
                | {"missed": (of_ears.loc[off & is_wrong, name] <= limit).sum(), "of wrong": (off & is_wrong).sum()}
            )
    return pd.DataFrame(chosen)


def study(dataset: PathDataset, noise: NoiseSet, request: argparse.Namespace) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Count over ears the mistakes found, and those among them that lose COSTLY_DB or more."""
    pairs, kinds = (dataset.pairs[:4], ["white"]) if request.quick else (dataset.pairs, list(probe_signals(noise)))
    jobs = (
        delayed(rows_of)(n, pairs, noise, kinds if request.quick else kinds[n // 2 % 2 :: 2])
        for n in range(0, 1 if request.quick else len(pairs), EVERY)
    )
    ears = [row for ear in Parallel(request.workers)(jobs) for row in ear]
    for n, (_, _, *paths) in enumerate(systems(5 if request.quick else N_SYSTEMS, SEED, request.foreign, None)):
        ears += rows_of_system(n, (paths[0], paths[1]))
    every = pd.DataFrame(ears)
    print(limits_of(every).to_string(float_format="%.2f"))
    found, costly = every.codes != "", every.loss_db >= COSTLY_DB
    every["is_other"] &= ~found  # else the finding is what is said
    every = every.assign(n=1, n_found=found, n_other=every.is_other, n_costly=costly, n_costly_found=found & costly)
    counts = every.columns[-5:].tolist()
    keys = ["endpoint", "mistake", "probe", "snr_db"]
    rows = every.groupby(keys, sort=False)[counts].sum()
    rows["codes"] = every.groupby(keys, sort=False).codes.agg(
        lambda codes: " ".join(f"{code}:{n}" for code, n in codes.str.split().explode().value_counts().items())
    )
    table = rows.groupby(["mistake", "endpoint"], sort=False)[counts].sum()
    shares = pd.DataFrame({"found": 100 * table.n_found / table.n, "other": 100 * table.n_other / table.n})
    return rows.reset_index(), pd.DataFrame(shares.unstack("endpoint"))


if __name__ == "__main__":
    sys.exit(run(__doc__, study))
