"""Measure what listeners bring.

The persons of the data set meet the package as if their earphone were new. A device learns from 0, 2, 5 or 10 of them,
measured with pink noise at 40 dB SNR; the others are then measured with white noise and with single recordings, at 20
dB SNR. Rows: per ear, probe and number of listeners, true noise reduction at k = 1 and 3, error of the prediction,
verdict, and whether mistakes were found.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from model_store.devices import Devices
from model_store.store import ModelStore
from prime_anc.measure.calibration import calibrate
from prime_anc.measure.device import TRAINED_LISTENERS, ListenerEar
from prime_anc.method.arrays import Real
from prime_anc.method.design import design
from prime_anc.method.types import Fallback, Model, ModelParameters
from studies import Request, Row, Work, as_sent, scored, served, true_paths
from studies.mistakes import calibrated, judged, probe_signals, verdict_on
from training.datasets.mistakes import PATH_MISTAKES, TAKE_MISTAKES
from training.datasets.noise import NoiseSet
from training.datasets.path_pairs import PathDataset, PathPair
from training.simulated_calibration import record
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
        found = calibrated(takes, parameters)
        verdict = verdict_on(found, parameters)
        row: Row = case | {"probe": probe, "codes": verdict["codes"], "refused": bool(verdict["codes"])}
        if found is not None:
            estimated = as_sent(found)
            for k in (1, 3):
                made = design(estimated, served(estimated, k), model, Fallback())
                reached_db = scored(true_paths(pair), made.taps, model).mean_noise_reduction_db
                row |= {f"nr{k}_db": reached_db, "error_db": made.prediction.mean_noise_reduction_db - reached_db}
        if probe == "white":
            wrong = {LOUDER: record(signals, (paths[0], 10 * paths[1]), SNR_DB, [11, place])}
            for name in MISTAKES:
                if change := PATH_MISTAKES.get(name):
                    wrong[name] = record(signals, change(paths, paths), SNR_DB, [11, place])
                else:
                    wrong[name] = TAKE_MISTAKES[name](takes)
            row |= {f"found: {name}": bool(judged(item, parameters)["codes"]) for name, item in wrong.items()}
        rows.append(row)
    return rows


def rows_of_stage(n: int, trained: bool, dataset: PathDataset, noise: NoiseSet) -> list[Row]:
    """Learn from the first n persons of a random order, and measure those who are in no device."""
    order = np.random.default_rng(0).permutation(dataset.listeners).tolist()
    known, others = order[: max(N_LISTENERS)], order[max(N_LISTENERS) :]
    ears = [learnt(pair, noise, number) for number, pair in enumerate(dataset.of(tuple(known)))]
    ears.sort(key=lambda ear: known.index(ear.listener))
    single = {noise.names[n]: noise.signals[n : n + 1, : 4 * 48_000] for n in range(noise.n_recordings)}
    probes = {"white": probe_signals(noise)["white"]} | single
    with TemporaryDirectory() as folder:
        parameters = model_of(Path(folder), ears, n, trained)
    case: Row = {"listeners": f"{n}, trained" if trained else str(n)}
    pairs = dataset.of(tuple(others))
    return [row for pair in pairs for row in rows_of(pair, probes, parameters, case | {"ear": pair.name})]


def cases(request: Request) -> dict[str, Work]:
    """Return a case per number of listeners."""
    stages = [*((n, False) for n in N_LISTENERS), (TRAINED_LISTENERS, True)]
    return {
        f"{n}{', trained' * trained}": partial(rows_of_stage, n, trained, request.dataset, request.noise)
        for n, trained in stages
    }


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Average over ears and recordings."""
    kind = np.where(rows.probe == "white", "white", "single recording")
    figures = rows.assign(kind=kind, error_db=rows.error_db.abs()).drop(
        columns=["ear", "probe", "codes", "case", "commit"]
    )
    return figures.groupby(["listeners", "kind"], sort=False).mean().astype(float)
