"""Measure the accuracy of predictions.

Persons and recordings are left out together: the prior, the uncertainty and the reference spectrum that an ear is
estimated, designed and predicted with come from other persons, other recordings and synthetic noise. Ears are
calibrated as by `/calibrate`, with all probes, SNRs and durations. The filter (`fir_wiener`, k = 1) is predicted
from the estimates and scored on the true paths, under the same reference spectrum. There is a row per fold, basis and
length of the responses, with sums over ears, probes, SNRs and durations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pandas as pd

from prime_anc.measure.calibration import Calibration, calibrate
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from prime_anc.method.design import design
from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.start.generator import Generator, model_parameters
from prime_anc.method.support.explanation import SupportPrior
from prime_anc.method.types import Model, Problem
from studies import Request, Row, Work, as_sent, problem, scored, served, true_paths
from training.data import SNRS_DB, Split, support_noises, with_recordings
from training.datasets.noise import NoiseSet, pink_noise, white_noise
from training.datasets.path_pairs import PathDataset
from training.measurements import Measurements, learn_prior, priors_of_others
from training.simulated_calibration import record

N_FOLDS = 5
SECONDS = (1.0, 4.0, 12.0)
EVERY_SNR_AT_S = 4.0  # at other durations one SNR per ear and probe, in turn
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 6144, 8192)  # of primary responses that are sent alone
KEYS = ["basis", "n_taps"]


def folds_of(dataset: PathDataset, noise: NoiseSet) -> list[Split]:
    """Leave every person out once, with half of the recordings."""
    parts = [dataset.listeners[n::N_FOLDS] for n in range(N_FOLDS)]
    splits = [Split(n, tuple(p for p in dataset.listeners if p not in part), part) for n, part in enumerate(parts)]
    return with_recordings(splits, noise.names[: noise.n_recordings])


def known_to(split: Split, dataset: PathDataset, noise: NoiseSet) -> Model:
    """Make an untrained model from a fold's other persons and recordings."""
    support = replace(dataset, pairs=dataset.of(split.support))
    measured = Measurements.calibrate(
        support,
        support_noises(noise, split.support_recordings, split.index),
        window=8192,
        conditions="original",
        priors=priors_of_others(support.pairs),
    )
    generator, prior = Generator(GeneratorConfig.prime_log()), learn_prior(support.pairs)
    uncertainty = measured.support_uncertainty(split.support)
    known = SupportPrior(measured.support_statistics(split.support))
    parameters = model_parameters(generator, measured.reference_psd, uncertainty, prior)
    return Model.on("cpu", replace(parameters, support=known))


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


def rows_of_fold(split: Split, dataset: PathDataset, noise: NoiseSet) -> list[Row]:
    """Sum the errors over the persons and recordings that a fold leaves out."""
    model = known_to(split, dataset, noise)
    recorded = noise.of(split.query_recordings).signals
    single = dict(zip(split.query_recordings, recorded[:, None], strict=True))
    probes = {"white": white_noise(1)[None], "pink": pink_noise(1)[None], "pool": recorded} | single
    errors: list[Row] = []
    for seconds in SECONDS:
        for place, signals in enumerate(probes.values()):
            for number, pair in enumerate(dataset.of(split.query)):
                turn = (number + place) % len(SNRS_DB)
                for snr_db in SNRS_DB if seconds == EVERY_SNR_AT_S else SNRS_DB[turn : turn + 1]:
                    cut, paths = signals[:, : round(seconds * SAMPLE_RATE_HZ)], (pair.primary, pair.secondary)
                    takes = record(cut, paths, snr_db, [split.index, number])
                    for basis, n_taps, requested in inputs_of(calibrate(takes, prior=model.parameters.path_prior)):
                        made = design(requested, served(requested, 1, "fir_wiener"), model)
                        truth = scored(true_paths(pair), made.taps, model).mean_noise_reduction_db
                        error_db = made.prediction.mean_noise_reduction_db - truth
                        within = abs(error_db) <= made.prediction.interval_db
                        errors.append({"basis": basis, "n_taps": n_taps, "error_db": error_db, "within": within})
    rows = pd.DataFrame(errors).assign(n=1)
    rows = rows.assign(size_db=rows.error_db.abs(), worst_db=rows.error_db.abs())
    return summed(rows).reset_index().to_dict("records")  # type: ignore[return-value]


def summed(rows: pd.DataFrame) -> pd.DataFrame:
    """Sum counts and errors by basis and length."""
    by = rows.groupby(KEYS, sort=False)
    return by[["n", "size_db", "error_db", "within"]].sum().join(by.worst_db.max())


def cases(request: Request) -> dict[str, Work]:
    """Return a case per fold."""
    folds = folds_of(request.dataset, request.noise)
    return {f"fold {fold.index}": partial(rows_of_fold, fold, request.dataset, request.noise) for fold in folds}


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean error, bias (positive: predicted too high), the worst, and the share of intervals that hold."""
    sums = summed(rows)
    means = {"mean_error_db": sums.size_db, "bias_db": sums.error_db, "share_within": sums.within}
    return pd.DataFrame(
        {name: total / sums.n for name, total in means.items()} | {"worst_db": sums.worst_db, "n": sums.n}
    )
