"""What predictions are worth on nobody's measurements:
`python -m studies.predictions --data DIR --noise DIR --out OUT`.

Persons and recordings are left out together: the prior, the uncertainty and the reference spectrum that an ear is
estimated, designed and predicted with come from other persons, other recordings and synthetic noise. Each ear is
calibrated as `/calibrate` does it, with each probe, SNR and duration. The filter (`fir_wiener`, k = 1)
is predicted from the estimates and scored on the true paths, under the same reference spectrum.

OUT/ears.csv        a row for each calibration, length of response and basis of the prediction
OUT/rows.csv        the same, over ears and folds; an empty cell stands for all
OUT/intervals.csv   half-widths from the other folds' persons, and how many of a fold's errors lie within
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from measurement.calibration import Calibration, calibrate
from measurement.estimate import Take
from measurement.prior import PathPrior
from synthesis.backends.reference import model_parameters
from synthesis.conventions import SAMPLE_RATE_HZ
from synthesis.design import Model, design_all, predict_all
from synthesis.errors import SynthesisError
from synthesis.generator import Generator
from synthesis.octave_bands import NR_BANDS, columns, nominal_hz
from synthesis.types import DesignOptions, Paths, Prediction, Problem
from training.datasets import open_dataset
from training.datasets.noise import NoiseSet, read_noise, simulated_noise
from training.datasets.path_pairs import DatasetError, PathDataset, PathPair
from training.datasets.splits import Split, with_recordings
from training.measurements import Measurements, learn_prior, priors_of_others
from training.methods import GENERATORS
from training.probes import SNRS_DB, support_noises
from training.run_folder import write_atomically
from training.simulated_calibration import PROBE_GAIN

Real = NDArray[np.floating]
Row = dict[str, object]

N_FOLDS = 5
SECONDS = (1.0, 4.0, 20.0)
"""Of a take; recordings have twelve."""

EVERY_SNR_AT_S = 4.0
"""At other durations one SNR for each ear and probe, in turn."""


OPTIONS = DesignOptions("fir_wiener", 1, "fast")
LENGTHS = (128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192)
"""Of the primary responses that are sent alone, in samples."""

SHARE_WITHIN = 0.9
FLOOR_DB = -200.0
"""Noise at the error microphone of a take without any: rounding."""

KEYS = ["basis", "n_taps", "kind", "snr_db", "seconds"]
GROUPS = (KEYS[:2], [*KEYS[:2], "kind"], [*KEYS[:2], "snr_db"], [*KEYS[:2], "seconds"])
BANDS = columns(NR_BANDS)
BAND_NAMES = [f"{nominal_hz(n):g}_hz" for n in NR_BANDS]


def folds_of(dataset: PathDataset, noise: NoiseSet, n_folds: int) -> list[Split]:
    """Every person is left out once, with half of the recordings."""
    listeners = dataset.listeners
    parts = [listeners[n::n_folds] for n in range(n_folds)]
    splits = [Split(n, tuple(p for p in listeners if p not in part), part) for n, part in enumerate(parts)]
    return with_recordings(splits, noise.names[: noise.n_recordings])


class Known(NamedTuple):
    """What a fold's support has taught."""

    model: Model
    prior: PathPrior


def known_to(split: Split, dataset: PathDataset, noise: NoiseSet) -> Known:
    """An untrained model, and the prior, of a fold's other persons and recordings."""
    support = replace(dataset, pairs=dataset.of(split.support))
    measured = Measurements.calibrate(
        support,
        support_noises(noise, split.support_recordings, split.index),
        window=8192,
        conditions="original",
        priors=priors_of_others(support.pairs),
    )
    prior = learn_prior(support.pairs)
    assert prior is not None  # `priors_of_others` would have refused a single ear
    generator = Generator(GENERATORS["prime-log"].layout(dataset.n_fft))
    uncertainty = measured.support_uncertainty(split.support)
    return Known(Model.on("cpu", model_parameters(generator, measured.reference_psd, uncertainty, prior)), prior)


