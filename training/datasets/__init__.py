"""Acoustic paths and noises to train and score with: measured where a folder holds them, simulated otherwise."""

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
    """The data set that a command line names.

    Args:
        kind: ``pandar``, ``index`` (a folder is needed), ``ten-path`` (read as an index; without a folder: a
            simulated stand-in, labelled by `is_simulated` and its notes) or ``simulated``.
        folder: where the measurements are.
        n_listeners: how many listeners to simulate (``simulated`` only).

    Raises:
        DatasetError: an unknown kind, a folder missing where it is needed or given where nothing reads it, or
            whatever the reader finds wrong.
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
