"""One filter for several conditions: `python -m studies.wearing --data DIR --noise DIR --out FILE`.

A dummy head's directions and ways of wearing an earphone, both ears. Filters are designed from true paths (of the
rows `leave one out`, from calibrated ones) and scored on the true paths of conditions that no design knew. Rows of
latency and of loops are in `signal_chain`. `python -m training.report` draws the file where it is RUN/wearing.csv.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from model_store.store import BUNDLED_ROOT, ModelStore
from studies.wearing.signal_chain import late_designs, looped_designs
from synthesis.design import Model, design_all, predict_all
from synthesis.errors import answer_or_raise
from synthesis.types import Design, DesignOptions, Float32, Paths, Prediction, Problem
from training.datasets.noise import NoiseSet, read_noise
from training.datasets.pandar import read_directions, read_handling, read_pandar
from training.datasets.path_pairs import DatasetError, PathPair
from training.simulated_calibration import simulate_calibration

N_UPDATES = 3
N_GIVEN = (1, 2, 3, 4, 6, 8, 12)
SHARES = {"all around": 1.0, "front half": 0.5, "one quarter": 0.25}
"""Four directions from this share of the circle."""
N_LEFT_OUT_OF = (3, 4, 6)
N_STARTS = 6
N_LENT = 6
LENT_WEIGHTS = (0.3, 1.0)
SNR_DB = 40.0
SMOOTHING_OCTAVES = 1 / 6
PRESSED, CLOSED = "101", "102"
Row = dict[str, object]
Directions = list[PathPair]
"""Of one ear, all around the head at equal steps."""


class Designer:
    """The bundled model's filters for several conditions, and what they do.

    Profile `fine`: measured primary paths fill their 8192 samples, and the residual of such paths varies between
    the points of `fast`.
    """

    def __init__(self, n_updates: int) -> None:
        self._backend = Model.on("cpu", ModelStore(BUNDLED_ROOT).load("default").parameters)
        self.n_updates = n_updates
        self._options = DesignOptions(method="prime", n_updates=n_updates, profile="fine")

    def design(self, conditions: Sequence[Paths], leave_one_out: bool = False) -> Design:
        """One filter for all conditions."""
        problem = Problem(tuple(conditions))
        (found,) = design_all([problem], replace(self._options, leave_one_out=leave_one_out), self._backend)
        return answer_or_raise(found)

    def score(self, taps: Float32, pairs: Sequence[PathPair]) -> NDArray[np.float64]:
        """Mean noise reduction on each pair's true paths, dB."""
        return np.array([each.mean_noise_reduction_db for each in self.predicted(taps, pairs)])

    def predicted(self, taps: Float32, pairs: Sequence[PathPair]) -> list[Prediction]:
        """What the taps do on each pair's true paths."""
        ears = [Problem((Paths(each.primary, each.secondary),)) for each in map(condition, pairs)]
        return [
            answer_or_raise(each) for each in predict_all(ears, [taps] * len(ears), self._backend, is_true=True)
        ]


def condition(pair: PathPair, weight: float = 1.0) -> Paths:
    """A pair's true paths."""
    return Paths(pair.primary.astype(np.float32), pair.secondary.astype(np.float32), weight=weight)


def spread(start: int, n_given: int, n_all: int, share: float = 1.0) -> list[int]:
    """Places of directions at equal steps over a share of the circle."""
    return [(start + round(place * share * n_all / n_given)) % n_all for place in range(n_given)]


