"""The Open Inference Protocol v2 gives the filters of `/refine`, with the protocol's fields and errors."""

from typing import Any

import httpx
import numpy as np
import orjson
import pytest

from service.errors import PROBLEMS
from synthesis.types import Paths
from tests.service.api.test_design import ask
from tests.service.bodies import Json, as_base64, spectra

pytestmark = pytest.mark.anyio

URL = "/v2/models/ears/infer"


def pairs(spectrum: np.ndarray) -> np.ndarray:
    """float32 [bins, 2]."""
    return spectrum.astype("<c8").view("<f4").reshape(-1, 2)


def as_json(ear: Paths, n_fft: int = 4096, **parameters: object) -> Json:
    """A request whose tensors are flat lists."""
    return {
        "parameters": parameters,
        "inputs": [
            {"name": name, "shape": [len(item), 2], "datatype": "FP32", "data": pairs(item).reshape(-1).tolist()}
            for name, item in zip(("primary", "secondary"), spectra(ear, n_fft), strict=True)
        ],
    }


async def infer(client: httpx.AsyncClient, request: object, url: str = URL) -> Json:
    """POST JSON, expect an answer."""
    answer = await client.post(url, json=request)
    assert answer.status_code == 200, answer.text
    return answer.json()


def assert_error(answer: httpx.Response, code: str) -> None:
    """Expect the protocol's form, and the problem's status and code."""
    assert answer.headers["content-type"] == "application/json"
    document = answer.json()
    assert list(document) == ["error"]
    assert document["error"].startswith(f"{code}: "), document
    assert answer.status_code == PROBLEMS[code][0]


async def test_filter_equals_refine(client: httpx.AsyncClient, ear: Paths) -> None:
    options = {"method": "ratio_base", "sign": "plus", "max_gain_db": 20}
    expected = await ask(client, "/refine?k=2&profile=paper", as_base64(ear, 4096, **options))
    found = await infer(client, as_json(ear, k=2, profile="paper", **options) | {"id": "42"})
    (output,) = found["outputs"]
    assert output["data"] == expected["fir"]
    assert (output["name"], output["datatype"], output["shape"]) == ("fir", "FP32", [2048])
    assert found["id"] == "42"
    assert (found["model_name"], found["model_version"]) == ("ears", "2")
    parameters = output["parameters"]
    assert parameters["digest"] == expected["model"]["digest"]
    assert (parameters["method"], parameters["sign"]) == ("ratio_base", "plus")
    assert parameters["warnings"].split(", ") == [item["code"] for item in expected["warnings"]]
    for name, value in expected["refinement"].items():
        given = parameters[f"refinement.{name}"]
        assert (orjson.loads(given) if isinstance(value, list) else given) == value
    assert orjson.loads(parameters["prediction.noise_reduction_db"]) == expected["prediction"]["noise_reduction_db"]
    assert parameters["prediction.out_of_band_db.low"] == pytest.approx(
        expected["prediction"]["out_of_band_db"]["low"]
    )
    assert parameters["timings_ms.core"] > 0
    assert "timings_ms.generate" not in parameters  # not timed for this method, and a parameter cannot be null
    assert all(isinstance(parameter, str | int | float | bool) for parameter in parameters.values())


async def test_curves_are_text(client: httpx.AsyncClient, ear: Paths) -> None:
    curves = {
        "max_gain_db": ("100:12,1000:-6", {"frequency_hz": [100, 1000], "gain_db": [12, -6]}),
        "band_weights": ("100:2,1000:0.5", {"frequency_hz": [100, 1000], "weight": [2, 0.5]}),
    }
    texts, bodies = ({name: item[n] for name, item in curves.items()} for n in (0, 1))
    expected = await ask(client, "/refine?k=1", as_base64(ear, 4096, **bodies))
    assert (await infer(client, as_json(ear, k=1, **texts)))["outputs"][0]["data"] == expected["fir"]


