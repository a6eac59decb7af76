"""The real program on a GPU is ready and gives the library's filters."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch

from prime_anc.client import wire
from prime_anc.method.start.synthesizer import Synthesizer
from prime_anc.method.types import Paths
from tests.service.api.test_design import library_paths
from tests.service.program import Program, started
from tests.service.test_process import scraped

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

BINARY = {"Content-Type": "application/x-safetensors", "Accept": "application/octet-stream"}


@pytest.fixture(scope="module")
def program(store_folder: Path) -> Iterator[Program]:
    """A program that is ready."""
    with started(store_folder, "--device", "cuda") as program:
        yield program


def test_batch_equals_single_designs(program: Program, default_model: Synthesizer, ear: Paths) -> None:
    expected = default_model.design(library_paths(ear), 1, method="ratio_base").taps[0].numpy()
    body = wire.encode(ear.primary, ear.secondary)
    with ThreadPoolExecutor(9) as clients:  # one more than the middle batch holds
        ask = partial(
            httpx.post, f"{program.address}/refine?k=1&method=ratio_base", content=body, headers=BINARY, timeout=60
        )
        answers = [clients.submit(ask) for _ in range(9)]
    for answer in answers:  # another order of sums on a GPU, which the conjugate gradients amplify
        found = np.frombuffer(answer.result().content, "<f4")
        assert np.abs(found - expected).max() < 1e-2 * np.abs(expected).max()
    assert scraped(program, "prime_defects_total") == 0