def joint_designs(designer: Designer, directions: Directions) -> Iterator[Row]:
    """How many directions, and which; what the joint filter costs on each given one."""
    n_all = len(directions)
    alone = [designer.design([condition(each)]).taps for each in directions]
    best = np.array([designer.score(taps, [each])[0] for taps, each in zip(alone, directions, strict=True)])
    choices = [(n_given, "all around") for n_given in N_GIVEN] + [(4, name) for name in list(SHARES)[1:]]
    for n_given, name in choices:
        n_different = n_all // n_given if name == "all around" else n_all
        for start in np.unique(np.linspace(0, n_different, N_STARTS, endpoint=False).astype(int)).tolist():
            given = spread(start, n_given, n_all, SHARES[name])
            taps = designer.design([condition(directions[n]) for n in given]).taps
            scores = designer.score(taps, directions)
            yield {
                "case": "directions",
                "given": f"{n_given} {name}",
                "start": start,
                **_left(np.delete(scores, given)),
                "given_db": scores[given].mean(),
                "cost_db": (best[given] - scores[given]).mean(),
            }


def _left(scores: NDArray[np.float64]) -> Row:
    """Of conditions that were not given."""
    return {"left_mean_db": scores.mean(), "left_worst_db": scores.min(), "n_left": len(scores)}


