"""The stages of a design on a processor, from the ears' buffers to the answer on NumPy arrays alone."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from service.engine.schedule import Schedule, in_a_row
from service.engine.stage_clock import StageClock
from synthesis.conventions import N_TAPS
from synthesis.cpu import CpuLogSynthesizer, EarDesign, quiet
from synthesis.synthesizer import Synthesizer


class CpuSchedule(Schedule):
    """A `Schedule` to whose stages of `prime-log` nothing is handed over in tensors.

    There is nothing to record on a processor, and the hand-over took a fifth of a design. What it gives is the
    same to the bit, and other methods and profiles are made as there.
    """

    synthesizer: CpuLogSynthesizer

    def __init__(self, synthesizer: CpuLogSynthesizer, batch_size: int) -> None:
        """Allocates the buffers."""
        super().__init__(synthesizer, batch_size)
        given = self.ears.device
        self._paths = given.primary.numpy(), given.secondary.numpy()
        self._psd, self._coherence = given.reference_psd.numpy(), given.coherence.numpy()
        self._ceiling = given.max_gain_db[:, 0].numpy()
        self._designed = self.taps.numpy()

    @quiet
    def design(self, method: str, n_updates: int, profile: str, clock: StageClock) -> Tensor:
        """As there."""
        if method != "prime" or profile not in self.synthesizer.profiles:
            return super().design(method, n_updates, profile, clock)
        ears = [EarDesign(self.synthesizer, *paths) for paths in zip(*self._paths, strict=True)]
        ceilings = self._ceiling.tolist()
        for ear in ears:
            ear.path_ratio()
        clock.mark("path_ratio")
        for ear in ears:
            ear.generate()
        clock.mark("generate")
        for ear, ceiling in zip(ears, ceilings, strict=True):
            ear.reconstruct(ceiling)
        clock.mark("reconstruct")
        packed = []
        for ear, psd, ceiling in zip(ears, self._psd, ceilings, strict=True):
            refining = ear.refining(profile, psd, ceiling)
            for _ in range(n_updates):
                refining.update()
            packed.append(in_a_row(refining, n_updates))
        rows = np.stack(packed)
        self._designed[:] = rows[:, :N_TAPS]
        clock.mark("refine")
        return torch.from_numpy(rows)

    @quiet
    def predict(self, basis: str, clock: StageClock) -> Tensor:
        """As there."""
        known = self._coherence if basis == "coherence" else [None] * self.batch_size
        ears = zip(*self._paths, self._psd, self._designed, known, strict=True)
        rows = np.stack([self.synthesizer.figures(*ear) for ear in ears])
        clock.mark("predict")
        return torch.from_numpy(rows)


def schedule_of(synthesizer: Synthesizer, batch_size: int) -> Schedule:
    """The fastest schedule of a synthesizer that is served."""
    if isinstance(synthesizer, CpuLogSynthesizer):
        return CpuSchedule(synthesizer, batch_size)
    return Schedule(synthesizer, batch_size)
