"""Operators and bytes, counted by hand on small programs."""

import torch

from benchmarks.trace import OperatorCounter


def test_views_share_their_bytes() -> None:
    a, b = torch.ones(4, 8), torch.ones(8)
    with torch.inference_mode(), OperatorCounter() as counter:
        found = (a[1:3] * b.expand(2, 8)).reshape(16)
    assert torch.equal(found, torch.ones(16))
    assert counter.counts == {"mul": 1}
    assert counter.bytes == {"mul": 4 * (16 + 8 + 16)}  # half of a, b as it is stored, the product
