"""Filter and controller by HTTP: the answer, its use in other requests, and controllers that are refused."""

import io
import zipfile

import numpy as np
import pytest

from prime_anc.method.loops.sections import Sections
from tests.data.six_ears import FILE
from tests.model_store.cases import controller
from tests.service.api.test_design import ask
from tests.service.bodies import ask_packed
from tests.service.conftest import connected

pytestmark = pytest.mark.anyio
WISHES = {"n_sections": 3, "sample_rate": 96_000.0, "latency_us": 10.0, "number_format": "q5.27"}


@pytest.fixture(scope="module")
def measured():
    """A measured ear, as a request."""
    with np.load(FILE) as stored:
        secondary, primary = stored["013"][:1024, 0], stored["013"][:1024, 4]
    paths = {"primary": primary, "secondary": secondary}
    fields = {name: {"impulse_response": path.tolist()} for name, path in paths.items()}
    return fields | {"sample_rate": 48_000, "model": "bose-qc20", "sign": "plus"}


@pytest.fixture(scope="module")
async def made(app, measured):
    """Filter and controller for it."""
    async with connected(app) as client:
        return await ask(client, "/hybrid", measured | {"k": 1, "controller": WISHES})


@pytest.fixture
def running(measured, made):
    """A request about both."""
    return measured | {name: made[name] for name in ("fir", "controller")}


async def test_answer_has_both(made):
    prediction = made["prediction"]
    shares = [np.array(prediction[f"{name}_noise_reduction_db"]) for name in ("feedforward", "feedback")]
    np.testing.assert_allclose(sum(shares), prediction["noise_reduction_db"], atol=1e-3)
    assert shares[1][2] > 5
    controller = made["controller"]
    words = np.array(controller["words"]) * 2.0 ** (np.array(controller["shift"])[:, None] - 27)
    np.testing.assert_array_equal(np.array(controller["sos"])[:, [0, 1, 2, 4, 5]], words)
    plants = made["loop"]["conditions"]
    assert plants[0]["label"] == "conditions.0"
    assert len(plants) > 3
    assert made["loop"]["max_sensitivity_db"] == max(item["max_sensitivity_db"] for item in plants)


async def test_playback_sections_undo_change(made):
    found, prediction = made["controller"], made["prediction"]
    within_hz = np.outer(prediction["band_centre_hz"], 2 ** np.linspace(-1 / 6, 1 / 6, 50))
    response = Sections(np.array(found["playback_sos"]), found["sample_rate"]).response(within_hz.ravel())
    undone_db = 20 * np.log10(np.abs(response)).reshape(within_hz.shape).mean(1)
    np.testing.assert_allclose(undone_db, np.negative(prediction["playback_change_db"]), atol=2)
    assert undone_db.max() > 3


async def test_file_keeps_playback_headroom(client, running, made):
    """A file holds the rows quieter by their largest gain."""
    answer = await client.post("/export", json=running | {"target": {"n_sections": 2}, "file": "csv"})
    with zipfile.ZipFile(io.BytesIO(answer.content)) as folder:
        rows = np.loadtxt(folder.open("playback.csv"), delimiter=",", skiprows=2)
    written = np.abs(Sections(rows, 96_000.0).response(np.geomspace(1, 48_000, 4096)))
    assert written.max() == pytest.approx(1, abs=0.01)


async def test_full_scale_follows_sent_noise(client, running, made):
    """Noise that is 20 dB louder leaves 20 dB less; without a level there is none."""
    assert "full_scale_db" not in made["prediction"]
    found = []
    for level in (1e-8, 1e-6):
        body = running | {"reference_psd": np.full(16_385, level).tolist()}
        prediction = (await ask(client, "/evaluate", body))["prediction"]
        found.append(prediction["full_scale_db"])
        assert found[-1] == pytest.approx(-12 - 20 * np.log10(prediction["control_rms"]))
    assert found[0] - found[1] == pytest.approx(20, abs=1e-3)


