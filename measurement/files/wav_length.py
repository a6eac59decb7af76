"""Whether a WAV file holds as much as its header promises.

libsndfile reads a file that was cut off as a shorter one, without a word.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

UNKNOWN_LENGTHS = range(0x7FFFF000, 0x100000000)
"""Lengths that programs write when they cannot know them, into a pipe: 2 GiB and more, not a promise."""


def what_is_missing(file: BinaryIO, n_bytes: int) -> str | None:
    """Compare the lengths in the header of a WAV file with the file's own.

    Parameters
    ----------
    file : BinaryIO
        The file, at any position; it is read from its start.
    n_bytes : int
        Length of the file.

    Returns
    -------
    str or None
        What the file lacks, with both lengths, as the end of a sentence that begins with its name; None where it
        lacks nothing, and for files that are not RIFF/WAVE.
    """
    file.seek(0)
    head = file.read(12)
    if len(head) < 12 or head[:4] != b"RIFF" or head[8:] != b"WAVE":
        return None
    promised = int.from_bytes(head[4:8], "little")
    place, block = 12, 1
    while place + 8 <= n_bytes:
        file.seek(place)
        name, length = struct.unpack("<4sI", file.read(8))
        held = n_bytes - place - 8
        if name == b"fmt " and min(length, held) >= 16:
            _, _, _, _, block, _ = struct.unpack("<HHIIHH", file.read(16))
        if name == b"data":
            if length in UNKNOWN_LENGTHS:
                length = held
            elif length > held:
                return f"its header promises {length} bytes of samples, the file holds {held}"
            elif length == 0 < held:
                return (
                    f"its header promises no samples, the file holds {held} bytes: its recorder did not finish it"
                )
            if block and length % block:
                return f"it ends within a sample: {length} bytes of samples are no multiple of {block}"
            # The byte that pads a chunk of odd length may be missing at the end.
            if promised not in UNKNOWN_LENGTHS and promised > n_bytes - 8 + length % 2:
                return f"its header promises {promised + 8} bytes, the file holds {n_bytes}"
            return None
        place += 8 + length + length % 2
    return f"its header promises {promised + 8} bytes, the file holds {n_bytes} and no samples"
