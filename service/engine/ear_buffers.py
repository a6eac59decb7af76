"""Where a batch of ears lies: one block of memory on the device, and its twin on the host."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from service.designs import DEFAULT_MAX_GAIN_DB
from synthesis.conventions import N_BINS


class EarInputs(NamedTuple):
    """Views of a block: complex64 [batch, 16385] twice, float32 [batch, 16385] twice, float32 [batch, 1]."""

    primary: Tensor
    secondary: Tensor
    reference_psd: Tensor
    coherence: Tensor
    max_gain_db: Tensor


class EarBuffers:
    """What a batch is designed from. `host` is written, `upload` takes it over, `device` is read.

    To a device with memory of its own the host's block goes over in one copy. A GPU's is pinned, and nothing waits
    for it: whoever writes again must know that the design before is done. On a CPU both are the same memory.
    """

    def __init__(self, batch_size: int, reference_psd: Tensor) -> None:
        """reference_psd: [16385], what an ear's is until another is written; its device is the block's."""
        n = batch_size * (6 * N_BINS + 1)
        device = reference_psd.device
        self._staged = torch.zeros(n, pin_memory=device.type == "cuda")
        self._block = self._staged if device.type == "cpu" else torch.zeros(n, device=device)
        self.host, self.device = (_views(each, batch_size) for each in (self._staged, self._block))
        for path in (self.host.primary, self.host.secondary, self.host.coherence):
            path.fill_(1)
        self.host.reference_psd.copy_(reference_psd)
        self.host.max_gain_db.fill_(DEFAULT_MAX_GAIN_DB)
        self.upload()

    def upload(self) -> None:
        """Bring the device up to date."""
        if self._block is not self._staged:
            self._block.copy_(self._staged, non_blocking=True)

    @property
    def nbytes(self) -> int:
        """Memory on the device."""
        return self._block.nbytes


def _views(block: Tensor, batch_size: int) -> EarInputs:
    size = batch_size * N_BINS
    primary, secondary, psd, coherence, max_gain_db = block.split((2 * size, 2 * size, size, size, batch_size))
    return EarInputs(
        torch.view_as_complex(primary.view(batch_size, N_BINS, 2)),
        torch.view_as_complex(secondary.view(batch_size, N_BINS, 2)),
        psd.view(batch_size, N_BINS),
        coherence.view(batch_size, N_BINS),
        max_gain_db.view(batch_size, 1),
    )
