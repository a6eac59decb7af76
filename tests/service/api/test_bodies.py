"""JSON bodies: strict numbers, known fields, problems that name the field; options in the query string."""

import base64

import httpx
import numpy as np
import orjson
import pytest

from prime_anc.method.conventions import N_BINS
from prime_anc.method.types import Paths
from prime_anc.requests.bodies import DesignBody, EvaluateBody
from prime_anc.requests.errors import RequestError
from tests.service.api.test_problems import assert_problem
from tests.service.bodies import Json, as_base64, as_lists, as_responses, read_json, spectra

RESPONSE = {"impulse_response": [1.0, 0.5]}
GOOD: Json = {"primary": RESPONSE, "secondary": RESPONSE, "sample_rate": 48_000}
SPECTRUM, FINER = ({"real": [1.0] * n, "imag": [0] * n} for n in (2049, 4097))


def changed(**fields: object) -> bytes:
    """The valid body with some fields replaced."""
    return orjson.dumps(GOOD | fields)


def test_three_forms_of_path_are_equal(ear: Paths) -> None:
    primary, secondary = spectra(ear)
    for form in (as_lists, as_base64):
        read = read_json(DesignBody, orjson.dumps(form(ear)))
        assert (read.primary.tobytes(), read.secondary.tobytes()) == (primary.tobytes(), secondary.tobytes())
    encoded = {"float32": base64.b64encode(ear.primary.astype("<f4").tobytes()).decode()}
    assert np.array_equal(
        read_json(DesignBody, changed(primary={"impulse_response": encoded})).primary, ear.primary
    )


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"primary": {"impulse_response": [1.0, True]}}, "invalid-field", "primary.impulse_response"),
        ({"primary": {"impulse_response": []}}, "unusable-paths", "primary.impulse_response"),
        ({"primary": {"impulse_response": [1e39]}}, "unusable-paths", "primary.impulse_response"),
        ({"secondary": {"impulse_response": [1e-60]}}, "unusable-paths", "secondary"),
        ({"primary": {"impulse_response": [1.0] * 32_769}}, "unusable-paths", "primary.impulse_response"),
        ({"primary": {"real": [1.0] * 2049}}, "missing-field", "primary"),
        ({"primary": SPECTRUM | RESPONSE}, "invalid-field", "primary"),
        ({"primary": SPECTRUM | {"imag": [0.0] * 2048}}, "unequal-grids", "primary.imag"),
        ({"primary": {"real": [1.0] * 1000, "imag": [0.0] * 1000}}, "unusable-paths", "primary.real"),
        ({"primary": {"complex64": "AAAA"}}, "invalid-field", "primary.complex64"),
        ({"primary": SPECTRUM, "secondary": FINER}, "unequal-grids", "secondary"),
        ({"sample_rate": 44_100}, "wrong-rate", "sample_rate"),
        ({"sample_rate": None}, "missing-field", "sample_rate"),
        ({"max_gain_db": True}, "invalid-field", "max_gain_db"),
        ({"band_weights": {"frequency_hz": [100]}}, "missing-field", "band_weights"),
        ({"band_weights": {"frequency_hz": [200, 100], "weight": [1, 2]}}, "invalid-field", "band_weights"),
        ({"coherence": [0.5] * 2049}, "unequal-grids", "coherence"),
        ({"coherence": {"float32": "AAAAAA==", "wav": ""}}, "invalid-field", "coherence"),
        ({"coherence": [0.5] * (N_BINS - 1) + [1.5]}, "out-of-range", "coherence"),
        ({"uncertainty": [1e38] * 62}, "out-of-range", "uncertainty"),
        ({"uncertainty": [[0.1] * 31] * 3}, "invalid-field", "uncertainty"),
        ({"reference_psd": [1e-6] * (N_BINS - 1) + [-1e-9]}, "out-of-range", "reference_psd"),
        ({"reference_psd": [0.0] * N_BINS}, "out-of-range", "reference_psd"),
        ({"colour": "blue"}, "unknown-field", "colour"),
    ],
)
def test_fault_names_field(fields: Json, code: str, field: str) -> None:
    with pytest.raises(RequestError) as refused:
        read_json(DesignBody, changed(**fields))
    assert (refused.value.code, refused.value.field) == (code, field)
    assert refused.value.detail.startswith(field.split(".")[0])
    assert len(refused.value.detail) < 400


def test_values_per_bin_share_grid(ear: Paths) -> None:
    body = as_lists(ear, 4096, coherence=[0.5] * 2049, reference_psd=[1.0] * 2049)
    read_json(DesignBody, orjson.dumps(body))
    with pytest.raises(RequestError) as refused:
        read_json(DesignBody, orjson.dumps(body | {"coherence": [0.5] * N_BINS}))
    assert (refused.value.code, refused.value.field) == ("unequal-grids", "coherence")


def test_uncertainty_may_be_two_lists() -> None:
    halves = [[0.1] * 31, [0.2] * 31]
    read = read_json(DesignBody, changed(uncertainty=halves))
    np.testing.assert_array_equal(read.uncertainty, np.float32(halves).ravel())


@pytest.mark.parametrize(
    ("fir", "code"),
    [([0.0] * 2047, "invalid-field"), ([1e39] + [0.0] * 2047, "invalid-field"), (None, "missing-field")],
)
def test_given_filter_needs_2048_finite_taps(fir: object, code: str) -> None:
    with pytest.raises(RequestError) as refused:
        read_json(EvaluateBody, changed(fir=fir))
    assert (refused.value.code, refused.value.field) == (code, "fir")
    assert np.array_equal(read_json(EvaluateBody, changed(fir=[0.5] * 2048)).fir, np.full(2048, 0.5))


@pytest.mark.parametrize(
    ("query", "fields", "code", "field"),
    [
        ("k=2", {"k": 1}, "invalid-field", "k"),
        ("band_weights=1", {}, "invalid-field", "band_weights"),
        ("k=1&k=1", {}, "invalid-field", "k"),
        ("primary=1", {}, "unknown-field", "primary"),
    ],
)
async def test_faulty_query_is_rejected(
    client: httpx.AsyncClient, ear: Paths, query: str, fields: dict[str, object], code: str, field: str
) -> None:
    answer = await client.post(f"/refine?{query}", json=as_responses(ear, **fields))
    assert_problem(answer, code, field)
