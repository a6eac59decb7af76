"""One block on the device, written through its twin on the host."""

import torch

from service.engine.ear_buffers import EarBuffers
from synthesis.conventions import N_BINS


def test_what_is_written_on_the_host_is_read_on_the_device(device):
    generator = torch.Generator().manual_seed(3)
    buffers = EarBuffers(2, torch.full((N_BINS,), 0.5, device=device))
    written = [torch.randn(each.shape, dtype=each.dtype, generator=generator) for each in buffers.host]
    for view, values in zip(buffers.host, written, strict=True):
        view.copy_(values)
    assert buffers.host.primary.is_pinned() == (device.type == "cuda")
    buffers.upload()
    for view, values in zip(buffers.device, written, strict=True):
        assert view.device.type == device.type
        assert torch.equal(view.cpu(), values)


def test_an_ear_starts_with_the_models_reference_and_no_unknowns(device):
    psd = torch.linspace(0, 1, N_BINS, device=device)
    ears = EarBuffers(3, psd).device
    assert torch.equal(ears.reference_psd, psd.expand(3, -1))
    assert bool((ears.coherence == 1).all())
    assert ears.max_gain_db.tolist() == [[30.0]] * 3


def test_on_a_cpu_nothing_is_copied():
    buffers = EarBuffers(1, torch.ones(N_BINS))
    buffers.host.primary[0, 7] = 5j
    assert buffers.device.primary[0, 7] == 5j
    assert buffers.nbytes == 4 * (6 * N_BINS + 1)
