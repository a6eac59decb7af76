"""Check whether a sound file is as long as its header states.

libsndfile silently reads a truncated file as a shorter one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

# Lengths that programs write into a pipe when the length is unknown: 2 GiB and more.
UNKNOWN_LENGTHS = range(0x7FFFF000, 0x100000000)
CUT = "it was cut off: copy or record it again"


@dataclass(frozen=True)
class _Container:
    """Layout of a format's chunks."""

    # Where the first chunk begins.
    start: int
    # A chunk's name and length, for struct.
    head: str
    # Beginning of the name of the chunk that holds the samples.
    samples: bytes
    # Whether a length includes the chunk's head.
    is_inclusive: bool = False
    # Chunks begin at multiples of it.
    alignment: int = 2


# Keyed by the first four bytes, and bytes 8 to 12 where they matter: WAV, AIFF, Sony Wave64, Core Audio.
_CONTAINERS = {
    (b"RIFF", b"WAVE"): _Container(12, "<4sI", b"data"),
    (b"RIFX", b"WAVE"): _Container(12, ">4sI", b"data"),
    (b"RF64", b"WAVE"): _Container(12, "<4sI", b"data"),
    (b"FORM", b"AIFF"): _Container(12, ">4sI", b"SSND"),
    (b"FORM", b"AIFC"): _Container(12, ">4sI", b"SSND"),
    (b"riff", b""): _Container(40, "<16sQ", b"data", is_inclusive=True, alignment=8),
    (b"caff", b""): _Container(8, ">4sQ", b"data", alignment=1),
}


def what_is_missing(file: BinaryIO, n_bytes: int) -> str | None:
    """Compare the lengths in the header of a sound file with the length of the file.

    Parameters
    ----------
    file : BinaryIO
        The file, at any position; it is read from its start.
    n_bytes : int
        Length of the file.

    Returns
    -------
    str or None
        What is wrong, with both lengths, and what to do, as the end of a sentence that begins with the file's name;
        None where nothing is, and for files of other kinds.
    """
    file.seek(0)
    head = file.read(12)
    form = next(
        (container for (first, kind), container in _CONTAINERS.items() if head[:4] == first and kind in head[8:]),
        None,
    )
    if len(head) < 12 or form is None:
        return None
    order = form.head[0]
    (promised,) = struct.unpack(f"{order}I", head[4:8])
    has_total = form.start == 12 and head[:4] != b"RF64"
    block, long_length = 1, None
    for name, length, place in _chunks(file, n_bytes, form):
        held = n_bytes - place
        if name == b"ds64" and held >= 16:
            (long_length,) = struct.unpack("<Q", file.read(16)[8:])
        if name == b"fmt " and form.samples == b"data" and min(length, held) >= 16:
            code, channels, rate, bytes_per_s, block, bits = struct.unpack(f"{order}HHIIHH", file.read(16))
            if code in (1, 3) and bytes_per_s not in (0, rate * block) and bytes_per_s * 8 % (channels * bits) == 0:
                return f"its header states {rate} Hz, and {bytes_per_s} bytes in a second; export it again"
        if not name.startswith(form.samples):
            continue
        if long_length is not None and length == 0xFFFFFFFF:
            length = long_length
        elif length in UNKNOWN_LENGTHS or length > 1 << 62:
            length = held
        if length > held:
            return f"its header promises {length} bytes of samples, the file holds {held}; {CUT}"
        if length == 0 < held:
            return f"its header promises no samples, the file holds {held} bytes: its recorder did not finish it; {CUT}"
        if block and length % block:
            return f"it ends within a sample: {length} bytes of samples are no multiple of {block}; {CUT}"
        # The byte that pads a chunk of odd length may be missing at the end.
        if has_total and promised not in UNKNOWN_LENGTHS and promised > n_bytes - 8 + length % 2:
            return f"its header promises {promised + 8} bytes, the file holds {n_bytes}; {CUT}"
        return None
    total = f" promises {promised + 8} bytes, the file" if has_total else ""
    return f"its header{total} holds {n_bytes} and no samples; {CUT}"


def _chunks(file: BinaryIO, n_bytes: int, form: _Container) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, length and position of the contents of each chunk."""
    place, size = form.start, struct.calcsize(form.head)
    while place + size <= n_bytes:
        file.seek(place)
        name, length = struct.unpack(form.head, file.read(size))
        length -= size if form.is_inclusive else 0
        yield name, length, place + size
        place += size + max(0, length)
        place += -place % form.alignment
