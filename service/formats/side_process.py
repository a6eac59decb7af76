"""What a process of the side lane does. Imports nothing of the project, as the process should not."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

Given = TypeVar("Given")
Found = TypeVar("Found")

NICENESS = 10
"""Where cores are short, designs and binary requests come before long JSON."""


def prepare() -> None:
    """In the process: leave Ctrl-C to the service, yield to it, and never outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def timed(work: Callable[[Given], Found], given: Given) -> tuple[Found, float]:
    """In the process: do it, and say how many seconds that took."""
    began = perf_counter()
    return work(given), perf_counter() - began


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)
