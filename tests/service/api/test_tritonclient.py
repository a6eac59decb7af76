"""A stock client of the Open Inference Protocol against the real program."""

from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from synthesis.synthesizer import Synthesizer
from synthesis.types import Paths
from tests.service.api.test_design import library_paths
from tests.service.api.test_open_inference import pairs
from tests.service.bodies import spectra
from tests.service.program import Program


@pytest.fixture(scope="module")
def client(program: Program) -> Iterator[triton.InferenceServerClient]:
    """A client of a program that is ready."""
    client = triton.InferenceServerClient(f"127.0.0.1:{program.port}")
    yield client
    client.close()


# The client sends none of its own.
HEADERS = {"Content-Type": "application/json"}


def inputs_of(ear: Paths, n_fft: int = 32_768) -> list[triton.InferInput]:
    found = []
    for name, spectrum in zip(("primary", "secondary"), spectra(ear, n_fft), strict=True):
        tensor = triton.InferInput(name, [len(spectrum), 2], "FP32")
        tensor.set_data_from_numpy(pairs(spectrum), binary_data=False)
        found.append(tensor)
    return found


def test_filter_equals_library(
    client: triton.InferenceServerClient, default_model: Synthesizer, ear: Paths
) -> None:
    with pytest.raises(InferenceServerException, match="unknown-model"):
        client.get_model_metadata("nobody")
    assert client.is_model_ready("ears", "1")
    assert client.get_model_metadata("ears")["versions"] == ["1", "2"]
    metadata = {"headers": dict(HEADERS), "parameters": {"k": 1, "sign": "plus"}}
    result = client.infer("ears", inputs_of(ear), request_id="7", **metadata)
    taps = result.as_numpy("fir")
    assert taps.dtype == np.float32
    # The library is given impulse responses, the client sends their spectra, rounded to float32.
    expected = -default_model.design(library_paths(ear), 1).taps.detach().numpy().reshape(-1)
    assert np.abs(taps - expected).max() < 1e-3 * np.abs(expected).max()
    answered = result.get_output("fir")["parameters"]
    assert answered["refinement.applied"] == 1
    assert answered["sign"] == "plus"
    assert result.get_response()["id"] == "7"
    assert result.get_response()["model_version"] == "2"
