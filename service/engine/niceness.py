"""Priority of threads that compute."""

from __future__ import annotations

import os
from contextlib import suppress
from threading import get_native_id

NICENESS = 5
"""Added to that of the process: if cores are scarce, the event loop, whose work is short, comes first."""


def yield_to_event_loop() -> None:
    """Lower the priority of the calling thread, on systems where a thread has one of its own."""
    with suppress(OSError, AttributeError):
        thread = get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)
