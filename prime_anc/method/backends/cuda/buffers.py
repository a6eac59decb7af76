"""Static buffers of a batch, on the device and the host: inputs and outputs of a design."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from prime_anc.method.bands import WIDE_BANDS
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS, N_TAPS
from prime_anc.method.errors import InvalidPaths
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.profiles import MAX_UPDATES
from prime_anc.method.types import NOT_JUDGED, Complex64, Float32, Problem
from prime_anc.options import DEFAULT_MAX_GAIN_DB


class BatchInputs:
    """Inputs of a batch of up to `size` conditions.

    One block on the host (pinned for a GPU) and one on the device. `write` fills rows of the host's block and uploads
    changes, `to_spectra` transforms impulse responses in place on the device. Unwritten rows keep their content. Call
    `write` again only after the previous design has finished.

    Views of the device's block: `primary` and `secondary` complex64 [size, 16385], `max_gain_db` float32 [size, 1],
    `uncertainty` float32 [size, 2, 31], `reference_psd` float32 [size, 16385].
    """

    def __init__(self, size: int, reference_psd: Tensor) -> None:
        """Allocate; reference_psd is the model's, [16385], for problems without one, on the batch's device."""
        device = reference_psd.device
        row = 2 * N_BINS
        lengths = (2 * size * row, 2 * size, size, size * 2 * len(WIDE_BANDS), size * N_BINS)
        self._ends = np.cumsum(lengths)
        staged = torch.zeros(int(self._ends[-1]), pin_memory=device.type == "cuda")
        self.block = torch.zeros(int(self._ends[-1]), device=device)
        self._staged = staged
        paths, is_response, max_gain_db, uncertainty, psd = (part.numpy() for part in staged.split(lengths))
        self._paths, self._is_response = paths.reshape(2, size, row), is_response.reshape(2, size)
        self._max_gain_db = max_gain_db
        self._psd, self._uncertainty = psd.reshape(size, N_BINS), uncertainty.reshape(size, 2, len(WIDE_BANDS))
        self._model_psd: Float32 = reference_psd.cpu().numpy()
        self._has_model_psd = np.ones(size, bool)
        self._paths[:, :, 0::2] = 1
        self._psd[:], self._max_gain_db[:] = self._model_psd, DEFAULT_MAX_GAIN_DB

        paths_there, flags, limits, uncertainty_there, psd_there = self.block.split(lengths)
        self._given, self._flags = paths_there.view(2, size, row), flags.view(2, size, 1)
        spectra = torch.view_as_complex(self._given.view(2, size, N_BINS, 2))
        self.primary, self.secondary = spectra[0], spectra[1]
        self.max_gain_db = limits.view(size, 1)
        self.reference_psd = psd_there.view(size, N_BINS)
        self.uncertainty = uncertainty_there.view(size, 2, len(WIDE_BANDS))
        self.block.copy_(staged)

    @property
    def paths(self) -> AcousticPaths:
        """Return both paths of all rows."""
        return AcousticPaths(self.primary, self.secondary)

    def write(self, problems: Sequence[Problem]) -> dict[int, InvalidPaths]:
        """Fill the first rows and upload them; return the errors by row for paths that do not fit the grid."""
        faults: dict[int, InvalidPaths] = {}
        end = self._ends[3]
        for row, problem in enumerate(problems):
            (paths,) = problem.conditions
            try:
                self._write_path(0, row, "primary", paths.primary)
                self._write_path(1, row, "secondary", paths.secondary)
            except InvalidPaths as error:
                faults[row] = error
            self._max_gain_db[row] = problem.max_gain_db
            if problem.reference_psd is not None or not self._has_model_psd[row]:
                self._psd[row] = self._model_psd if problem.reference_psd is None else problem.reference_psd
                self._has_model_psd[row] = problem.reference_psd is None
                end = self._ends[4]
            self._uncertainty[row] = (paths.known or NOT_JUDGED).assumed
        # One copy, up to the last changed part: most problems have no noise of their own.
        self.block[:end].copy_(self._staged[:end], non_blocking=True)
        return faults

    def _write_path(self, which: int, row: int, name: str, path: Float32 | Complex64) -> None:
        is_response = not np.iscomplexobj(path)
        if path.ndim != 1 or not (0 < len(path) <= DESIGN_N_FFT if is_response else len(path) == N_BINS):
            raise InvalidPaths(
                f"{name}: an array of {path.shape} {path.dtype} is neither a spectrum of {N_BINS} bins nor an "
                f"impulse response of 1 to {DESIGN_N_FFT} samples; give one of them",
                name,
            )
        place = self._paths[which, row]
        self._is_response[which, row] = is_response
        if is_response:
            place[: len(path)] = path
            place[len(path) :] = 0
        else:
            place.view(np.complex64)[:] = path

    @property
    def holds_responses(self) -> bool:
        """Return whether `to_spectra` has work."""
        return bool(self._is_response.any())

    def to_spectra(self) -> None:
        """Transform impulse responses to the design grid; spectra are unchanged."""
        spectra = torch.view_as_real(torch.fft.rfft(self._given[..., :DESIGN_N_FFT])).flatten(-2)
        self._given.copy_(torch.where(self._flags > 0, spectra, self._given))


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
