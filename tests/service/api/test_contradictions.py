"""Requests that contradict physics get an error or a warning that names the cause."""

from collections.abc import Callable

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from scipy.signal import fftconvolve

from model_store.store import ModelStore
from tests.service.bodies import Json, ask_packed, post_packed
from tests.service.recordings import off_and_on
from training.datasets.mistakes import later

pytestmark = pytest.mark.anyio

Array = np.ndarray

EAR = ModelStore("none").load("bose-qc20").golden
COHERENCE = [0.999] * 16_385
P, S = (np.asarray(path, np.float64) for path in (EAR.primary, EAR.secondary))
N_FFT = 8192


@pytest.fixture
def app(bundled_app: FastAPI) -> FastAPI:
    return bundled_app


def response(path: Array) -> Json:
    """An impulse response in JSON."""
    return {"impulse_response": np.float32(path).tolist()}


def paths(primary: Array = P, secondary: Array = S, **more: object) -> Json:
    return {"primary": response(primary), "secondary": response(secondary), "sample_rate": 48_000, **more}


def spectra(change: Callable[[Array], Array]) -> Json:
    """Spectra of both paths, changed."""
    primary, secondary = (np.complex64(change(np.fft.rfft(path, N_FFT))) for path in (P, S))
    return {"primary": primary, "secondary": secondary, "sample_rate": 48_000}


def filtered(factor: float) -> Json:
    """An `/evaluate` body whose filter is a crude inverse times a factor."""
    ratio = np.fft.rfft(P, N_FFT) / (np.fft.rfft(S, N_FFT) + 0.1)
    return paths(fir=np.float32(factor * np.fft.irfft(ratio)[:2048]).tolist())


def verification() -> Json:
    """Recordings of a filter in which x and e are independent."""
    noises = np.random.default_rng(3).standard_normal((2, 2, 96_000))
    states = zip(("off", "on"), noises, strict=True)
    return filtered(1.0) | {"takes": [{"state": state, "x": x, "e": e} for state, (x, e) in states]}


TWICE = {"conditions": [{"primary": response(P), "secondary": response(S)}] * 2, "sample_rate": 48_000}
LOUD = {"feedback": response(3 * later(S, 40))}
CASES: dict[str, tuple[str, Json, str]] = {
    "a filter that adds": ("evaluate", filtered(-1.0), "amplification"),
    "evaluation of a filter that howls": ("evaluate", filtered(1.0) | LOUD, "unstable_loop"),
    "a constant for a path": ("refine", paths(primary=np.ones(32_768)), "implausible_paths"),
    "secondary sent as feedback too": ("refine", paths(feedback=response(S)), "identical_paths"),
    "feedback in millivolts": ("refine", paths(feedback=response(300 * later(S, 40))), "margins_bind"),
    "a coherence of 1": ("refine", paths(coherence=[1.0] * 16_385), "implausible_coherence"),
    "another sign than the filter's": ("evaluate", filtered(1.0) | {"sign": "plus"}, "negated_filter"),
    "export of another ear's filter": ("export", filtered(-1.0) | {"target": {"n_sections": 2}}, "unlike_filter"),
    "export for a reversed loudspeaker": (
        "export",
        filtered(1.0) | {"secondary": response(-S), "target": {"form": "fir"}},
        "implausible_polarity",
    ),
    "verification of noises": ("verify", verification(), "unrelated"),
    "more unknown than known": ("refine", paths(uncertainty=[1.0] * 62), "low_coherence"),
    "one way of wearing sent twice": ("refine", TWICE, "identical_paths"),
}


async def codes(client: httpx.AsyncClient, address: str, body: Json) -> list[str]:
    """Return the codes of the warnings or of the diagnosis."""
    document = await ask_packed(client, f"/{address}", body)
    return [item["code"] for item in document.get("warnings", document.get("diagnosis"))]


async def test_valid_ear_has_no_warning(client: httpx.AsyncClient) -> None:
    for factor in (1.0, -1e-6):
        found = await codes(client, "refine", paths(factor * P, factor * S, coherence=COHERENCE))
        assert not {code for code in found if "paths" in code or "implausible" in code}


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"latency_samples": 1000}, "latency_samples of 1000"),
        ({"secondary": 0.005 * S}, "max_gain_db is low"),
        ({"reference_psd": [0.0] * 1000 + [1.0] + [0.0] * 15_384}, "reference_psd is silent in 20 of the 21 bands"),
    ],
)
async def test_little_noise_reduction_names_cause(client: httpx.AsyncClient, more: Json, cause: str) -> None:
    warnings = (await client.post("/refine", json=paths(**more))).json()["warnings"]
    (detail,) = (warning["detail"] for warning in warnings if warning["code"] == "little_noise_reduction")
    assert cause in detail