def probes_of(split: Split, noise: NoiseSet, seconds: float) -> dict[str, Real]:
    """White, pink, and the recordings left out, together and each alone: [n_takes, n_samples]."""
    n = round(seconds * SAMPLE_RATE_HZ)
    white, flat = np.random.default_rng([split.index, n]).standard_normal((2, n))
    falling = 1 / np.sqrt(np.maximum(np.fft.rfftfreq(n, 1 / SAMPLE_RATE_HZ), 20.0))
    pink = np.fft.irfft(np.fft.rfft(flat) * falling, n)
    recorded = noise.of(split.query_recordings).signals[:, :n]
    single = dict(zip(split.query_recordings, recorded[:, None], strict=True))
    return {"white": white[None], "pink": pink[None], "pool": recorded} | single


def takes_of(pair: PathPair, probes: Real, snr_db: float | None, seed: Sequence[int]) -> list[Take]:
    """Both states of each probe, with white noise so far below each error signal."""
    rng = np.random.default_rng(seed)
    takes = []
    for x in probes:
        disturbance, played = (fftconvolve(x, path)[: x.size] for path in (pair.primary, pair.secondary))
        for gain in (0.0, PROBE_GAIN):
            error = disturbance - gain * played
            level = 10 ** (-(snr_db or -FLOOR_DB) / 20) * np.sqrt(np.mean(error**2))
            takes.append(Take(gain, x, error + level * rng.standard_normal(x.size)))
    return takes


def inputs_of(calibration: Calibration) -> Iterator[tuple[str, int, Problem]]:
    """Requests that a client may make of an answer of `/calibrate`: all of it, without its uncertainty, paths alone
    of several lengths."""
    primary, secondary = (each.astype(np.float32) for each in (calibration.estimate.primary, calibration.secondary))
    coherence = calibration.estimate.coherence.astype(np.float32)
    if calibration.uncertainty is not None:
        uncertainty = calibration.uncertainty.astype(np.float32)
        yield "uncertainty", len(primary), Problem((Paths(primary, secondary, coherence, uncertainty=uncertainty),))
    yield "coherence", len(primary), Problem((Paths(primary, secondary, coherence),))
    for n in LENGTHS:
        yield "model", n, Problem((Paths(primary[:n], secondary[:n]),))


def rows_of_case(case: dict[str, object], pair: PathPair, takes: list[Take], known: Known) -> Iterator[Row]:
    """One calibration's rows."""
    truth = Problem((Paths(pair.primary.astype(np.float32), pair.secondary.astype(np.float32)),))
    for basis, n_taps, asked in inputs_of(calibrate(takes, prior=known.prior)):
        (design,) = design_all([asked], OPTIONS, known.model)
        if isinstance(design, SynthesisError):
            raise design
        (score,) = predict_all([truth], [design.taps], known.model, is_true=True)
        assert isinstance(score, Prediction)
        said, found = (each.band_reduction_db[BANDS] for each in (design.prediction, score))
        yield case | {
            "basis": basis,
            "n_taps": n_taps,
            "scored_db": score.mean_noise_reduction_db,
            "error_db": design.prediction.mean_noise_reduction_db - score.mean_noise_reduction_db,
            "interval_db": design.prediction.interval_db,
            **dict(zip(BAND_NAMES, (said - found).tolist(), strict=True)),
        }


def rows_of_fold(split: Split, dataset: PathDataset, noise: NoiseSet, is_quick: bool) -> list[Row]:
    """All rows of the persons and recordings that a fold leaves out."""
    known = known_to(split, dataset, noise)
    rows: list[Row] = []
    ears = dataset.of(split.query[:1] if is_quick else split.query)
    for seconds in SECONDS[:1] if is_quick else SECONDS:
        for place, (probe, signals) in enumerate(probes_of(split, noise, seconds).items()):
            for number, pair in enumerate(ears):
                turn = (number + place) % len(SNRS_DB)
                for snr_db in SNRS_DB if seconds == EVERY_SNR_AT_S else SNRS_DB[turn : turn + 1]:
                    case: Row = {"fold": split.index, "ear": pair.name, "probe": probe}
                    case["snr_db"] = "none" if snr_db is None else snr_db
                    case["seconds"] = signals.shape[-1] / SAMPLE_RATE_HZ
                    takes = takes_of(pair, signals, snr_db, [split.index, number, round(snr_db or 0)])
                    rows += rows_of_case(case, pair, takes, known)
        print(f"fold {split.index}: {len(rows)} rows", file=sys.stderr, flush=True)
    return rows


