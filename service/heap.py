"""Share the heap between all threads."""

from __future__ import annotations

import ctypes
import platform


def share_one_heap() -> None:
    """Let all threads allocate from one heap, where the C library is glibc's.

    By default glibc gives threads separate heaps, and one thread cannot reuse what another has freed: the event
    loop, the design workers and the model loader would all keep the pages of their peaks.
    """
    arena_max = -8  # M_ARENA_MAX in malloc.h
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(arena_max, 1)
