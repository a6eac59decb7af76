"""The threads that models live in: how each is set up before its first operator."""

from __future__ import annotations

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
