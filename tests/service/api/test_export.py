"""POST /export: realisation, prediction and files; faults are named."""

import numpy as np
import orjson
import pytest

from tests.service.api.test_design import ask
from tests.service.bodies import as_responses

pytestmark = pytest.mark.anyio

# A section more than OpenEarable 2 has for a controller.
LONG_CONTROLLER = {"sos": 3 * [[1e-3, 0, 0, 1, -0.5, 0]], "sample_rate": 192_000}


@pytest.fixture
async def body(client, ear):
    """A designed filter with its paths, but no target."""
    design = await ask(client, "/refine?k=1", as_responses(ear))
    return as_responses(ear, fir=design["fir"], snr_db=40.0)


async def test_all_taps_equal_filter(client, body):
    answer = await ask(client, "/export", body | {"target": {"form": "fir"}})
    np.testing.assert_array_equal(np.float32(answer["coefficients"]["taps"]), np.float32(body["fir"]))
    evaluated = await ask(client, "/evaluate", body)
    assert answer["loss_db"] == pytest.approx(0, abs=1e-3)
    for name in ("mean_noise_reduction_db", "max_gain_db", "control_rms"):
        assert answer["prediction"][name] == pytest.approx(evaluated["prediction"][name], rel=2e-3, abs=2e-3), name


async def test_ceiling_of_design_holds_for_export(client, ear):
    design = await ask(client, "/refine?k=1", as_responses(ear, max_gain_db=-3.0))
    merged = as_responses(ear) | design
    answer = await ask(client, "/export", merged | {"target": {"n_sections": 4}})
    assert answer["prediction"]["max_gain_db"] < -2.9
    free = {name: value for name, value in merged.items() if name != "max_gain_db"}
    loud = await ask(client, "/export", free | {"target": {"n_sections": 4}})
    assert loud["prediction"]["max_gain_db"] > 0
    await ask(client, "/evaluate", merged)  # which takes no ceiling


@pytest.mark.parametrize("kind", ["wav", "csv", "c", "mat", "minidsp"])
async def test_file_is_attachment(client, body, kind):
    content = orjson.dumps(body | {"target": {"n_sections": 2}, "file": kind})
    answer = await client.post("/export", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"].startswith('attachment; filename="control_filter.')
    assert len(answer.content) > 50


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"target": {"n_sections": 0}}, "target.n_sections"),
        ({"target": {"n_sections": 3, "number_format": "int16"}}, "target.number_format"),
        ({"target": {"sample_rate": 7999.0}}, "target.sample_rate"),
        ({"target": {"form": "lattice"}}, "target.form"),
        ({"target": {"form": "fir", "n_taps": 64}, "file": "minidsp"}, "file"),
        ({"target": {}, "file": "pdf"}, "file"),
        ({"target": {"name": "openearable-2"}, "controller": LONG_CONTROLLER}, "controller"),
        ({}, "target"),
    ],
)
async def test_mistake_is_named(client, body, change, field):
    answer = await client.post("/export", json=body | change)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["field"] == field
    assert len(answer.json()["detail"]) > 20
