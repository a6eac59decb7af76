"""POST /export: what is realised, predicted and written; mistakes named."""

import asyncio
import threading
from functools import partial

import numpy as np
import orjson
import pytest

from tests.service.api.test_design import ask
from tests.service.bodies import as_responses

pytestmark = pytest.mark.anyio


@pytest.fixture
async def body(client, ear):
    """A designed filter with its paths, but no target."""
    design = await ask(client, "/refine?k=1", as_responses(ear))
    return as_responses(ear, fir=design["fir"])


async def test_all_taps_are_the_filter_itself(client, body):
    answer = await ask(client, "/export", body | {"target": {"form": "fir"}})
    np.testing.assert_array_equal(np.float32(answer["coefficients"]["taps"]), np.float32(body["fir"]))
    evaluated = await ask(client, "/evaluate", body)
    assert answer["loss_db"] == pytest.approx(0, abs=1e-3)
    for name in ("mean_noise_reduction_db", "max_gain_db", "control_rms"):
        assert answer["prediction"][name] == pytest.approx(evaluated["prediction"][name], rel=2e-3, abs=2e-3), name


async def test_a_design_of_zeros_is_exported_as_it_is_and_nothing_is_designed_in_its_place(client, body):
    silent = body | {"fir": [0.0] * 2048}
    for number_format in ("float32", "q1.15"):
        target = {"form": "fir", "number_format": number_format}
        answer = await ask(client, "/export", silent | {"target": target})
        assert not any(answer["coefficients"]["taps"])
        assert answer["prediction"]["mean_noise_reduction_db"] == pytest.approx(0, abs=1e-6)
    content = orjson.dumps(silent | {"target": {}})
    refused = await client.post("/export", content=content, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.json()["field"]) == (422, "fir")


async def test_sections_in_fixed_point_are_words_with_shifts(client, body):
    answer = await ask(client, "/export", body | {"target": {"n_sections": 4, "number_format": "q1.23"}})
    coefficients = answer["coefficients"]
    words, shift = np.array(coefficients["words"]), np.array(coefficients["shift"])
    values = words * 2.0 ** (shift[:, None] - 23)
    np.testing.assert_allclose(np.array(coefficients["sos"])[:, [0, 1, 2, 4, 5]], values, rtol=1e-12)
    assert coefficients["scaling"]["headroom_bits"] >= 0
    assert np.isfinite(answer["loss_db"])


async def test_the_sign_plus_negates_what_is_exported(client, body):
    target = {"target": {"n_sections": 2, "number_format": "q1.31"}}
    minus = (await ask(client, "/export", body | target))["coefficients"]
    negated = {"fir": [-tap for tap in body["fir"]], "sign": "plus"}
    plus = (await ask(client, "/export", body | target | negated))["coefficients"]
    np.testing.assert_array_equal(-np.array(plus["words"][0][:3]), minus["words"][0][:3])
    np.testing.assert_array_equal(plus["words"][1], minus["words"][1])


@pytest.mark.parametrize("kind", ["wav", "csv", "c", "mat", "minidsp"])
async def test_a_file_is_an_attachment(client, body, kind):
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
        ({}, "target"),
    ],
)
async def test_a_mistake_is_named(client, body, change, field):
    content = orjson.dumps(body | change)
    answer = await client.post("/export", content=content, headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["field"] == field
    assert len(answer.json()["detail"]) > 20


async def test_several_conditions_are_served_by_one_realisation(client, body, ear):
    """Two equal conditions ask for what one asks for; an unequal one changes it."""
    paths = {name: body[name] for name in ("primary", "secondary")}
    quieter = paths | {"secondary": {"impulse_response": (0.5 * ear.secondary).tolist()}}
    rest = {name: value for name, value in body.items() if name not in paths} | {"target": {"n_sections": 2}}
    one = await ask(client, "/export", body | rest)
    equal = await ask(client, "/export", rest | {"conditions": [paths, paths]})
    unequal = await ask(client, "/export", rest | {"conditions": [paths, quieter]})
    sections = [np.array(each["coefficients"]["sos"]) for each in (one, equal, unequal)]
    np.testing.assert_allclose(sections[1], sections[0], rtol=1e-3, atol=1e-6)
    assert np.abs(sections[2] - sections[0]).max() > 1e-2


async def test_a_curve_and_a_latency_are_kept(client, body):
    curve = {"frequency_hz": [100.0, 1000.0], "gain_db": [-12.0, -3.0]}
    for target in ({"n_sections": 3}, {"form": "fir", "n_taps": 256}):
        answer = await ask(client, "/export", body | {"target": target, "max_gain_db": curve, "latency_samples": 4})
        coefficients = answer["coefficients"]
        frequency_hz = np.geomspace(20, 20_000, 500)
        delay = np.exp(-2j * np.pi * frequency_hz / 48_000)
        if "sos" in coefficients:
            powers = np.stack([delay**0, delay, delay**2])
            rows = np.array(coefficients["sos"])
            response = np.prod((rows[:, :3] @ powers) / (rows[:, 3:] @ powers), axis=0)
        else:
            response = np.polynomial.polynomial.polyval(delay, np.array(coefficients["taps"]))
        limit_db = np.interp(np.log(frequency_hz), np.log(curve["frequency_hz"]), curve["gain_db"])
        assert (20 * np.log10(np.abs(response)) - limit_db).max() < 0.1


async def test_calibrations_keep_no_export_out(app, client, body):
    """Each kind has a thread of its own, and whose calibrations are queued says nothing of the others."""
    service, go_on = app.state.service, threading.Event()
    waiting = [asyncio.create_task(service.calibrations.run(partial(go_on.wait, 60))) for _ in range(3)]
    await asyncio.sleep(0)
    answer = await ask(client, "/export", body | {"target": {"n_sections": 2}})
    assert len(answer["coefficients"]["sos"]) == 2
    assert not any(each.done() for each in waiting)
    go_on.set()
    assert all(await asyncio.gather(*waiting))