def left_out(designer: Designer, directions: Directions, noise: NoiseSet) -> Iterator[Row]:
    """The leave-one-out prediction from calibrations, against what those filters and the joint one do."""
    n_all = len(directions)
    for n_given in N_LEFT_OUT_OF:
        for start in np.linspace(0, n_all // n_given, 4, endpoint=False).astype(int).tolist():
            given = spread(start, n_given, n_all)
            pairs = [directions[n] for n in given]
            estimate = simulate_calibration(pairs, noise, snr_db=SNR_DB)
            measured = [
                Paths(*(each[n].numpy().astype(np.float32) for each in estimate.values()[:3]))
                for n in range(n_given)
            ]
            joint = designer.design(measured, leave_one_out=True)
            foretold = [each.left_out for each in joint.prediction.conditions]
            said = np.array([each.mean_noise_reduction_db for each in foretold if each is not None])
            done = np.array(
                [
                    designer.score(designer.design(measured[:n] + measured[n + 1 :]).taps, [pair])[0]
                    for n, pair in enumerate(pairs)
                ]
            )
            scores = designer.score(joint.taps, directions)
            yield {
                "case": "leave one out",
                "given": f"{n_given} all around",
                "start": start,
                **_left(np.delete(scores, given)),
                "predicted_db": said.mean(),
                "scored_db": done.mean(),
                "error_db": np.abs(said - done).mean(),
            }


def change(from_path: NDArray[np.float64], to_path: NDArray[np.float64]) -> NDArray[np.complex128]:
    """The spectrum that turns one response into another, smoothed: mean of ``Q conj(P)`` over mean of ``|P|^2``.

    Both means are over SMOOTHING_OCTAVES about each bin, so that the ratio of two noisy paths stays bounded.
    """
    before, after = np.fft.rfft(from_path), np.fft.rfft(to_path)
    half = 2 ** (SMOOTHING_OCTAVES / 2)
    bins = np.arange(len(before))
    low, high = np.floor(bins / half).astype(int), np.minimum(np.ceil(bins * half).astype(int), bins[-1]) + 1
    edges = np.stack([low, high], 1).ravel()
    # A zero behind the last bin, so that every range may end there; every second sum is one between ranges.
    cross, power = (
        np.add.reduceat(np.append(each, 0), edges)[::2] for each in (after * before.conj(), before * before.conj())
    )
    return np.asarray(cross / power, np.complex128)


def changed(path: NDArray[np.float64], ratio: NDArray[np.complex128]) -> NDArray[np.float64]:
    """A response with a change lent from elsewhere."""
    return np.asarray(np.fft.irfft(np.fft.rfft(path) * ratio, len(path)), np.float64)


def lent_directions(designer: Designer, directions: Directions, donor: Directions) -> Iterator[Row]:
    """A listener measured from one direction; others lent from the head's other ear, mirrored."""
    n_all = len(directions)
    for start in range(0, n_all, n_all // (2 * N_STARTS) or 1):
        given = spread(start, N_LENT, n_all)
        own = directions[start]
        mirrored = [donor[-n % n_all] for n in given]
        lent = [
            replace(own, primary=changed(own.primary, change(mirrored[0].primary, each.primary)))
            for each in mirrored[1:]
        ]
        sets = {
            "one": [condition(own)],
            "its donors": [condition(own), *map(condition, mirrored[1:])],
            "all measured": [condition(directions[n]) for n in given],
        }
        for weight in LENT_WEIGHTS:
            sets[f"changes lent, weight {weight:g}"] = [condition(own), *(condition(each, weight) for each in lent)]
        for name, conditions in sets.items():
            scores = designer.score(designer.design(conditions).taps, directions)
            row = _left(np.delete(scores, given))
            yield {"case": "lent directions", "given": name, "start": start, **row, "given_db": scores[start]}


def worn(designer: Designer, own: dict[str, PathPair], donor: dict[str, PathPair]) -> Iterator[Row]:
    """Closed and pressed; and an ear measured closed, with the change to pressed lent from the other ear."""
    closed, pressed = own[CLOSED], own[PRESSED]
    primary, secondary = (
        changed(mine, change(before, after))
        for mine, before, after in (
            (closed.primary, donor[CLOSED].primary, donor[PRESSED].primary),
            (closed.secondary, donor[CLOSED].secondary, donor[PRESSED].secondary),
        )
    )
    lent = replace(closed, primary=primary, secondary=secondary)
    sets = {
        "closed": [closed],
        "pressed": [pressed],
        "closed and pressed": [closed, pressed],
        "closed, pressed of the other ear": [closed, donor[PRESSED]],
        "closed, change to pressed lent": [closed, lent],
    }
    for name, pairs in sets.items():
        scores = designer.score(designer.design([condition(each) for each in pairs]).taps, [closed, pressed])
        yield {"case": "worn", "given": name, "closed_db": scores[0], "pressed_db": scores[1]}


def study(
    designer: Designer,
    directions: Sequence[PathPair],
    cases: Sequence[PathPair],
    persons: Sequence[PathPair],
    noise: NoiseSet,
) -> Iterator[Row]:
    """All rows. directions: of both ears, in order of angle. cases: of both ears, by label. persons: both ears."""
    for side, other in (("left", "right"), ("right", "left")):
        own, donor = ([each for each in directions if each.ear == name] for name in (side, other))
        handled, others = ({each.label: each for each in cases if each.ear == name} for name in (side, other))
        for rows in (
            joint_designs(designer, own),
            left_out(designer, own, noise),
            lent_directions(designer, own, donor),
            worn(designer, handled, others),
        ):
            yield from ({"ear": side} | row for row in rows)
    yield from late_designs(persons, noise, designer.n_updates)
    yield from looped_designs(cases, designer.n_updates)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the rows and print their means over starts and, of `worst`, the least."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="any level of the PANDAR database down to BoseQC20"
    )
    parser.add_argument("--noise", type=Path, required=True, help="folder of 48-kHz noises, which calibrate")
    parser.add_argument("--out", type=Path, required=True, help="CSV file of the rows")
    parser.add_argument("--updates", type=int, default=N_UPDATES)
    request = parser.parse_args(arguments)
    try:
        readers = read_directions, read_handling, read_pandar
        directions, cases, persons = (read(request.data).pairs for read in readers)
        noise = read_noise(request.noise)
    except DatasetError as error:
        print(f"wearing: {error}", file=sys.stderr)
        return 2
    rows = pd.DataFrame(study(Designer(request.updates), directions, cases, persons, noise))
    rows.to_csv(request.out, index=False, float_format="%.2f")
    print(summary(rows).to_string(float_format="%.2f"))
    return 0


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over starts, and the least of the worst."""
    grouped = rows.groupby(["case", "given", "ear", "latency_samples"], sort=False, dropna=False)
    figures = grouped.mean(numeric_only=True).drop(columns=["start", "n_left"])
    return figures.assign(least_db=grouped.left_worst_db.min()).dropna(axis=1, how="all")


if __name__ == "__main__":
    sys.exit(main())
