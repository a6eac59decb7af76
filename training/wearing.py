"""Changes of the secondary path by wearing, learnt from a data set's persons and handling cases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from synthesis.conventions import DESIGN_N_FFT
from synthesis.wearing import Complex, WearingChange, learn_wearing, mean_path
from training.datasets.pandar import read_handling
from training.datasets.path_pairs import DatasetError, PathDataset, PathPair

NORMAL, LOOSE = "normal", ("slightly loose", "loose")
# Fits of the handling cases.
CLOSED, PRESSED, OPEN = "closed", "closed and pressed", "open"


def wearing_of(folder: Path | None, dataset: PathDataset, listeners: Sequence[str]) -> tuple[WearingChange, ...]:
    """Learn the changes for the manifest of a model.

    Parameters
    ----------
    folder
        The data set's folder.
    dataset
        Persons with the fit of their earphones.
    listeners
        Listeners that may be used.

    Returns
    -------
    tuple[WearingChange, ...]
        Pressed and open from PANDAR's handling cases, or an index's conditions of such names; loose from persons.
    """
    persons = handled = [pair for pair in dataset.pairs if pair.listener in listeners]
    if dataset.name == "pandar" and folder is not None:
        try:
            handled = list(read_handling(folder).pairs)
        except DatasetError:
            return ()
    return changes(persons, handled) if any(pair.fit == NORMAL for pair in persons) else ()


def changes(persons: Sequence[PathPair], handled: Sequence[PathPair]) -> tuple[WearingChange, ...]:
    """Learn the changes from persons' paths and handling cases."""
    normal = [_secondary(pair) for pair in persons if pair.fit == NORMAL]
    mean = mean_path(normal)
    closed = {(pair.listener, pair.ear): _secondary(pair) for pair in handled if pair.fit in (NORMAL, CLOSED)}
    pressed = [pair for pair in handled if pair.fit == PRESSED and (pair.listener, pair.ear) in closed]
    factors = {"pressed": [_secondary(pair) / closed[pair.listener, pair.ear] for pair in pressed]}
    factors |= {fit: [_secondary(pair) / mean for pair in persons if pair.fit == fit] for fit in LOOSE}
    factors = {name: found for name, found in factors.items() if found}
    taken_off = [_secondary(pair) for pair in handled if pair.fit == OPEN]
    return learn_wearing(normal, factors, {"open": taken_off} if taken_off else {})


def _secondary(pair: PathPair) -> Complex:
    spectrum: Complex = np.fft.rfft(pair.secondary, DESIGN_N_FFT)
    return spectrum
