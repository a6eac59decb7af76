"""Acoustic paths and noises for training and scoring, measured or simulated."""

from __future__ import annotations

from pathlib import Path

from training.datasets.index import read_index
from training.datasets.pandar import read_pandar
from training.datasets.path_pairs import DatasetError, DatasetKind, PathDataset
from training.datasets.simulated import simulate_listeners, simulated_ten_path

N_SIMULATED_LISTENERS = 23  # as many as PANDAR has persons


def open_dataset(
    kind: DatasetKind,
    folder: str | Path | None = None,
    *,
    n_listeners: int = N_SIMULATED_LISTENERS,
) -> PathDataset:
    """Open the data set of a command line.

    Parameters
    ----------
    kind
        ``pandar``, ``index`` (a folder is needed), ``ten-path`` (read as an index; without a folder: a simulated
        stand-in, labelled by `is_simulated` and its notes) or ``simulated``.
    folder
        Folder of the measurements.
    n_listeners
        Number of simulated listeners (``simulated`` only).

    Raises
    ------
    DatasetError
        The kind is unknown, a folder is missing or superfluous, or the reader finds a fault.
    """
    if kind == "pandar":
        if folder is None:
            raise DatasetError("data set pandar: no folder is given; give any level of the PANDAR database")
        return read_pandar(folder)
    if kind == "index":
        if folder is None:
            raise DatasetError("data set index: no folder is given; give one with an index.csv")
        return read_index(folder)
    if kind == "ten-path":
        return simulated_ten_path() if folder is None else read_index(folder, "ten-path")
    if kind == "simulated":
        if folder is not None:
            raise DatasetError(f"data set simulated: the folder {folder} would not be read; give none")
        return simulate_listeners(n_listeners, seed=0)
    raise DatasetError(f"data set: {kind!r} does not exist; use pandar, ten-path, index or simulated")
