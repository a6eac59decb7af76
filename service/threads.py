"""The threads that models live in: how each is set up before its first operator, and where all allocate."""

from __future__ import annotations

import ctypes
import platform
import threading

import torch

_setting = threading.Lock()


def prepare_thread(n_threads: int) -> None:
    """Give this thread's operators `n_threads` of the CPU's, and full float32 to convolutions on a GPU, where TF32
    would keep 10 bits of them and miss the golden case.

    PyTorch keeps the number both for each thread and for threads yet to come; the latter is copied when a thread
    first asks, which the second line does, before another thread sets its own.
    """
    with _setting:
        torch.set_num_threads(n_threads)
        torch.get_num_threads()
    torch.backends.cudnn.allow_tf32 = False


def share_one_heap() -> None:
    """Let all threads allocate from one heap, where the C library is glibc's.

    It gives each thread a heap of its own, and what one has freed is then of no use to another: request bodies come
    and go on the event loop, designs on their thread, loads on theirs, and each heap keeps the pages of its own
    largest moment. Waiting for one another is no concern: Python's lock is held around nearly all allocations.
    """
    arena_max = -8  # M_ARENA_MAX in malloc.h
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(arena_max, 1)
