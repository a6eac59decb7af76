"""Measure what listeners bring: `python -m studies.new_device --data DIR --noise DIR --out FILE`.

The persons of the data set meet the package as if their earphone were new. A device learns from 0, 2, 5 or 10 of them,
measured with pink noise at 40 dB SNR; the others are then measured with white noise and with single recordings, at 20
dB SNR. Rows: per ear, probe and number of listeners, true noise reduction at k = 1 and 3, error of the prediction,
verdict, and whether mistakes were found.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from model_store.devices import Devices
from model_store.store import ModelStore
from prime_anc.measure.calibration import calibrate
from prime_anc.measure.device import TRAINED_LISTENERS, ListenerEar
from prime_anc.method.design import design, predict_all
from prime_anc.method.errors import answer_or_raise
from prime_anc.method.types import Fallback, Model, ModelParameters
from studies import Row, as_sent, problem, record, run, served
from studies.mistakes import Real, judged, probe_signals
from training.datasets.mistakes import PATH_MISTAKES, TAKE_MISTAKES
from training.datasets.noise import NoiseSet
from training.datasets.path_pairs import PathDataset, PathPair
from training.train_device import train_device

N_LISTENERS, SNR_DB, LEARNT_SNR_DB = (0, 2, 5, 10), 20.0, 40.0
MISTAKES = ("secondary inverted", "secondary 30 dB too quiet", "4 samples late", "channels swapped")
LOUDER = "secondary 20 dB too loud"


def learnt(pair: PathPair, noise: NoiseSet, n: int) -> ListenerEar:
    """Measure an ear from which a device learns."""
    takes = record(probe_signals(noise)["pink"], (pair.primary, pair.secondary), LEARNT_SNR_DB, [7, n])
    found = calibrate(takes)
    paths = (found.estimate.primary, found.estimate.secondary, found.estimate.coherence)
    return ListenerEar(pair.listener, *(item.astype(np.float32) for item in paths))


def model_of(store: Path, ears: list[ListenerEar], n: int, trained: bool) -> ModelParameters:
    """Return the model that the first n listeners make."""
    devices = Devices(ModelStore(store / f"{n}-{trained}"))
    if not n:
        return devices.store.load("generic").parameters
    listeners = list(dict.fromkeys(ear.listener for ear in ears))[:n]
    devices.add("new", [ear for ear in ears if ear.listener in listeners])
    if trained:
        train_device(devices, "new")
    return devices.store.load("new").parameters


def rows_of(pair: PathPair, probes: dict[str, Real], parameters: ModelParameters, case: Row) -> list[Row]:
    """Compute the rows of one ear."""
    model, paths, rows = Model.on("cpu", parameters), (pair.primary, pair.secondary), []
    for place, (probe, signals) in enumerate(probes.items()):
        takes = record(signals, paths, SNR_DB, [11, place])
        verdict, found = judged(takes, parameters)
        row: Row = case | {"probe": probe, "codes": verdict["codes"], "refused": bool(verdict["codes"])}
        if found is not None:
            estimated = as_sent(found)
            for k in (1, 3):
                made = design(estimated, served(estimated, k), model, Fallback())
                true = answer_or_raise(predict_all([problem(*paths)], [made.taps], model, is_true=True)[0])
                row[f"nr{k}_db"] = true.mean_noise_reduction_db
                row["error_db"] = made.prediction.mean_noise_reduction_db - true.mean_noise_reduction_db
        if probe == "white":
            wrong = {LOUDER: record(signals, (paths[0], 10 * paths[1]), SNR_DB, [11, place])}
            for name in MISTAKES:
                if change := PATH_MISTAKES.get(name):
                    wrong[name] = record(signals, change(paths, paths), SNR_DB, [11, place])
                else:
                    wrong[name] = TAKE_MISTAKES[name](takes)
            row |= {f"found: {name}": bool(judged(item, parameters)[0]["codes"]) for name, item in wrong.items()}
        rows.append(row)
    return rows


def study(dataset: PathDataset, noise: NoiseSet, request: argparse.Namespace) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Learn from the first persons of a random order, and measure those who are in no device."""
    order = np.random.default_rng(0).permutation(dataset.listeners).tolist()
    known, others = order[: max(N_LISTENERS)], order[max(N_LISTENERS) :]
    ears = [learnt(pair, noise, n) for n, pair in enumerate(dataset.of(tuple(known)))]
    ears.sort(key=lambda ear: known.index(ear.listener))
    single = {noise.names[n]: noise.signals[n : n + 1, : 4 * 48_000] for n in range(noise.n_recordings)}
    probes = {"white": probe_signals(noise)["white"]} | single
    pairs = dataset.of(tuple(others))
    if request.quick:
        pairs, probes = pairs[:1], {"white": probes["white"]}
    stages = [(n, False) for n in N_LISTENERS] + [(TRAINED_LISTENERS, True)] * (not request.quick)
    rows: list[Row] = []
    with TemporaryDirectory() as folder:
        for n, trained in stages:
            parameters = model_of(Path(folder), ears, n, trained)
            case: Row = {"listeners": f"{n}, trained" if trained else str(n)}
            jobs = (delayed(rows_of)(pair, probes, parameters, case | {"ear": pair.name}) for pair in pairs)
            rows += [row for ear in Parallel(request.workers)(jobs) for row in ear]
    table = pd.DataFrame(rows)
    kind = np.where(table.probe == "white", "white", "single recording")
    figures = table.assign(kind=kind, error_db=table.error_db.abs()).drop(columns=["ear", "probe", "codes"])
    return table, figures.groupby(["listeners", "kind"], sort=False).mean().astype(float)


if __name__ == "__main__":
    sys.exit(run(__doc__, study))
