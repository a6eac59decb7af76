"""WAV files in requests: every form that is taken against SciPy's writer, and damaged ones."""

import io
import struct
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from scipy.io import wavfile

from prime_anc.requests.errors import RequestError
from prime_anc.requests.wav import read_wav

# What follows the format's tag in an extensible header.
GUID = bytes.fromhex("000000001000800000aa00389b71")

SAMPLES = np.random.default_rng(1).uniform(-1, 1, 5000)


def written(values: np.ndarray, rate: int = 48_000) -> bytes:
    file = io.BytesIO()
    wavfile.write(file, rate, values)
    return file.getvalue()


def in_24_bits(values: np.ndarray, tag: int = 1) -> bytes:
    """Write 24 bits, with a chunk of metadata of odd length in between, which SciPy cannot."""
    whole = np.round(values * 2**23).clip(-(2**23), 2**23 - 1).astype("<i4")
    data = whole.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    form = struct.pack("<HHIIHH", tag, 1, 48_000, 144_000, 3, 24)
    if tag == 0xFFFE:
        form += struct.pack("<HHIH14s", 22, 24, 4, 1, GUID)
    chunks = [(b"fmt ", form), (b"note", b"abc\0"), (b"data", data)]
    body = b"WAVE" + b"".join(name + struct.pack("<I", len(c) - (name == b"note")) + c for name, c in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


@pytest.mark.parametrize(
    ("data", "step"),
    [
        (written(np.round(SAMPLES * 32767).astype(np.int16)), 2**-15),
        (written(np.round(SAMPLES * (2**31 - 1)).astype(np.int32)), 2**-23),
        (written(SAMPLES), 2**-24),
        (in_24_bits(SAMPLES), 2**-23),
        (in_24_bits(SAMPLES, 0xFFFE), 2**-23),
    ],
    ids=["16 bits", "32 bits", "float64", "24 bits", "24 bits, extensible"],
)
def test_samples_are_read_within_step(data: bytes, step: float) -> None:
    found = read_wav(data, "takes.0.x.wav")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, SAMPLES, rtol=0, atol=1.5 * step)


GOOD = written(SAMPLES.astype(np.float32))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"RIFX" + GOOD[4:], "invalid-field"),
        *[(GOOD[:n], "invalid-field") for n in (0, 20, 36, 40, 44, -4)],
        (GOOD[:12] + GOOD[GOOD.index(b"data") :], "invalid-field"),
        (written(SAMPLES, 44_100), "wrong-rate"),
        (written(np.stack([SAMPLES, SAMPLES], axis=1)), "invalid-field"),
        (written((SAMPLES * 100 + 128).astype(np.uint8)), "invalid-field"),
    ],
)
def test_other_wav_files_are_rejected(data: bytes, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_wav(data, "takes.0.x.wav")
    assert (caught.value.code, caught.value.field) == (code, "takes.0.x.wav")


@pytest.mark.parametrize("is_in_front", [True, False])
def test_empty_chunks_cost_no_memory(is_in_front: bool) -> None:
    """Their number grows with the body, the memory for them does not."""
    chunks, place = struct.pack("<4sI", b"JUNK", 0) * 40_000, GOOD.index(b"data")
    inner = GOOD[12:place] + chunks + GOOD[place:] if is_in_front else GOOD[12:] + chunks
    data = b"RIFF" + struct.pack("<I", 4 + len(inner)) + b"WAVE" + inner
    tracemalloc.start()
    try:
        read_wav(data, "x")
    except RequestError:
        assert is_in_front  # libsndfile looks for the samples for a while
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 2**20  # 40,000 entries would take 2 MB


def test_mutated_header_is_read_or_refused() -> None:
    rng, n_read = np.random.default_rng(3), 0
    for _ in range(600):
        data = bytearray(GOOD)
        for place in rng.integers(64, size=rng.integers(1, 5)):
            data[place] = rng.integers(256)
        with suppress(RequestError):  # and nothing else
            read_wav(bytes(data), "x")
            n_read += 1
    assert 30 < n_read < 570