async def test_rows_give_same_filter(client: httpx.AsyncClient, ear: Paths) -> None:
    expected = (await infer(client, as_json(ear, k=1)))["outputs"][0]["data"]
    rows = as_json(ear, k=1)
    for tensor in rows["inputs"]:
        tensor["data"] = np.reshape(tensor["data"], (-1, 2)).tolist()
    assert (await infer(client, rows))["outputs"][0]["data"] == expected


async def test_optional_tensors_change_design(client: httpx.AsyncClient, ear: Paths) -> None:
    psd = np.linspace(2e-9, 1e-9, 16_385, dtype=np.float32)
    request = as_json(ear, 32_768, k=1)
    for name, values in (("coherence", ear.coherence.tolist()), ("reference_psd", psd.tolist())):
        request["inputs"].append({"name": name, "shape": [16_385], "datatype": "FP32", "data": values})
    (output,) = (await infer(client, request))["outputs"]
    same = as_base64(ear, coherence=ear.coherence.tolist(), reference_psd=psd.tolist())
    assert output["data"] == (await ask(client, "/refine?k=1", same))["fir"]
    assert output["parameters"]["prediction.basis"] == "coherence"


async def test_metadata_and_health(client: httpx.AsyncClient) -> None:
    server = (await client.get("/v2")).json()
    assert server["name"] == "prime-anc"
    assert (await client.get("/v2/health/live")).json() == {"live": True}
    assert (await client.get("/v2/health/ready")).json()["ready"] is True
    for path in ("/v2/models/ears", "/v2/models/ears/versions/1"):
        model = (await client.get(path)).json()
        assert (model["name"], model["versions"]) == ("ears", ["1", "2"])
        assert {item["name"]: item["shape"] for item in model["inputs"]} == {
            "primary": [-1, 2],
            "secondary": [-1, 2],
            "reference_psd": [-1],
            "coherence": [-1],
            "feedback": [-1, 2],
            "weight": [-1],
        }
        assert model["outputs"] == [{"name": "fir", "datatype": "FP32", "shape": [2048]}]
        assert (await client.get(f"{path}/ready")).json() == {"name": "ears", "ready": True}


def changed(request: Json, place: int, **members: object) -> Json:
    """Replace one input's members; None removes one."""
    tensor = {name: member for name, member in (request["inputs"][place] | members).items() if member is not None}
    return request | {"inputs": [tensor if i == place else item for i, item in enumerate(request["inputs"])]}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda good: good | {"inputs": good["inputs"][:1]}, "out-of-range"),
        (lambda good: good | {"inputs": [good["inputs"][0]] * 2}, "invalid-field"),
        (lambda good: changed(good, 1, name="reference_psd", shape=[4098]), "missing-field"),
        (lambda good: changed(good, 0, datatype="FP64"), "invalid-field"),
        (lambda good: changed(good, 0, shape=[2049]), "invalid-field"),
        (lambda good: changed(good, 0, shape=[2048, 2]), "invalid-field"),
        (lambda good: changed(good, 0, data=None), "missing-field"),
        (lambda good: changed(good, 0, data=[1e39] * 4098), "invalid-field"),
        (lambda good: changed(good, 0, data=[1.0, 0.0] * 4097, shape=[4097, 2]), "unequal-grids"),
        (lambda good: changed(good, 0, parameters={"binary_data_size": 16_392}, data=None), "unknown-field"),
        (lambda good: good | {"parameters": {"k": 9}}, "out-of-range"),
        (lambda good: good | {"parameters": {"leave_one_out": True}}, "invalid-field"),
        (lambda good: good | {"parameters": {"sequence_id": 1}}, "unknown-field"),
        (lambda good: good | {"outputs": [{"name": "nothing"}]}, "invalid-field"),
        (lambda good: [good], "invalid-field"),
    ],
)
async def test_refusals_take_protocol_form(client: httpx.AsyncClient, ear: Paths, change: Any, code: str) -> None:
    assert_error(await client.post(URL, json=change(as_json(ear))), code)
