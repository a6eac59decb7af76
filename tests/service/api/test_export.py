"""POST /export: realisation, files, faults; predictions against sums in double precision and against /verify."""

from itertools import pairwise

import httpx
import numpy as np
import pytest

from model_store.store import ModelStore
from prime_anc.method.types import Paths
from tests.service.api.test_design import ask
from tests.service.bodies import Json, as_responses, ask_packed
from tests.service.recordings import off_and_on

pytestmark = pytest.mark.anyio

# A section more than OpenEarable 2 has for a controller.
LONG_CONTROLLER = {"sos": 3 * [[1e-3, 0, 0, 1, -0.5, 0]], "sample_rate": 192_000}


@pytest.fixture
async def body(client, ear):
    """A designed filter with its paths, but no target."""
    return as_responses(ear, fir=(await ask(client, "/refine?k=1", as_responses(ear)))["fir"], snr_db=40.0)


async def test_ceiling_of_design_holds_for_export(client, ear):
    weights = {"risk_weight": 1.0, "band_weights": {"frequency_hz": [50, 5000], "weight": [1, 2]}}
    design = await ask(client, "/refine?k=1", as_responses(ear, max_gain_db=-3.0, **weights))
    merged = as_responses(ear) | design
    answer = await ask(client, "/export", merged | {"target": {"n_sections": 4}})
    assert answer["prediction"]["max_gain_db"] < -2.9
    await ask(client, "/evaluate", merged)  # which takes neither ceiling nor weights


@pytest.mark.parametrize("kind", ["wav", "minidsp"])
async def test_file_is_attachment(client, body, kind):
    answer = await client.post("/export", json=body | {"target": {"n_sections": 2}, "file": kind})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"].startswith('attachment; filename="control_filter.')
    assert len(answer.content) > 50


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"target": {"n_sections": 0}}, "target.n_sections"),
        ({"target": {"n_sections": 3, "number_format": "int16"}}, "target.number_format"),
        ({"target": {"form": "fir", "n_taps": 64}, "file": "minidsp"}, "file"),
        ({"target": {"name": "openearable-2"}, "controller": LONG_CONTROLLER}, "controller"),
        ({}, "target"),
    ],
)
async def test_mistake_is_named(client, body, change, field):
    answer = await client.post("/export", json=body | change)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["field"] == field
    assert len(answer.json()["detail"]) > 20


async def test_controller_of_other_chip_is_named(client, body):
    for rate, words, is_named in ((48_000, "float32", False), (96_000, "q5.27", True)):
        controller = {"sos": [[1e-3, 0, 0, 1, -0.5, 0]], "sample_rate": rate, "number_format": words}
        asked = body | {"controller": controller, "target": {"n_sections": 2}, "file": "c"}
        file = await client.post("/export", json=asked)
        assert ("unlike_target" in file.headers.get("X-Warnings", "")) is is_named


BUNDLED = ModelStore("none").load("bose-qc20")
P = np.asarray(BUNDLED.golden.primary, np.float32)
# A quiet loudspeaker's, so that ceilings leave 80 dB between them.
S = np.asarray(BUNDLED.golden.secondary, np.float32) / np.float32(300)
PSD = BUNDLED.parameters.reference_psd.astype(np.float64)
FREQUENCY_HZ = np.fft.rfftfreq(32_768, 1 / 48_000)
PATHS = {name: {"impulse_response": item.tolist()} for name, item in (("primary", P), ("secondary", S))}
BODY: Json = PATHS | {"sample_rate": 48_000, "coherence": [1.0] * len(PSD)}
STEEP = {"frequency_hz": [1000.0, 3500.0], "gain_db": [60.0, -20.0]}
FORMS = pytest.mark.parametrize("form", [{"n_sections": 8}, {"form": "fir", "n_taps": 1000}], ids=["sos", "fir"])


async def exported(bundled_client: httpx.AsyncClient, target: Json, **more: object) -> Json:
    design = await ask_packed(bundled_client, "/refine?k=1", BODY)
    return await ask_packed(bundled_client, "/export", BODY | {"fir": design["fir"], "target": target} | more)