def counted(ears: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Over ears: error of the mean (positive: promised too much), of single bands, and how many of the intervals
    hold."""

    counts = []
    for key, group in ears.groupby(list(keys), sort=False, dropna=False):
        error, bands = group.error_db, group[BAND_NAMES]
        biased = str(bands.mean().abs().idxmax())
        row: Row = dict(zip(keys, key, strict=True))
        row |= {
            "n": len(group),
            "scored_db": group.scored_db.mean(),
            "mean_error_db": error.abs().mean(),
            "bias_db": error.mean(),
            "worst_db": error.abs().max(),
            "band_error_db": bands.abs().mean().mean(),
            "band_bias_db": bands[biased].mean(),
            "most_biased_band": biased.removesuffix("_hz"),
            "share_within": (error.abs() <= group.interval_db).mean(),
        }
        counts.append(row)
    return pd.DataFrame(counts)


def intervals(ears: pd.DataFrame) -> pd.DataFrame:
    """Half-widths that SHARE_WITHIN of the errors of all folds, and of the other folds, lie within; of a fold's own
    errors, the share within those of the others."""
    rows = []
    for (basis, n_taps), group in ears.groupby(["basis", "n_taps"], sort=False):
        within = []
        for fold, own in group.groupby("fold"):
            others = group.error_db[group.fold != fold].abs()
            within.append(own.error_db.abs() <= others.quantile(SHARE_WITHIN))
        width = group.error_db.abs().quantile(SHARE_WITHIN)
        rows.append(
            {"basis": basis, "n_taps": n_taps, "half_width_db": width, "share_within": pd.concat(within).mean()}
        )
    return pd.DataFrame(rows)


def run(options: argparse.Namespace) -> str:
    """Measure, predict, score, count."""
    dataset = open_dataset(options.dataset, options.data)
    noise = read_noise(options.noise) if options.noise else simulated_noise()
    folds = folds_of(dataset, noise, N_FOLDS)[: 2 if options.quick else options.folds]
    job = partial(rows_of_fold, dataset=dataset, noise=noise, is_quick=options.quick)
    with ProcessPoolExecutor(options.workers) as pool:
        ears = pd.DataFrame([row for rows in pool.map(job, folds) for row in rows])
    return write(ears, options.out)


def write(ears: pd.DataFrame, out: Path) -> str:
    """Count; write all tables; a text of the counts."""
    ears["kind"] = ears.probe.where(ears.probe.isin(["white", "pink", "pool"]), "single")
    rows = pd.concat([counted(ears, keys) for keys in GROUPS])
    rows = rows[[*KEYS, *(column for column in rows if column not in KEYS)]]
    out.mkdir(parents=True, exist_ok=True)
    for name, table in (("ears", ears), ("rows", rows), ("intervals", intervals(ears))):
        write_atomically(out / f"{name}.csv", table.round(3).to_csv(index=False))
    return "\n\n".join(counted(ears, keys).round(2).to_string(index=False) for keys in GROUPS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; returns the exit status. A mistake in the request is one line on standard error and status 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--dataset", choices=("pandar", "simulated"), default="pandar")
    add("--data", type=Path, help="folder of the data set (simulated: none)")
    add("--noise", type=Path, help="folder of 48-kHz noises (none: simulated ones)")
    add("--out", type=Path, required=True, help="folder of the study")
    add("--workers", type=int, default=1, help="processes")
    add("--folds", type=int, default=N_FOLDS, help="only so many")
    add("--quick", action="store_true", help="one person of two folds, takes of a second")
    try:
        print(run(parser.parse_args(arguments)))
    except (DatasetError, OSError) as error:
        print(f"studies.predictions: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