@pytest.mark.parametrize("name", CASES)
async def test_contradiction_names_cause(client: httpx.AsyncClient, name: str) -> None:
    address, body, expected = CASES[name]
    assert expected in await codes(client, address, body)


FILTER = filtered(1.0)
QUIET, LOUD_FILTER = (FILTER | {"fir": (factor * np.array(FILTER["fir"])).tolist()} for factor in (1e-6, 1e6))
FIR = {"form": "fir"}


@pytest.mark.parametrize(
    ("address", "body", "field"),
    [
        ("refine?leave_one_out=true", paths(), "leave_one_out"),
        ("refine", paths(min_gain_margin_db=12), "min_gain_margin_db"),
        ("export", FILTER | {"target": {"n_taps": 512}}, "target.n_taps"),
        ("export", FILTER | {"target": FIR, "max_gain_db": -10}, "max_gain_db"),
        ("refine", spectra(lambda h: h + 0.2j * np.abs(h).max() * (np.arange(len(h)) == 0)), "primary"),
        ("refine", paths(reference_psd=(1e30 * np.ones(16_385)).tolist()), "reference_psd"),
        ("export", LOUD_FILTER | {"target": FIR}, "fir"),
        ("export", QUIET | {"target": FIR}, "fir"),
        ("export", filtered(1e-4) | {"target": FIR | {"number_format": "q1.7"}}, "fir"),
    ],
)
async def test_field_at_fault_is_named(client: httpx.AsyncClient, address: str, body: Json, field: str) -> None:
    answer = await post_packed(client, f"/{address}", body)
    problem = answer.json()
    assert (problem.get("status"), problem.get("field")) == (422, field), problem
    assert problem["detail"].startswith(f"{field}: ")


async def test_rounded_spectrum_and_kept_ceiling_are_accepted(client: httpx.AsyncClient) -> None:
    assert "primary" not in await codes(client, "refine", spectra(lambda h: h + 1e-6j))
    body = FILTER | {"target": FIR, "max_gain_db": 60}
    assert (await client.post("/export", json=body)).status_code == 200


async def verifying(client: httpx.AsyncClient, latency_samples: float) -> tuple[Json, Json]:
    """Return a design for the ear, with a latency, and a valid verification of it."""
    design = await ask_packed(client, "/refine?k=1", paths(coherence=COHERENCE, latency_samples=latency_samples))
    n_fft = 1 << 14
    late = np.exp(-2j * np.pi * latency_samples / n_fft * np.arange(n_fft // 2 + 1))
    played = np.fft.irfft(np.fft.rfft(S, n_fft) * np.fft.rfft(design["fir"], n_fft) * late)
    return design, paths(coherence=COHERENCE) | design | {"takes": off_and_on(P, played)}


async def test_unusable_verification_is_named(client: httpx.AsyncClient) -> None:
    design, body = await verifying(client, 0.0)
    off, on = body["takes"]
    for e in (
        0.1 * on["e"],
        1e-5 * np.random.default_rng(3).standard_normal(len(on["e"])),
    ):  # gain lowered, or dead
        quieter = {"takes": [off, on | {"e": e}]}
        assert await codes(client, "verify", body | quieter) == ["implausible_reduction"]
    rng, seconds = np.random.default_rng(3), np.arange(len(on["e"])) / 48_000
    slip = fftconvolve(rng.standard_normal(len(seconds)), np.ones(480) / 480)[: len(seconds)]
    for tone in (0.5 * np.sin(14_400 * seconds), np.sin(2 * np.pi * 63 * seconds + slip)):  # a howl, and rumble
        louder = {"takes": [off, on | {"e": on["e"] + tone}]}
        assert await codes(client, "verify", body | louder) == ["howling"]
    clipped = {
        "takes": [take | {"e": take["e"].clip(*(take["e"].std() * np.array([-2, 2])))} for take in (off, on)]
    }
    assert await codes(client, "verify", body | clipped) == ["clipping"]
    worse = {"fir": np.array(design["fir"]) * (1 + 0.2 * np.random.default_rng(3).standard_normal(2048))}
    assert await codes(client, "verify", body | worse | {"prediction": None}) == ["other_filter"]


async def test_verification_is_compared_with_prediction(client: httpx.AsyncClient) -> None:
    """The design's answer includes its latency."""
    _, body = await verifying(client, 2.5)
    assert await codes(client, "verify", body) == ["as_predicted"]
    assert "delay_off" in await codes(client, "verify", body | {"latency_samples": 0.0})
    other = (await ask_packed(client, "/refine?k=0", paths(S, P, max_gain_db=12)))["prediction"]
    bands = ("noise_reduction_db", "mean_noise_reduction_db")
    for prediction in (other, {name: other[name] for name in bands}):
        assert await codes(client, "verify", body | {"prediction": prediction}) == ["foreign_prediction"]
