"""Which mistakes are found, and which right measurements are refused:
`python -m studies.mistakes --data DIR --noise DIR --out OUT`.

Every ear is measured with every kind of probe, right and with each mistake (`simulate`), and judged
with the statistics of the other persons' ears: by the verdict of `/calibrate`, and, for mistakes in the paths that
a request holds, by the warnings of `/refine`. Right measurements are also judged with other probes
(`further_probes`). What one loses is the noise reduction of the bundled model's filter (k = 1) against that of a
measurement with four seconds of white noise and no other noise.

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

from measurement.calibration import Calibration, calibrate
from measurement.checks import MAX_NOISE_COST_DB, MAX_TAIL_DB, judge
from measurement.prior import PathPrior
from model_store.store import DEFAULT_ROOT, ModelStore
from studies.mistakes.simulate import (
    CALIBRATION_MISTAKES,
    PROBES,
    REQUEST_MISTAKES,
    Real,
    Responses,
    Takes,
    calibration_takes,
    further_probes,
    probe_signals,
    record,
)
from synthesis.design import Model, design_all, predict_all
from synthesis.errors import SynthesisError, answer_or_raise
from synthesis.octave_bands import NR_BANDS
from synthesis.plausibility import (
    MAX_DISTANCE,
    MIN_DELAY_SAMPLES,
    MIN_LEVEL_DB,
    MIN_PRIMARY_DELAY_SAMPLES,
    Explanation,
    SupportPrior,
    find_implausible,
)
from synthesis.support_statistics import learn_support_statistics
from synthesis.types import DesignOptions, ModelParameters, Paths, Problem
from training.datasets import open_dataset
from training.datasets.noise import NoiseSet, read_noise, simulated_noise
from training.datasets.path_pairs import DatasetError, PathPair
from training.measurements import priors_of_others
from training.run_folder import write_atomically
from training.simulated_calibration import simulate_calibration

SNRS_DB = (30.0, 40.0, 50.0)
FURTHER_SNRS_DB = (20.0, 30.0, 40.0, 200.0)
WITHOUT_NOISE_DB = 200.0
COSTLY_DB = 0.5
POOL = slice(0, None, 2)
"""Every second recording is a probe of the pool."""

KEYS = ["endpoint", "mistake", "probe", "snr_db"]


def supports_of(pairs: Sequence[PathPair], noise: NoiseSet) -> dict[str, tuple[SupportPrior, PathPrior]]:
    """What each listener's ears are judged and estimated by: the other listeners', as training learns them."""
    found = simulate_calibration(pairs, noise)
    primary, secondary = found.primary.numpy(), found.secondary.numpy()

    def without(listener: str) -> SupportPrior:
        others = [number for number, pair in enumerate(pairs) if pair.listener != listener]
        return SupportPrior(learn_support_statistics(primary[others], secondary[others]))

    return {each: (without(each), prior) for each, prior in priors_of_others(pairs).items()}


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
    further: dict[str, Real],
    parameters: ModelParameters,
    snrs_db: Sequence[float],
) -> list[dict[str, object]]:
    """All rows of one ear. further: probes of right measurements only."""
    pair, other = pairs[number], other_ear(number, pairs)
    (support, prior), backend = supports[pair.listener], Model.on("cpu", parameters)
    own, foreign = (pair.primary, pair.secondary), (other.primary, other.secondary)
    labels: dict[str, object] = {"ear": pair.name, "listener": pair.listener}
    silent = calibrate(record(probes["white"], *own, WITHOUT_NOISE_DB, np.random.default_rng(number)), prior=prior)
    best_db = noise_reduction_db(backend, silent, pair)

    def judged(takes: Takes, *, is_scored: bool) -> tuple[dict[str, object], Calibration | None]:
        try:
            calibration = calibrate(takes, prior=prior)
        except SynthesisError:
            return {"codes": "refused"}, None
        verdict = judge(calibration, support)
        loss_db = best_db - noise_reduction_db(backend, calibration, pair) if is_scored else None
        codes = " ".join(each.code for each in verdict.reasons)
        cost_db, tail_db = verdict.noise_cost_db, calibration.tail_db
        found = {"codes": codes, "loss_db": loss_db, "noise_cost_db": cost_db, "tail_db": tail_db}
        return found | _figures(verdict.explanation), calibration

    def of_probe(kind: str) -> Iterator[dict[str, object]]:
        signals, index = probes[kind], list(probes).index(kind)
        foreign_take = calibrate(record(signals, *foreign, 60.0, np.random.default_rng(number)), prior=prior)
        snr_db = snrs_db[(number + index) % len(snrs_db)]
        here: dict[str, object] = labels | {"probe": kind, "snr_db": snr_db}
        for name, mistake in CALIBRATION_MISTAKES.items():
            rng = np.random.default_rng([number, int(snr_db), index])
            takes = calibration_takes(mistake, signals, own, foreign, snr_db, rng)
            found, calibration = judged(takes, is_scored=name in ("right", "SNR 10 dB"))
            if name == "right":
                assert calibration is not None
                own_paths = paths_of(calibration)
            yield here | {"endpoint": "calibrate", "mistake": name} | found
        for name, change in REQUEST_MISTAKES.items():
            paths = [each.astype(np.float32) for each in change(own_paths, paths_of(foreign_take))]
            codes = " ".join(each.code for each in find_implausible(support, *paths))
            figures = _figures(support.explain(*paths))
            yield here | {"endpoint": "refine", "mistake": name, "codes": codes} | figures

    def of_further(index: int, kind: str) -> dict[str, object]:
        snr_db = FURTHER_SNRS_DB[number // 3 % len(FURTHER_SNRS_DB)]
        takes = record(further[kind], *own, snr_db, np.random.default_rng([number, int(snr_db), index]))
        found, _ = judged(takes, is_scored=True)
        return labels | {"probe": kind, "snr_db": snr_db, "endpoint": "calibrate", "mistake": "right"} | found

    rows = [row for kind in probes for row in of_probe(kind)]
    # Each of the further probes with every third ear.
    return rows + [of_further(index, kind) for index, kind in enumerate(further) if (number - index) % 3 == 0]


def _figures(explanation: Explanation | None) -> dict[str, object]:
    if explanation is None:
        return {}
    return {
        "level_db": explanation.level_db,
        "delay_samples": explanation.delay_samples,
        "primary_delay_samples": explanation.primary_delay_samples,
        "distance": explanation.distance,
    }


def paths_of(calibration: Calibration) -> Responses:
    """The paths of an answer of `/calibrate`."""
    return calibration.estimate.primary, calibration.secondary


def noise_reduction_db(backend: Model, calibration: Calibration, pair: PathPair) -> float:
    """Of the filter for a calibration, on the true paths."""
    primary, secondary = (each.astype(np.float32) for each in paths_of(calibration))
    estimated = Problem((Paths(primary, secondary, calibration.estimate.coherence.astype(np.float32)),))
    design = answer_or_raise(design_all([estimated], DesignOptions("prime", 1), backend)[0])
    truth = Problem((Paths(pair.primary.astype(np.float32), pair.secondary.astype(np.float32)),))
    score = answer_or_raise(predict_all([truth], [design.taps], backend, is_true=True)[0])
    return float(np.mean(score.noise_reduction_db[: len(NR_BANDS)]))


def counted(ears: pd.DataFrame) -> pd.DataFrame:
    """Rows over ears: how many, how many were found (any code), the codes with their counts; the mean loss, how
    many lose COSTLY_DB or more, how many of these were found, and the smallest loss of those found."""

    def of_group(group: pd.DataFrame) -> dict[str, object]:
        found = group[group.codes != ""]
        codes = pd.Series(" ".join(found.codes).split(), dtype=str).value_counts()
        return {
            "n": len(group),
            "n_found": len(found),
            "codes": " ".join(f"{code}:{n}" for code, n in codes.items()),
            "mean_loss_db": group.loss_db.mean(),
            "n_costly": (group.loss_db >= COSTLY_DB).sum(),
            "n_costly_found": (found.loss_db >= COSTLY_DB).sum(),
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
        further={} if options.quick else further_probes(noise.signals),
        parameters=ModelStore(options.store).load("default").parameters,
        snrs_db=SNRS_DB[1:2] if options.quick else SNRS_DB,
    )
    numbers = range(1 if options.quick else len(pairs))
    with ProcessPoolExecutor(options.workers) as pool:
        ears = pd.DataFrame([row for rows in pool.map(job, numbers) for row in rows])
    rows = counted(ears)
    options.out.mkdir(parents=True, exist_ok=True)
    write_atomically(options.out / "ears.csv", ears.to_csv(index=False))
    write_atomically(options.out / "rows.csv", rows.to_csv(index=False))
    return table(rows) + "\n\n" + (thresholds(ears) if not options.quick else "")


LIMITS = {
    "noise_cost_db": (MAX_NOISE_COST_DB, ["SNR 10 dB"]),
    "tail_db": (MAX_TAIL_DB, ["ringing"]),
    "level_db": (MIN_LEVEL_DB, ["declared gain x 2", "declared gain / 2", "secondary 6 dB too quiet"]),
    "delay_samples": (MIN_DELAY_SAMPLES, ["1 sample late"]),
    "primary_delay_samples": (MIN_PRIMARY_DELAY_SAMPLES, ["primary 16 samples late"]),
    "distance": (MAX_DISTANCE, ["channels swapped", "another person's second state"]),
}
"""Figure -> its limit, and the mistakes that have to be beyond it."""


def thresholds(ears: pd.DataFrame) -> str:
    """Each limit chosen on half of the persons, midway between their right measurements and their mistakes, and
    scored on the other half, both ways: refused and missed there, as a Markdown table."""
    lines = [
        "| figure | limit | chosen on half A / B | refused in B / A | missed in B / A |",
        "|---|---|---|---|---|",
    ]
    persons = sorted(set(ears.listener))
    is_first = ears.listener.isin(persons[::2])
    for figure, (limit, mistakes) in LIMITS.items():
        size = ears[figure].abs() if figure != "tail_db" else ears[figure]
        right = (ears.mistake == "right") & size.notna()
        wrong = ears.mistake.isin(mistakes) & size.notna()
        if figure == "noise_cost_db":  # what loses little need not be found, nor what loses much pass
            right &= ears.loss_db < COSTLY_DB
            wrong &= ears.loss_db >= COSTLY_DB
        chosen, refused, missed = [], [], []
        for half in (is_first, ~is_first):
            middle = (size[right & half].max() + size[wrong & half].min()) / 2
            chosen.append(f"{middle:.3g}")
            refused.append(f"{(size[right & ~half] > middle).sum()} of {(right & ~half).sum()}")
            missed.append(f"{(size[wrong & ~half] <= middle).sum()} of {(wrong & ~half).sum()}")
        cells = (f"`{figure}`", f"{limit:g}", *(" / ".join(each) for each in (chosen, refused, missed)))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


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
