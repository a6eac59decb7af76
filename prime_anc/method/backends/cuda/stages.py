"""The stages of a design over a batch's buffers, by torch's operators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from prime_anc.method.backends.cuda.buffers import BatchInputs, BatchOutputs
from prime_anc.method.conventions import N_TAPS
from prime_anc.method.profiles import MAX_UPDATES, PROFILES
from prime_anc.method.start.synthesizer import Synthesizer
from prime_anc.method.start.wiener import design_wmmse
from prime_anc.method.updates.update import GaussNewtonState

Update = Callable[[], None]


class Stages:
    """The method on one device, with the model's weights.

    All but `solve_wmmse` can be captured in a CUDA graph: shapes are fixed and nothing is read back.
    """

    def __init__(self, synthesizer: Synthesizer) -> None:
        self.synthesizer = synthesizer
        self.reference_psd = self.synthesizer.reference_psd

    def initial_filter(self, method: str, inputs: BatchInputs) -> Tensor:
        """Return taps [size, 2048] before any update."""
        return self.synthesizer.initial_filter(inputs.paths, method, inputs.max_gain_db, inputs.reference_psd)

    def solve_wmmse(self, inputs: BatchInputs, n_ears: int) -> Tensor:
        """Return taps of the first rows, solved in float64 on the host; NaN for one without a solution."""
        solved = []
        for row in range(n_ears):
            rows = slice(row, row + 1)
            try:
                solved.append(design_wmmse(inputs.paths[rows], inputs.reference_psd[rows]))
            except (ValueError, np.linalg.LinAlgError):
                solved.append(torch.full_like(inputs.max_gain_db[rows], torch.nan).expand(1, N_TAPS))
        return torch.cat(solved)

    def begin_updates(self, profile: str, inputs: BatchInputs, start: Tensor, outputs: BatchOutputs) -> Update:
        """Write `start` and its objective to the outputs; returns the function that makes one update there."""
        updates = GaussNewtonState(
            inputs.paths,
            start,
            inputs.reference_psd,
            profile=PROFILES[profile],
            max_gain_db=inputs.max_gain_db,
            most_updates=MAX_UPDATES,
            uncertainty=inputs.uncertainty,
        )

        def publish() -> None:
            found = updates.result()
            outputs.taps.copy_(found.taps)
            outputs.history[:, 0].copy_(found.objective)
            outputs.history[:, 1, 1:].copy_(found.step_scale)
            outputs.history[:, 2, 1:].copy_(found.pcg_residual)
            outputs.n_applied.copy_(found.n_applied)
            outputs.stopped.copy_(found.stopped)

        def update() -> None:
            updates.update()
            publish()

        publish()
        return update

    def nbytes(self) -> int:
        """Return the memory of the weights."""
        tensors = [*self.synthesizer.parameters(), *self.synthesizer.buffers()]
        return sum(item.nbytes for item in tensors)
