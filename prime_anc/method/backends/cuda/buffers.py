"""Static buffers of a batch, on the device and the host: inputs and outputs of a design."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from prime_anc.method.bands import WIDE_BANDS
from prime_anc.method.conventions import N_BINS, N_TAPS
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.posing import OpenLoop
from prime_anc.method.profiles import MAX_UPDATES
from prime_anc.method.types import Float32
from prime_anc.options import DEFAULT_MAX_GAIN_DB


class BatchInputs:
    """Inputs of a batch of up to `size` problems of one condition.

    One block on the host (pinned for a GPU) and one on the device, to which `write` copies. Unwritten rows keep their
    content. Call `write` again only after the previous design has finished.

    Views of the device's block: `primary` and `secondary` complex64 [size, 16385], `max_gain_db` float32 [size, 1],
    `uncertainty` float32 [size, 2, 31], `reference_psd` float32 [size, 16385].
    """

    def __init__(self, size: int, reference_psd: Tensor) -> None:
        """Allocate on the device of reference_psd, the model's, [16385]."""
        lengths = (2 * size * N_BINS, 2 * size * N_BINS, size, size * 2 * len(WIDE_BANDS), size * N_BINS)
        self.block = torch.zeros(sum(lengths), device=reference_psd.device)
        self._staged = torch.zeros(sum(lengths), pin_memory=reference_psd.device.type == "cuda")
        self._host = [item.numpy() for item in self._views(self._staged, size, lengths)]
        views = self._views(self.block, size, lengths)
        self.primary, self.secondary, self.max_gain_db, self.uncertainty, self.reference_psd = views
        primary, secondary, limit_db, _, psd = self._host
        primary[:], secondary[:], limit_db[:], psd[:] = 1, 1, DEFAULT_MAX_GAIN_DB, reference_psd.cpu().numpy()
        self.block.copy_(self._staged)

    @staticmethod
    def _views(block: Tensor, size: int, lengths: tuple[int, ...]) -> tuple[Tensor, ...]:
        primary, secondary, max_gain_db, uncertainty, psd = block.split(lengths)
        return (
            torch.view_as_complex(primary.view(size, N_BINS, 2)),
            torch.view_as_complex(secondary.view(size, N_BINS, 2)),
            max_gain_db.view(size, 1),
            uncertainty.view(size, 2, len(WIDE_BANDS)),
            psd.view(size, N_BINS),
        )

    @property
    def paths(self) -> AcousticPaths:
        """Return both paths of all rows."""
        return AcousticPaths(self.primary, self.secondary)

    def write(self, problems: Sequence[OpenLoop]) -> None:
        """Fill the first rows and copy them to the device."""
        for row, problem in enumerate(problems):
            values = (
                problem.primary,
                problem.secondary,
                problem.loose_db,
                problem.uncertainty,
                problem.reference_psd,
            )
            for place, value in zip(self._host, values, strict=True):
                place[row] = value
        self.block.copy_(self._staged, non_blocking=True)


class BatchOutputs:
    """Outputs of a batch of up to `size` conditions.

    One block on the device and one on the host, which `fetch` updates. Views of the device's block: `taps` float32
    [size, 2048]; `history` float32 [size, 3, 9], J, step scale and the solver's residual, the latest update last, NaN
    before the first; `n_applied` and `stopped` int32 [size].
    """

    def __init__(self, size: int, device: torch.device) -> None:
        lengths = (size * N_TAPS, size * 3 * (MAX_UPDATES + 1), size, size)
        self.block = torch.zeros(sum(lengths), device=device)
        self._staged = torch.zeros(sum(lengths), pin_memory=device.type == "cuda")
        self.taps, self.history, self.n_applied, self.stopped = self._views(self.block, size, lengths)
        self.host = [view.numpy() for view in self._views(self._staged, size, lengths)]

    @staticmethod
    def _views(block: Tensor, size: int, lengths: tuple[int, ...]) -> tuple[Tensor, ...]:
        taps, history, n_applied, stopped = block.split(lengths)
        return (
            taps.view(size, N_TAPS),
            history.view(size, 3, MAX_UPDATES + 1),
            n_applied.view(torch.int32),
            stopped.view(torch.int32),
        )

    def fetch(self) -> tuple[Float32, Float32, np.ndarray, np.ndarray]:
        """Copy the block to the host and wait for it; the returned views are valid until the next call."""
        self._staged.copy_(self.block, non_blocking=True)
        if self.block.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        taps, history, n_applied, stopped = self.host
        return taps, history, n_applied, stopped
