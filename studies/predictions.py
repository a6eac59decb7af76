"""Measure the accuracy of predictions: `python -m studies.predictions --data DIR --noise DIR --out FILE`.

Persons and recordings are left out together: the prior, the uncertainty and the reference spectrum that an ear is
estimated, designed and predicted with come from other persons, other recordings and synthetic noise. Ears are
calibrated as by `/calibrate`, with all probes, SNRs and durations. The filter (`fir_wiener`, k = 1) is predicted
from the estimates and scored on the true paths, under the same reference spectrum. FILE has a row per basis
and length of the responses, over ears, and by probe, SNR and duration (an empty cell stands for all).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd
from joblib import Parallel, delayed

from prime_anc.measure.calibration import Calibration, calibrate
from prime_anc.measure.prior import PathPrior
from prime_anc.method.bands import NR_BANDS, columns, nominal_hz
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from prime_anc.method.design import design, predict_all
from prime_anc.method.errors import answer_or_raise
from prime_anc.method.plausibility import SupportPrior
from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.start.generator import Generator
from prime_anc.method.types import Model, ModelParameters, Problem
from studies import Row, as_sent, problem, record, run, served
from training.data import SNRS_DB, Split, support_noises, with_recordings
from training.datasets.noise import NoiseSet, pink_noise, white_noise
from training.datasets.path_pairs import PathDataset
from training.measurements import Measurements, learn_prior, priors_of_others

N_FOLDS = 5
SECONDS = (1.0, 4.0, 12.0)
EVERY_SNR_AT_S = 4.0  # at other durations one SNR per ear and probe, in turn
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 6144, 8192)  # of primary responses that are sent alone
NO_NOISE_DB = 200.0
KEYS = ["basis", "n_taps", "kind", "snr_db", "seconds"]
BANDS = [f"{nominal_hz(n):g}_hz" for n in NR_BANDS]


def folds_of(dataset: PathDataset, noise: NoiseSet) -> list[Split]:
    """Leave every person out once, with half of the recordings."""
    parts = [dataset.listeners[n::N_FOLDS] for n in range(N_FOLDS)]
    splits = [Split(n, tuple(p for p in dataset.listeners if p not in part), part) for n, part in enumerate(parts)]
    return with_recordings(splits, noise.names[: noise.n_recordings])


def known_to(split: Split, dataset: PathDataset, noise: NoiseSet) -> tuple[Model, PathPrior]:
    """Make an untrained model and the prior from a fold's other persons and recordings."""
    support = replace(dataset, pairs=dataset.of(split.support))
    measured = Measurements.calibrate(
        support,
        support_noises(noise, split.support_recordings, split.index),
        window=8192,
        conditions="original",
        priors=priors_of_others(support.pairs),
    )
    generator, prior = Generator(GeneratorConfig.prime_log()), learn_prior(support.pairs)
    assert prior is not None  # `priors_of_others` would have refused a single ear
    weights = {name: item.numpy() for name, item in generator.state_dict().items()}
    psd, uncertainty = measured.reference_psd, measured.support_uncertainty(split.support)
    known = SupportPrior(measured.support_statistics(split.support))
    learned = psd.float().numpy(), uncertainty.float().numpy(), prior, known
    return Model.on("cpu", ModelParameters(generator.config, weights, *learned)), prior


def inputs_of(found: Calibration) -> Iterator[tuple[str, int, Problem]]:
    """Yield requests that a client may derive from a calibration: all of it, without uncertainty, paths of several
    lengths.
    """
    primary, secondary, coherence = found.estimate.primary, found.estimate.secondary, found.estimate.coherence
    if found.uncertainty is not None:
        yield "uncertainty", len(primary), as_sent(found)
    yield "coherence", len(primary), problem(primary, secondary, coherence)
    for n in LENGTHS:
        yield "model", n, problem(primary[:n], secondary[:n])


def rows_of_fold(split: Split, dataset: PathDataset, noise: NoiseSet, quick: bool) -> list[Row]:
    """Compute all rows of the persons and recordings that a fold leaves out."""
    model, prior = known_to(split, dataset, noise)
    recorded = noise.of(split.query_recordings).signals
    single = dict(zip(split.query_recordings, recorded[:, None], strict=True))
    probes = {"white": white_noise(1)[None], "pink": pink_noise(1)[None], "pool": recorded} | single
    rows: list[Row] = []
    for seconds in SECONDS[:1] if quick else SECONDS:
        for place, (probe, signals) in enumerate(probes.items()):
            for number, pair in enumerate(dataset.of(split.query[:1] if quick else split.query)):
                turn = (number + place) % len(SNRS_DB)
                for snr_db in SNRS_DB if seconds == EVERY_SNR_AT_S else SNRS_DB[turn : turn + 1]:
                    cut, paths = signals[:, : round(seconds * SAMPLE_RATE_HZ)], (pair.primary, pair.secondary)
                    takes = record(cut, paths, snr_db or NO_NOISE_DB, [split.index, number])
                    truth = problem(*paths)
                    case: Row = {"kind": "single" if probe in single else probe}
                    case |= {"snr_db": snr_db or "none", "seconds": seconds}
                    for basis, n_taps, requested in inputs_of(calibrate(takes, prior=prior)):
                        case |= {"basis": basis, "n_taps": n_taps}
                        rows.append(case | errors_of(model, requested, truth))
    return rows


def errors_of(model: Model, requested: Problem, truth: Problem) -> Row:
    """Compute predicted less scored noise reduction, in the mean and per band."""
    made = design(requested, served(requested, 1, "fir_wiener"), model)
    score = answer_or_raise(predict_all([truth], [made.taps], model, is_true=True)[0])
    predicted, found = (item.band_reduction_db[columns(NR_BANDS)] for item in (made.prediction, score))
    return {
        "error_db": made.prediction.mean_noise_reduction_db - score.mean_noise_reduction_db,
        "interval_db": made.prediction.interval_db,
        **dict(zip(BANDS, (predicted - found).tolist(), strict=True)),
    }


def counted(key: tuple[object, ...], keys: list[str], group: pd.DataFrame) -> Row:
    """Summarise the error of the mean (positive: too high), of single bands, and the share of intervals that hold."""
    error, bands = group.error_db, group[BANDS]
    biased = str(bands.mean().abs().idxmax())
    return dict(zip(keys, key, strict=True)) | {
        "n": len(group),
        "mean_error_db": error.abs().mean(),
        "bias_db": error.mean(),
        "worst_db": error.abs().max(),
        "band_error_db": bands.abs().mean().mean(),
        "band_bias_db": bands[biased].mean(),
        "most_biased_band": biased.removesuffix("_hz"),
        "share_within": (error.abs() <= group.interval_db).mean(),
    }


def study(dataset: PathDataset, noise: NoiseSet, request: argparse.Namespace) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Measure, predict, score and count."""
    folds = folds_of(dataset, noise)[: 1 if request.quick else N_FOLDS]
    jobs = (delayed(rows_of_fold)(split, dataset, noise, request.quick) for split in folds)
    ears = pd.DataFrame([row for rows in Parallel(request.workers)(jobs) for row in rows])
    groups = [KEYS[:2], *([*KEYS[:2], name] for name in KEYS[2:])]
    rows = pd.DataFrame(
        [counted(key, keys, group) for keys in groups for key, group in ears.groupby(keys, sort=False)]
    )
    rows = rows[[*KEYS, *rows.columns.difference(KEYS, sort=False)]].round(3)
    return rows, rows[rows[KEYS[2:]].isna().all(axis=1)].drop(columns=KEYS[2:])


if __name__ == "__main__":
    sys.exit(run(__doc__, study))
