"""Read the paper's ten-path recordings: references, primary noise and secondary paths, at 48 kHz.

Eight reference recordings of 30 minutes, eighty recordings of the primary noise (8 noises x 10 paths) and ten secondary
paths. Their layout is not public: ``recordings.csv`` in the folder lists them, with the columns ``kind`` (reference,
primary or secondary), ``path``, ``noise`` and ``file``. Each primary path is identified from all of its recordings,
read block by block.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from prime_anc.measure.estimate import response_of_blocks
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from training.datasets.path_pairs import DatasetError, Float64, PathDataset, PathPair, cut_response, fingerprint

TABLE = "recordings.csv"
# Samples in memory of a recording: ten seconds.
BLOCK_SAMPLES = 10 * SAMPLE_RATE_HZ
PRIMARY_TAPS = 2048

# Files by kind, path and noise; "" where a kind has none.
Files = dict[tuple[str, str, str], Path]


def read_ten_path(folder: Path) -> PathDataset:
    """Identify the paths of a folder of recordings.

    Parameters
    ----------
    folder
        With ``recordings.csv``.

    Raises
    ------
    DatasetError
        A file is missing, unreadable, at another rate, or too short for a window.
    """
    files = _files(folder)
    pairs = []
    for path in sorted(
        {path for kind, path, _ in files if kind == "secondary"}, key=lambda name: (len(name), name)
    ):
        noises = [noise for kind, of, noise in files if kind == "primary" and of == path]
        if not noises:
            raise DatasetError(f"{folder}: path {path} has no recording of its primary noise")
        primary = response_of_blocks(_blocks(folder, files, path, noises), n_taps=PRIMARY_TAPS)
        if not np.isfinite(primary).all() or not primary.any():
            raise DatasetError(f"{folder}: the recordings of path {path} are silent or shorter than a window")
        file = files["secondary", path, ""]
        secondary = np.concatenate([block[:, 0] for block in _read(file)])
        pairs.append(
            PathPair(
                listener=f"path-{path.zfill(2)}",
                ear="mono",
                condition="original",
                fit="unknown",
                primary=primary.astype(np.float64),
                secondary=cut_response(secondary, f"secondary path in {file}"),
            )
        )
    if not pairs:
        raise DatasetError(f"{folder}: there is no secondary path; name the files in {TABLE}")
    return PathDataset(
        name="ten-path",
        pairs=tuple(pairs),
        licence="as stated by the owner of the folder",
        attribution="recordings supplied by the user",
        fingerprint=fingerprint((pair.name, pair.primary.tobytes() + pair.secondary.tobytes()) for pair in pairs),
    )


def _files(folder: Path) -> Files:
    table = folder / TABLE
    with table.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    missing = {"kind", "path", "noise", "file"} - set(rows[0] if rows else ())
    if missing:
        raise DatasetError(f"{table}: it has no column {', '.join(sorted(missing))}")
    found: Files = {}
    for row in rows:
        kind, path, noise = (row[name].strip() for name in ("kind", "path", "noise"))
        if kind not in ("reference", "primary", "secondary"):
            raise DatasetError(f"{table}: found the kind {kind!r}, expected reference, primary or secondary")
        found[kind, path * (kind != "reference"), noise * (kind != "secondary")] = folder / row["file"]
    return found


def _blocks(folder: Path, files: Files, path: str, noises: list[str]) -> Iterator[tuple[Float64, Float64]]:
    """Yield reference and primary noise of one path, block by block."""
    for noise in noises:
        if ("reference", "", noise) not in files:
            raise DatasetError(f"{folder}: noise {noise} has no reference recording")
        both = (_read(files[key]) for key in (("reference", "", noise), ("primary", path, noise)))
        for reference, error in zip(*both, strict=False):
            n = min(len(reference), len(error))
            yield reference[:n, 0], error[:n, 0]


def _read(file: Path) -> Iterator[Float64]:
    """Yield a sound file in blocks, float64 [n, channels]; raises DatasetError."""
    import soundfile

    try:
        with soundfile.SoundFile(file) as sound:
            if sound.samplerate != SAMPLE_RATE_HZ:
                raise DatasetError(f"{file}: its rate is {sound.samplerate} Hz; {SAMPLE_RATE_HZ} Hz are needed")
            yield from sound.blocks(BLOCK_SAMPLES, dtype="float64", always_2d=True)
    except (soundfile.LibsndfileError, OSError) as error:
        raise DatasetError(f"{file}: cannot be read ({error})") from error
