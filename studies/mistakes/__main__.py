"""Which mistakes are found, and which right measurements are refused:
`python -m studies.mistakes --data DIR --noise DIR --out OUT`.

Every ear is measured with every kind of probe, right and with each mistake (`simulate`), and judged
with the statistics of the other persons' ears: by the verdict of `/calibrate`, and, for mistakes in the paths that
a request holds, by the warnings of `/refine`. What a right measurement loses is the noise reduction of the bundled
model's filter (k = 1) against that of the same measurement without noise.

OUT/ears.csv    a row for each ear, endpoint, mistake, probe and SNR
OUT/rows.csv    the same, counted over ears
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from model_store.store import DEFAULT_ROOT, ModelStore
from studies.mistakes.simulate import (
    CALIBRATION_MISTAKES,
    PROBES,
    REQUEST_MISTAKES,
    Paths,
    Real,
    calibration_takes,
    probe_signals,
    record,
)
from synthesis.backends import create_backend
from synthesis.backends.base import Backend, DesignInput, DesignOptions, ModelParameters
from synthesis.calibration import Calibration, calibrate
from synthesis.calibration_verdict import judge
from synthesis.errors import SynthesisError, answer_or_raise
from synthesis.octave_bands import NR_BANDS
from synthesis.path_prior import PathPrior, learn_path_prior
from synthesis.plausibility import SupportPrior, find_implausible
from synthesis.support_statistics import learn_support_statistics
from training.datasets import open_dataset
from training.datasets.noise import NoiseSet, read_noise, simulated_noise
from training.datasets.path_pairs import DatasetError, PathPair
from training.run_folder import write_atomically
from training.simulated_calibration import simulate_calibration

SNRS_DB = (30.0, 40.0, 50.0)
WITHOUT_NOISE_DB = 200.0
POOL = slice(0, None, 2)
"""Every second recording is a probe of the pool."""

KEYS = ["endpoint", "mistake", "probe", "snr_db"]


def supports_of(pairs: Sequence[PathPair], noise: NoiseSet) -> dict[str, tuple[SupportPrior, PathPrior]]:
    """What each listener's ears are judged and estimated by: the other listeners', as training learns them."""
    found = simulate_calibration(pairs, noise)
    primary, secondary = found.primary.numpy(), found.secondary.numpy()

    def without(listener: str) -> tuple[SupportPrior, PathPrior]:
        others = [number for number, pair in enumerate(pairs) if pair.listener != listener]
        true = [pairs[number] for number in others]
        return SupportPrior(learn_support_statistics(primary[others], secondary[others])), learn_path_prior(
            [pair.primary for pair in true], [pair.secondary for pair in true], [pair.listener for pair in true]
        )

    return {each: without(each) for each in dict.fromkeys(pair.listener for pair in pairs)}


def other_ear(number: int, pairs: Sequence[PathPair]) -> PathPair:
    """An ear of another person, on the same side."""
    others = [each for each in pairs if each.listener != pairs[number].listener and each.ear == pairs[number].ear]
    return others[(5 * number) % len(others)]


def rows_of(
    number: int,
    *,
    pairs: Sequence[PathPair],
    supports: dict[str, tuple[SupportPrior, PathPrior]],
    probes: dict[str, Real],
    parameters: ModelParameters,
    snrs_db: Sequence[float],
    every_snr: bool,
) -> list[dict[str, object]]:
    """All rows of one ear."""
    pair, other = pairs[number], other_ear(number, pairs)
    (support, prior), backend = supports[pair.listener], create_backend("cpu", parameters)
    own, foreign = (pair.primary, pair.secondary), (other.primary, other.secondary)
    foreign_takes = {
        kind: calibrate(record(signals, *foreign, 60.0, np.random.default_rng(0)), prior=prior)
        for kind, signals in probes.items()
    }

    def of_probe(kind: str) -> Iterator[dict[str, object]]:
        signals = probes[kind]
        silent = calibrate(record(signals, *own, WITHOUT_NOISE_DB, np.random.default_rng(0)), prior=prior)
        best_db = noise_reduction_db(backend, silent, pair)
        rotated = (number + PROBES.index(kind)) % len(snrs_db)
        for snr_db in snrs_db if every_snr else snrs_db[rotated : rotated + 1]:
            labels = {"ear": pair.name, "listener": pair.listener, "probe": kind, "snr_db": snr_db}
            for name, mistake in CALIBRATION_MISTAKES.items():
                rng = np.random.default_rng([number, int(snr_db), PROBES.index(kind)])
                takes = calibration_takes(mistake, signals, own, foreign, snr_db, rng)
                loss_db = None
                try:
                    calibration = calibrate(takes, prior=prior)
                except SynthesisError:
                    codes = ["refused"]
                else:
                    codes = [each.code for each in judge(calibration, support).reasons]
                    if name in ("right", "SNR 10 dB"):
                        loss_db = best_db - noise_reduction_db(backend, calibration, pair)
                    if name == "right":
                        right = calibration
                yield labels | {
                    "endpoint": "calibrate",
                    "mistake": name,
                    "codes": " ".join(codes),
                    "loss_db": loss_db,
                }
            for name, change in REQUEST_MISTAKES.items():
                paths = change(paths_of(right), paths_of(foreign_takes[kind]))
                found = find_implausible(support, *(each.astype(np.float32) for each in paths))
                codes = [each.code for each in found]
                yield labels | {"endpoint": "refine", "mistake": name, "codes": " ".join(codes), "loss_db": None}

    return [row for kind in probes for row in of_probe(kind)]


def paths_of(calibration: Calibration) -> Paths:
    """The paths of an answer of `/calibrate`."""
    return calibration.estimate.primary, calibration.secondary


def noise_reduction_db(backend: Backend, calibration: Calibration, pair: PathPair) -> float:
    """Of the filter for a calibration, on the true paths."""
    primary, secondary = (each.astype(np.float32) for each in paths_of(calibration))
    estimated = DesignInput(primary, secondary, calibration.estimate.coherence.astype(np.float32))
    design = answer_or_raise(backend.design([estimated], DesignOptions("prime", 1))[0])
    truth = DesignInput(pair.primary.astype(np.float32), pair.secondary.astype(np.float32))
    score = answer_or_raise(backend.evaluate([truth], [design.taps])[0])
    return float(np.mean(score.noise_reduction_db[: len(NR_BANDS)]))


def counted(ears: pd.DataFrame) -> pd.DataFrame:
    """Rows over ears: how many, how many were found (any code), the codes with their counts, and the loss of those
    found: smallest, and mean over all."""

    def of_group(group: pd.DataFrame) -> dict[str, object]:
        found = group[group.codes != ""]
        codes = pd.Series(" ".join(found.codes).split(), dtype=str).value_counts()
        return {
            "n": len(group),
            "n_found": len(found),
            "codes": " ".join(f"{code}:{n}" for code, n in codes.items()),
            "mean_loss_db": group.loss_db.mean(),
            "min_loss_found_db": found.loss_db.min(),
        }

    groups = [dict(zip(KEYS, key, strict=True)) | of_group(each) for key, each in ears.groupby(KEYS, sort=False)]
    return pd.DataFrame(groups).round(3)


def table(rows: pd.DataFrame) -> str:
    """Percentages found for each mistake, over all probes and SNRs, and the commonest codes."""
    lines = ["| mistake | `/calibrate` | `/refine` | named |", "|---|---|---|---|"]
    for mistake in dict.fromkeys(rows.mistake):
        own = rows[rows.mistake == mistake]
        cells = []
        for endpoint in ("calibrate", "refine"):
            part = own[own.endpoint == endpoint]
            cells.append(f"{100 * part.n_found.sum() / part.n.sum():.1f} %" if len(part) else "")
        counts: dict[str, int] = {}
        for code, n in (each.split(":") for cell in own.codes for each in str(cell).split() if cell):
            counts[code] = counts.get(code, 0) + int(n)
        common = [
            f"`{code}`" for code, n in sorted(counts.items(), key=lambda item: -item[1]) if n > 0.2 * own.n.sum()
        ]
        lines.append(f"| {mistake} | {cells[0]} | {cells[1]} | {', '.join(common)} |")
    return "\n".join(lines)


def run(options: argparse.Namespace) -> str:
    """Measure, judge, count."""
    dataset = open_dataset(options.dataset, options.data)
    noise = read_noise(options.noise) if options.noise else simulated_noise()
    pairs = dataset.pairs[:6] if options.quick else dataset.pairs
    probes = probe_signals(noise.signals[POOL])
    job = partial(
        rows_of,
        pairs=pairs,
        supports=supports_of(pairs, noise),
        probes={kind: probes[kind] for kind in (PROBES[:1] if options.quick else PROBES)},
        parameters=ModelStore(options.store).load("default").parameters,
        snrs_db=SNRS_DB[1:2] if options.quick else SNRS_DB,
        every_snr=options.every_snr,
    )
    numbers = range(1 if options.quick else len(pairs))
    with ProcessPoolExecutor(options.workers) as pool:
        ears = pd.DataFrame([row for rows in pool.map(job, numbers) for row in rows])
    rows = counted(ears)
    options.out.mkdir(parents=True, exist_ok=True)
    write_atomically(options.out / "ears.csv", ears.to_csv(index=False))
    write_atomically(options.out / "rows.csv", rows.to_csv(index=False))
    return table(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; returns the exit status. A mistake in the request is one line on standard error and status 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--dataset", choices=("pandar", "simulated"), default="pandar")
    add("--data", type=Path, help="folder of the data set (simulated: none)")
    add("--noise", type=Path, help="folder of 48-kHz noises (none: simulated ones)")
    add("--out", type=Path, required=True, help="folder of the study")
    add("--store", type=Path, default=DEFAULT_ROOT, help="where the default model is published")
    add("--workers", type=int, default=1, help="processes")
    add("--every-snr", action="store_true", help="every ear at every SNR; without it at one of them for each probe")
    add("--quick", action="store_true", help="one ear, judged by four others, white noise at 40 dB")
    options = parser.parse_args(arguments)
    try:
        print(run(options))
    except (DatasetError, OSError) as error:
        print(f"studies.mistakes: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
