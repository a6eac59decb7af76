"""Read PANDAR, the earphone path database of RWTH Aachen's IKS (Liebich, Fabry, Jax, Vary, 2019).

The ``.ita`` file of a person or a handling case holds six impulse responses of 8192 samples, ``Secondary``,
``Feedback`` and ``Primary`` of both ears. That of a direction holds the primary paths of a dummy head as one-sided
spectra of 8192 samples; one more file has the head's secondary and feedback paths. What matters here:

- ``Primary`` is a relative transfer function whose time axis is circular: its second half is negative time.
  All 8192 samples in file order are used as the causal path, in truth, calibration and scoring alike.
- Ages, genders and dates in the person files are copies of person 1's, and a Primary row carries the right
  ear's fit label. Only the file's number and the Secondary rows' labels are read.
- The directions 301 to 372 lie 5 degrees apart around the head, 301 in front of it. That is not written in the
  files: a direction's changes at one ear resemble those at the other ear in the mirrored direction so.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from prime_anc.measure.files.channels import Measurement
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from training.datasets.path_pairs import (
    DatasetError,
    EarSide,
    Float64,
    PathDataset,
    PathPair,
    fingerprint,
    read_file,
)

N_SAMPLES = 8192
FIRST_DIRECTION = 301
DIRECTION_STEP_DEG = 5
LICENCE = "MIT"
ATTRIBUTION = (
    "PANDAR: Paths for Active Noise Cancellation Development And Research, version 1.0. "
    "Copyright (c) 2019 RWTH Aachen University, Institute of Communication Systems and Data Processing "
    "(IKS); S. Liebich, J. Fabry, P. Jax, P. Vary, 2019."
)

_EARS: tuple[tuple[EarSide, str], ...] = (("left", "L"), ("right", "R"))
# By number: what a file holds, and its bytes.
_Files = dict[int, tuple[Measurement, bytes]]


def read_pandar(folder: str | Path) -> PathDataset:
    """Read both ears of every person that the folder holds.

    Parameters
    ----------
    folder
        Any level of the database: the folder above ``PANDAR_database_1.0``, that folder itself, ``BoseQC20``,
        ``acoustic_booth`` or ``persons``.

    Returns
    -------
    PathDataset
        Originals at 48 kHz of 8192 samples, left ear before right, persons ascending.

    Raises
    ------
    DatasetError
        No person file, the same person twice, an unreadable file, another sampling rate, another shape, a missing
        channel, NaN or infinite samples.
    """
    files = _read(Path(folder), "acoustic_booth/persons", "person")
    return _dataset(
        files, [_pair(found, ear, f"person-{n:02d}") for n, (found, _) in files.items() for ear in _EARS]
    )


def read_handling(folder: str | Path) -> PathDataset:
    """Read the handling cases, 101 closed and pressed, 102 closed, 103 and 104 open, as labels of one listener.

    They show how a design behaves when the earphone is touched or taken off; no split uses them. Arguments and
    errors as `read_pandar`; the ear's fit distinguishes closed, pressed and open.
    """
    files = _read(Path(folder), "acoustic_booth/handling", "handling")
    return _dataset(
        files, [_pair(found, ear, "handling", str(n)) for n, (found, _) in files.items() for ear in _EARS]
    )


def read_directions(folder: str | Path) -> PathDataset:
    """Read the dummy head's directions, as labels (``0 deg``, ``15 deg``, ...) of one listener.

    Directions differ in the primary path; secondary and feedback path are the head's in all of them.
    Arguments and errors as `read_pandar`; `folder` may also be ``anechoic_chamber``, with both of its folders.
    """
    files = _read(Path(folder), "anechoic_chamber/primary", "primary_direction")
    of_the_head = _read(Path(folder), "anechoic_chamber/secondary+afb", "Sec_AFB_direction")
    ((head, _),) = of_the_head.values()
    pairs = [
        _pair(found, ear, "dummy-head", f"{DIRECTION_STEP_DEG * (n - FIRST_DIRECTION)} deg", driver=head)
        for n, (found, _) in files.items()
        for ear in _EARS
    ]
    return _dataset(files | of_the_head, pairs)


def _dataset(files: _Files, pairs: list[PathPair]) -> PathDataset:
    return PathDataset(
        name="pandar",
        pairs=tuple(pairs),
        licence=LICENCE,
        attribution=ATTRIBUTION,
        fingerprint=fingerprint((found.file.name, content) for found, content in files.values()),
    )


def _read(folder: Path, place: str, kind: str) -> _Files:
    """Read files by number, ascending, all of 8192 samples; place is their folder below the earphone's."""
    if not folder.is_dir():
        raise DatasetError(f"{folder}: this folder does not exist; give any level of the PANDAR database")
    above, folder_name = place.split("/")
    # From the folder itself up to the folder above the database.
    for level in ("", folder_name, place, f"*/{place}", f"*/*/{place}"):
        files = sorted(folder.glob(f"{level}/*_{kind}_*.ita".lstrip("/")))
        if files:
            break
    else:
        raise DatasetError(
            f"{folder}: there is no *_{kind}_*.ita file; give any level of the PANDAR database "
            f"(from the folder above PANDAR_database_1.0 down to {above}/{folder_name})"
        )
    by_number: dict[int, Path] = {}
    for file in files:
        match = re.search(rf"_(\d+)_{kind}_", file.name)
        if match is None:
            raise DatasetError(f"{file}: there is no number in the name; name it *_NNN_{kind}_*.ita")
        number = int(match.group(1))
        if number in by_number:
            raise DatasetError(
                f"{folder}: found {kind} {number} twice ({by_number[number]} and {file}), expected once"
            )
        by_number[number] = file
    read: _Files = {}
    for number, file in sorted(by_number.items()):
        found, content = read_file(file)
        if found.rate_hz != SAMPLE_RATE_HZ:
            raise DatasetError(f"{file}: found a sample rate of {found.rate_hz:g} Hz, expected {SAMPLE_RATE_HZ} Hz")
        in_time = {
            name: np.fft.irfft(channel) if np.iscomplexobj(channel) else channel
            for name, channel in found.channels.items()
        }
        for name, samples in in_time.items():
            if len(samples) != N_SAMPLES:
                raise DatasetError(f"{file}: found {len(samples)} samples in {name}, expected {N_SAMPLES}")
        read[number] = replace(found, channels=in_time), content
    return read


def _pair(
    found: Measurement, ear: tuple[EarSide, str], listener: str, label: str = "", driver: Measurement | None = None
) -> PathPair:
    """Read one ear of a file; driver has secondary and feedback path, if that file has not."""
    side, suffix = ear
    driver = driver or found
    return PathPair(
        listener=listener,
        ear=side,
        condition="original",
        fit=_fit(driver.labels.get(f"Secondary{suffix}", ""), driver.comment),
        primary=_channel(found, f"Primary{suffix}"),
        secondary=_channel(driver, f"Secondary{suffix}"),
        label=label,
        feedback=_channel(driver, f"Feedback{suffix}"),
    )


def _channel(found: Measurement, name: str) -> Float64:
    if name not in found.channels:
        raise DatasetError(f"{found.file}: found the channels {', '.join(found.channels)}, expected {name} as well")
    samples: Float64 = found.channels[name]
    if not samples.any():
        raise DatasetError(f"{found.file}: {name}: all samples are zero")
    return samples


def _fit(label: str, comment: str) -> str:
    """Return the Secondary row's label; handling files distinguish pressed from closed only in their comment."""
    return "closed and pressed" if label == "closed" and "pressed" in comment.lower() else label or "unknown"
