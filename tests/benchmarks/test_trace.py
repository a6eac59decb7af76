"""Operators and bytes, counted by hand on small programs."""

import torch

from benchmarks.trace import OperatorCounter


def test_views_cost_nothing_and_bytes_are_read_and_written() -> None:
    a, b = torch.ones(4, 8), torch.ones(8)
    with torch.inference_mode(), OperatorCounter() as counter:
        found = (a[1:3] * b.expand(2, 8)).reshape(16)
    assert torch.equal(found, torch.ones(16))
    assert counter.counts == {"mul": 1}
    assert counter.bytes == {"mul": 4 * (16 + 8 + 16)}  # half of a, b as it is stored, the product


def test_composite_operator_counts_as_parts() -> None:
    with torch.inference_mode(), OperatorCounter() as counter:
        torch.fft.irfft(torch.fft.rfft(torch.ones(3, 16)) + 1)
    assert {"_fft_r2c", "_fft_c2r", "add"} <= set(counter.counts)
    assert not any(name.startswith("fft_") for name in counter.counts)


def test_writing_in_place_counts_once() -> None:
    buffer = torch.zeros(10)
    with torch.inference_mode(), OperatorCounter() as counter:
        buffer.copy_(torch.ones(10))
    assert counter.counts["copy_"] == 1
    assert counter.bytes["copy_"] == 2 * 40