async def test_filter_is_designed_around_controller(client, measured, running, made):
    body = measured | {"controller": made["controller"], "k": 1, "max_louder_db": made["max_louder_db"]}
    found = await ask_packed(client, "/refine", body)
    np.testing.assert_allclose(found["fir"], made["fir"], atol=1e-4 * np.abs(made["fir"]).max())
    evaluated = await ask(client, "/evaluate", running)
    for name in ("noise_reduction_db", "feedback_noise_reduction_db", "playback_change_db"):
        np.testing.assert_allclose(evaluated["prediction"][name], made["prediction"][name], atol=1e-3)


@pytest.fixture(scope="module")
def published(app, made):
    """Name of that controller in the store, for e = d - s * y."""
    found = {name: made["controller"][name] for name in ("sample_rate", "latency_us", "number_format")}
    rows = np.array(made["controller"]["sos"])
    rows[0, :3] *= -1
    return str(app.state.service.engine.store.publish("everybody", controller(sos=rows.tolist(), **found)))


@pytest.mark.parametrize("endpoint", ["refine", "evaluate", "export"])
async def test_controller_runs_by_name(client, measured, made, published, endpoint):
    body = measured | ({} if endpoint == "refine" else {"fir": made["fir"]})
    body |= {"target": {"n_sections": 2}} if endpoint == "export" else {}
    expected = await ask(client, f"/{endpoint}", body | {"controller": made["controller"]})
    for reference, send in ((published, ask), ("everybody", ask_packed)):
        found = await send(client, f"/{endpoint}", body | {"controller": reference})
        assert (found["prediction"], found["loop"]) == (expected["prediction"], expected["loop"])
    listed = (await client.get("/models")).json()
    assert published in [f"{item['name']}@{item['version']}" for item in listed["controllers"]]
    assert "everybody" not in [item["name"] for item in listed["models"]]


async def test_unknown_controller_is_named(client, measured):
    for reference in ("ears", "nobody", "No name"):
        answer = await client.post("/refine", json=measured | {"controller": reference})
        assert (answer.status_code, answer.json()["field"]) == (404, "controller")


async def test_stability_only_condition_has_loop(client, measured):
    rest = dict(measured)
    paths = {name: rest.pop(name) for name in ("primary", "secondary")}
    conditions = [paths | {"label": "loose", "stability_only": True}, paths | {"label": "worn"}]
    body = {"conditions": conditions, "controller": {"n_sections": 1}, "lend_wearing": False, "k": 0}
    found = await ask(client, "/hybrid", rest | body)
    assert [item["label"] for item in found["loop"]["conditions"]] == ["worn", "loose"]
    assert "plant_unknown" in [item["code"] for item in found["warnings"]]


ROW = [0.1, 0.0, 0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"sample_rate": 44_100.0}, "controller.sample_rate"),
        ({"sos": [ROW] * 17}, "controller.sos"),
        ({"sos": [[0.1, 0.0, 0.0, 1.0, -2.1, 1.0]]}, "controller.sos"),
        ({"number_format": "int"}, "controller.number_format"),
        ({"colour": "red"}, "controller.colour"),
    ],
)
async def test_unusable_controller_is_named(client, running, change, field):
    controller = {"sos": [ROW], "sample_rate": 48_000, "number_format": "q5.27"} | change
    answer = await client.post("/evaluate", json=running | {"controller": controller})
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text


async def test_export_is_designed_in_closed_loop(client, running, made):
    body = running | {"target": {"n_sections": 4, "sample_rate": 96_000.0, "number_format": "q5.27"}}
    found = await ask(client, "/export", body)
    full = made["prediction"]["mean_noise_reduction_db"]
    assert found["prediction"]["mean_noise_reduction_db"] == pytest.approx(full - found["loss_db"], abs=0.01)
    alone = await ask(client, "/export", {**body, "controller": None})
    assert alone["coefficients"]["sos"] != found["coefficients"]["sos"]
