"""The memory of a question: what is put is what is got, whether it finds room or not."""

import numpy as np

from service.designs import MAX_BATCH, Ear
from service.engine.design_worker import asked
from service.engine.shared_memory import SIZE, SharedMemory
from synthesis.conventions import DESIGN_N_FFT

N_BINS = DESIGN_N_FFT // 2 + 1


def test_arrays_of_every_kind_come_back() -> None:
    memory, numbers = SharedMemory(), np.random.default_rng(0)
    given = [
        numbers.standard_normal(2048).astype(np.float32),
        (numbers.standard_normal(7) + 1j).astype(np.complex64),
        numbers.standard_normal(4096).astype(np.float32)[::2],  # not in one piece
    ]
    placed = [memory.put(each) for each in given]
    for found, expected in zip(map(memory.get, placed), given, strict=True):
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)


def test_the_next_question_begins_anew() -> None:
    memory = SharedMemory()
    first = memory.put(np.zeros(5, np.float32))
    memory.clear()
    assert memory.put(np.ones(5, np.float32)) == first
    assert np.array_equal(memory.get(first), np.ones(5))


def test_the_largest_batch_of_the_design_grid_finds_room() -> None:
    memory = SharedMemory()
    path, real = np.ones(N_BINS, np.complex64), np.ones(N_BINS, np.float32)
    ears = [asked(Ear(path, path, real, real), memory) for _ in range(MAX_BATCH)]
    filters = [memory.put(np.ones(2048, np.float32)) for _ in ears]
    assert all(isinstance(place, int) for ear in ears for _, place, _ in ear[:4])
    assert all(isinstance(place, int) for _, place, _ in filters)


def test_what_finds_no_room_comes_along() -> None:
    memory, half = SharedMemory(), np.full(SIZE // 8 + 1, 1.5, np.float32)
    first, second = memory.put(half), memory.put(2 * half)
    last = memory.put(np.full(3, 7, np.float32))
    assert isinstance(second[1], bytes)
    for placed, value in ((first, 1.5), (second, 3.0), (last, 7.0)):
        assert (memory.get(placed) == value).all()
