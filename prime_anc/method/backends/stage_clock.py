"""Times of the stages of a design, measured on the device."""

from __future__ import annotations

from time import perf_counter

import torch


class StageClock:
    """Splits the time since its creation, or since `start`, into stages that end with `mark`. For one thread.

    On a GPU the marks are CUDA events in the current stream; `times_ms` waits for the last one.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._events: list[torch.cuda.Event] = []
        self._readings: list[float] = []
        self._stages: list[str] = []
        self._read()

    def start(self) -> None:
        """Begin the first stage of a new design."""
        self._stages.clear()
        self._readings.clear()
        self._read()

    def mark(self, stage: str) -> None:
        """End the current stage under this name."""
        self._stages.append(stage)
        self._read()

    def _read(self) -> None:
        if not self._on_gpu:
            self._readings.append(perf_counter())
            return
        index = len(self._stages)
        if index == len(self._events):
            self._events.append(torch.cuda.Event(enable_timing=True))
        self._events[index].record()

    def times_ms(self) -> dict[str, float]:
        """Return the time (ms) per stage; repeated stages are summed."""
        if self._on_gpu:
            self._events[len(self._stages)].synchronize()
        times: dict[str, float] = {}
        for index, stage in enumerate(self._stages):
            if self._on_gpu:
                spent = self._events[index].elapsed_time(self._events[index + 1])
            else:
                spent = 1e3 * (self._readings[index + 1] - self._readings[index])
            times[stage] = times.get(stage, 0.0) + spent
        return times
