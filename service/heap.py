"""Where all threads allocate."""

from __future__ import annotations

import ctypes
import platform


def share_one_heap() -> None:
    """Let all threads allocate from one heap, where the C library is glibc's.

    It gives each thread a heap of its own, and what one has freed is then of no use to another: request bodies come
    and go on the event loop, designs on their threads, loads on theirs, and each heap keeps the pages of its own
    largest moment.
    """
    arena_max = -8  # M_ARENA_MAX in malloc.h
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(arena_max, 1)