def response_of(coefficients: Json, frequency_hz: np.ndarray = FREQUENCY_HZ) -> np.ndarray:
    """W; hardware plays nothing above half its rate."""
    delay = np.exp(-2j * np.pi * frequency_hz / coefficients["sample_rate"])
    if coefficients["form"] == "fir":
        response = np.polynomial.polynomial.polyval(delay, np.array(coefficients["taps"]))
    else:
        rows, powers = np.array(coefficients["sos"]), np.stack([delay**0, delay, delay**2])
        response = np.prod((rows[:, :3] @ powers) / (rows[:, 3:] @ powers), axis=0)
    return np.where(frequency_hz <= coefficients["sample_rate"] / 2, response, 0)


def reduction_db(response: np.ndarray) -> np.ndarray:
    """Noise reduction in the 23 bands from 50 Hz to 8 kHz."""
    primary, secondary = (np.fft.rfft(item.astype(np.float64), 32_768) for item in (P, S))
    before, after = (PSD * np.abs(item) ** 2 for item in (primary, primary - secondary * response))
    edges = 10 ** ((2 * np.arange(17, 41) - 1) / 20)
    first = np.searchsorted(FREQUENCY_HZ, edges)
    return np.array([10 * np.log10(before[i:j].sum() / after[i:j].sum()) for i, j in pairwise(first)])


@FORMS
@pytest.mark.parametrize("rate", [8000, 96_000])
async def test_export_predicts_steep_filter(bundled_client: httpx.AsyncClient, form: Json, rate: int) -> None:
    """Where W lies 60 dB below its passband, and above half the hardware's rate, the primary path is unchanged."""
    answer = await exported(bundled_client, form | {"sample_rate": rate}, max_gain_db=STEEP)
    coefficients, prediction = answer["coefficients"], answer["prediction"]
    passed, stopped = np.abs(response_of(coefficients, np.array([400.0, 3800.0])))
    assert stopped < 1e-3 * passed  # precondition
    expected = reduction_db(response_of(coefficients))
    np.testing.assert_allclose(prediction["noise_reduction_db"], expected, atol=0.3)
    assert prediction["mean_noise_reduction_db"] == pytest.approx(expected[:21].mean(), abs=0.1)
    largest = np.abs(response_of(coefficients, np.geomspace(1, rate / 2, 4000))).max()
    assert prediction["max_gain_db"] == pytest.approx(20 * np.log10(largest), abs=0.1)
    control = np.sqrt(np.sum(PSD * np.abs(response_of(coefficients)) ** 2))
    assert prediction["control_rms"] == pytest.approx(control, rel=1e-3)


@FORMS
async def test_verify_accepts_exported_filter(bundled_client: httpx.AsyncClient, form: Json) -> None:
    answer = await exported(
        bundled_client, form | {"sample_rate": 16_000, "number_format": "q9.55"}, max_gain_db=STEEP
    )
    control = np.fft.irfft(response_of(answer["coefficients"]), 32_768)
    takes = off_and_on(P, np.convolve(S, control))
    # The largest |W| of an export may lie between the bins of the design grid, but not below them.
    predicted = answer["prediction"]
    for beside_db, expected in ((1.0, ["as_predicted"]), (-1.0, ["foreign_prediction"])):
        prediction = predicted | {"max_gain_db": predicted["max_gain_db"] + beside_db}
        body = BODY | {"fir": answer["coefficients"], "takes": takes, "prediction": prediction}
        found = await ask_packed(bundled_client, "/verify", body)
        assert [item["code"] for item in found["diagnosis"]] == expected, found["diagnosis"]
        assert abs(found["deviation_db"]) < 1.0


async def test_longer_taps_may_be_better(bundled_client: httpx.AsyncClient) -> None:
    """An echo of the loudspeaker needs long taps: 2048 last three times as long at 16 as at 48 kHz."""
    primary, secondary = np.eye(1, 32, 20)[0], np.eye(1, 700, 10)[0] + 0.9 * np.eye(1, 700, 510)[0]
    body = as_responses(Paths(primary, secondary), exact=True)
    design = await ask_packed(bundled_client, "/refine", body)
    target = {"form": "fir", "sample_rate": 16_000}
    answer = await ask_packed(bundled_client, "/export", body | {"fir": design["fir"], "target": target})
    assert answer["loss_db"] < -3
    assert "unlike_filter" not in [item["code"] for item in answer["warnings"]]
