"""Measure which mistakes in a measurement are found.

Every third ear is measured with half of the kinds of probe, correctly and with every mistake, and judged with the
statistics of the other persons' ears: by the verdict of `/calibrate` and, for mistakes in the paths that a request
holds, by the warnings of `/refine`. Other devices (simulated systems, and measured ones of `--foreign`) are measured
correctly and judged by the same model, and with the mistakes that physics can show by one that knows no device. There
is a row per ear or system, endpoint, mistake, probe and SNR. Printed: shares of cases found and of those taken for
another device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from prime_anc.measure.calibration import Calibration, calibrate
from prime_anc.measure.checks import judge
from prime_anc.method.arrays import Real
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from prime_anc.method.errors import SynthesisError
from prime_anc.method.support.explanation import SupportPrior
from prime_anc.method.support.findings import find_implausible
from prime_anc.method.support.statistics import learn_support_statistics
from prime_anc.method.types import ModelParameters
from studies import Request, Row, Work, bundled
from studies.foreign import systems
from training.datasets.mistakes import PATH_MISTAKES, REQUEST_MISTAKES, TAKE_MISTAKES, Responses, Takes, later
from training.datasets.noise import TARGET_RMS, NoiseSet, pink_noise, white_noise
from training.datasets.path_pairs import PathPair
from training.measurements import priors_of_others
from training.simulated_calibration import record, simulate_calibration

SNRS_DB, N = (30.0, 40.0, 50.0), 4 * SAMPLE_RATE_HZ
EVERY = 3
# Simulated systems, on none of which a limit was set; one in five is measured with mistakes.
N_SYSTEMS, SEED, WITH_MISTAKES_EVERY = 100, 41, 5
# Mistakes in the takes that need no knowledge of a device to be seen.
PHYSICAL = [name for name in TAKE_MISTAKES if not name.startswith("declared gain")]
# Samples by which a loudspeaker is later than the noise.
LATE = 24


def probe_signals(noise: NoiseSet) -> dict[str, Real]:
    """Return probes of four seconds, [n_takes, n]: white, pink, a sweep 20 Hz to 20 kHz, every second recording."""
    phase = 2 * np.pi * 20 * N / SAMPLE_RATE_HZ / np.log(1000) * np.expm1(np.log(1000) * np.arange(N) / N)
    single = {"white": white_noise(0), "pink": pink_noise(0), "sweep": np.sqrt(2) * TARGET_RMS * np.sin(phase)}
    return {name: x[None, :N] for name, x in single.items()} | {"pool": noise.signals[: noise.n_recordings : 2, :N]}


def row_of(codes: Sequence[str], is_other: bool = False) -> Row:
    """Count what is found, and what is else taken for another device."""
    return {"codes": " ".join(codes), "n": 1, "n_found": int(bool(codes)), "n_other": int(is_other and not codes)}


def calibrated(takes: Takes, model: ModelParameters) -> Calibration | None:
    """Calibrate as `/calibrate` does; None if the takes are refused."""
    try:
        return calibrate(takes, prior=model.path_prior, support=model.support)
    except SynthesisError:
        return None


def judged(takes: Takes, model: ModelParameters) -> Row:
    """Judge takes as `/calibrate` does."""
    return verdict_on(calibrated(takes, model), model)


def verdict_on(calibration: Calibration | None, model: ModelParameters) -> Row:
    """Return the verdict of `/calibrate`."""
    if calibration is None:
        return row_of(["refused"])
    verdict = judge(calibration, model.support)
    is_other = verdict.explanation is not None and not verdict.explanation.is_device
    return row_of([reason.code for reason in verdict.reasons], is_other)


def compared(model: ModelParameters, paths: Responses) -> Row:
    """Judge the paths of a request as `/refine` does."""
    sent = [path.astype(np.float32) for path in paths]
    return row_of([item.code for item in find_implausible(model.support, *sent)])


def rows_of(n: int, pairs: Sequence[PathPair], noise: NoiseSet) -> list[Row]:
    """Compute all rows of one ear, with half of the kinds of probe."""
    pair, known = pairs[n], bundled("bose-qc20")
    others = [item for item in pairs if item.listener != pair.listener]
    learnt = simulate_calibration(others, noise)
    support = SupportPrior(learn_support_statistics(learnt.primary.numpy(), learnt.secondary.numpy()))
    known = replace(known, path_prior=priors_of_others(pairs)[pair.listener], support=support)
    foreign = next((item.primary, item.secondary) for item in others if item.ear == pair.ear)
    paths, probes = (pair.primary, pair.secondary), probe_signals(noise)
    rows: list[Row] = []
    for place, kind in list(enumerate(probes))[n // 2 % 2 :: 2]:
        seed, snr_db, signals = [n, place], SNRS_DB[(n + place) % 3], probes[kind]
        case: Row = {"probe": kind, "snr_db": snr_db}
        takes = {
            name: record(signals, change(paths, foreign), snr_db, seed) for name, change in PATH_MISTAKES.items()
        }
        takes |= {name: change(takes["right"]) for name, change in TAKE_MISTAKES.items()}
        takes["SNR 10 dB"] = record(signals, paths, 10.0, seed)
        takes["another person's second state"] = record(signals, (paths[0], foreign[1]), snr_db, seed, foreign[0])
        for name, take in takes.items():
            rows.append(case | {"endpoint": "calibrate", "mistake": name} | judged(take, known))
        estimates = [
            calibrate(record(signals, item, snr_db, seed), prior=known.path_prior) for item in (paths, foreign)
        ]
        right, other = ((estimate.estimate.primary, estimate.estimate.secondary) for estimate in estimates)
        for name, change in REQUEST_MISTAKES.items():
            rows.append(case | {"endpoint": "refine", "mistake": name} | compared(known, change(right, other)))
    return rows


def rows_of_system(n: int, paths: Responses) -> list[Row]:
    """Compute all rows of another device."""
    device, generic = bundled("bose-qc20"), bundled("generic")
    probe, seed, snr_db = white_noise(0)[None, :N], [n], SNRS_DB[n % 3]
    case: Row = {"probe": "white", "snr_db": snr_db}
    takes = {"right": record(probe, paths, snr_db, seed)}
    rows = [
        case | {"endpoint": "calibrate", "mistake": "another device"} | judged(takes["right"], device),
        case | {"endpoint": "refine", "mistake": "another device"} | compared(device, paths),
    ]
    if n % WITH_MISTAKES_EVERY == n // WITH_MISTAKES_EVERY % WITH_MISTAKES_EVERY:  # every kind of system in turn
        takes |= {name: TAKE_MISTAKES[name](takes["right"]) for name in PHYSICAL}
        turned = record(probe, (paths[0], -paths[1]), snr_db, seed)[1:]
        takes["sign between takes"] = takes["right"] + turned
        (played,) = takes["right"][1:]
        takes["gain between takes"] = [*takes["right"], replace(played, gain=2 * played.gain)]
        behind = max(LATE + round(calibrate(takes["right"]).lead_samples), LATE)
        takes["late loudspeaker"] = record(probe, (paths[0], later(paths[1], behind)), snr_db, seed)
    for name, take in takes.items():
        rows.append(case | {"endpoint": "generic", "mistake": name} | judged(take, generic))
    return rows


def cases(request: Request) -> dict[str, Work]:
    """Return a case per ear, and per system."""
    pairs, found = request.dataset.pairs, dict[str, Work]()
    for n in range(0, len(pairs), EVERY):
        found[pairs[n].name] = partial(rows_of, n, pairs, request.noise)
    for n, (_, name, *paths) in enumerate(systems(N_SYSTEMS, SEED, request.foreign)):
        found[name] = partial(rows_of_system, n, (paths[0], paths[1]))
    return found


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the percentages found and taken for another device, by mistake and endpoint."""
    counts = rows.groupby(["mistake", "endpoint"], sort=False)[["n", "n_found", "n_other"]].sum()
    shares = pd.DataFrame({"found": 100 * counts.n_found / counts.n, "other": 100 * counts.n_other / counts.n})
    return pd.DataFrame(shares.unstack("endpoint"))
