"""Requests that contradict physics get an error or a warning that names the cause."""

from collections.abc import AsyncIterator, Callable

import httpx
import numpy as np
import pytest
from scipy.signal import fftconvolve
from starlette.applications import Starlette

from model_store.store import ModelStore
from service.settings import Settings
from tests.service.bodies import Json, post_packed
from tests.service.conftest import started
from tests.service.recordings import off_and_on
from training.datasets.mistakes import later

pytestmark = pytest.mark.anyio

Array = np.ndarray

EAR = ModelStore("none").load("bose-qc20").golden
COHERENCE = [0.999] * 16_385
P, S = (np.asarray(path, np.float64) for path in (EAR.primary, EAR.secondary))
RNG = np.random.default_rng(3)
START = RNG.bit_generator.state
N_FFT = 8192


@pytest.fixture(scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Starlette]:
    """A service with the bundled default model."""
    settings = Settings(
        store=tmp_path_factory.mktemp("store"), model="bose-qc20", device="cpu", threads=1, deadline_ms=60_000
    )
    async with started(settings) as app:
        yield app


def response(path: Array) -> Json:
    """An impulse response in JSON."""
    return {"impulse_response": np.float32(path).tolist()}


def paths(primary: Array = P, secondary: Array = S, **more: object) -> Json:
    return {"primary": response(primary), "secondary": response(secondary), "sample_rate": 48_000, **more}


def spectra(change: Callable[[Array], Array]) -> Json:
    """Spectra of both paths, changed."""
    primary, secondary = (np.complex64(change(np.fft.rfft(path, N_FFT))) for path in (P, S))
    return {"primary": primary, "secondary": secondary, "sample_rate": 48_000}


@pytest.fixture(autouse=True)
def same_noise() -> None:
    """Noise that does not depend on the tests before."""
    RNG.bit_generator.state = START


def takes(
    gains: tuple[float, float] = (0.0, 0.35),
    played: float = 0.35,
    x: Array | None = None,
    change: Callable[[Array, Array], tuple[Array, Array]] = lambda x, e: (x, e),
) -> Json:
    """Two takes of white noise; `played` is the true gain, `gains` the declared ones."""
    x = RNG.standard_normal(96_000) if x is None else x
    found = []
    for declared, gain in zip(gains, (0.0, played), strict=True):
        combined = P - gain * np.pad(S, (0, len(P) - len(S)))
        signals = change(x, fftconvolve(x, combined)[: len(x)])
        found.append({"gain": declared} | dict(zip(("x", "e"), signals, strict=True)))
    return {"takes": found, "sample_rate": 48_000}


def filtered(factor: float) -> Json:
    """An `/evaluate` body whose filter is a crude inverse times a factor."""
    ratio = np.fft.rfft(P, N_FFT) / (np.fft.rfft(S, N_FFT) + 0.1)
    return paths(fir=np.float32(factor * np.fft.irfft(ratio)[:2048]).tolist())


def driven() -> Json:
    """A silent take, and one whose x is the loudspeaker's signal."""
    body = takes()
    silent, driven = body["takes"]
    return body | {"takes": [silent, {"drive": driven["x"], "x": driven["x"], "e": driven["e"]}]}


def verification() -> Json:
    """Recordings of a filter in which x and e are independent."""
    noises = RNG.standard_normal((2, 2, 96_000))
    states = zip(("off", "on"), noises, strict=True)
    return filtered(1.0) | {"takes": [{"state": state, "x": x, "e": e} for state, (x, e) in states]}


ones = np.ones(16_385)
LOUD = {"feedback": response(3 * later(S, 40))}
CASES: dict[str, tuple[str, Json, str]] = {
    "spectra conjugated": ("refine", spectra(np.conj), "other_device"),
    "nothing in common with x": ("refine", paths(coherence=(0.01 * ones).tolist()), "low_coherence"),
    "a filter that does nothing": ("evaluate", paths(fir=[0.0] * 2048), "little_noise_reduction"),
    "a filter that adds": ("evaluate", filtered(-1.0), "amplification"),
    "evaluation of a filter that howls": ("evaluate", filtered(1.0) | LOUD, "unstable_loop"),
    "export of a filter that howls": (
        "export",
        filtered(1.0) | LOUD | {"target": {"form": "fir"}},
        "unstable_loop",
    ),
    "a constant for a path": ("refine", paths(primary=np.ones(32_768)), "implausible_paths"),
    "secondary sent as feedback too": ("refine", paths(feedback=response(S)), "identical_paths"),
    "feedback in millivolts": ("refine", paths(feedback=response(300 * later(S, 40))), "margins_bind"),
    "a coherence of 1": ("refine", paths(coherence=ones.tolist()), "implausible_coherence"),
    "another sign than the filter's": ("evaluate", filtered(1.0) | {"sign": "plus"}, "negated_filter"),
    "export of nothing": ("export", paths(fir=[0.0] * 2048, target={"form": "fir"}), "little_noise_reduction"),
    "export of another ear's filter": ("export", filtered(-1.0) | {"target": {"n_sections": 2}}, "unlike_filter"),
    "export for a reversed loudspeaker": (
        "export",
        filtered(1.0) | {"secondary": response(-S), "target": {"form": "fir"}},
        "implausible_polarity",
    ),
    "verification of noises": ("verify", verification(), "unrelated"),
    "a measurement without errors": ("refine", paths(uncertainty=[0.0] * 62), "implausible_coherence"),
    "more unknown than known": ("refine", paths(uncertainty=[1.0] * 62), "low_coherence"),
    "one way of wearing sent twice": (
        "refine",
        {"conditions": [{"primary": response(P), "secondary": response(S)}] * 2, "sample_rate": 48_000},
        "identical_paths",
    ),
    "one microphone on both channels": ("calibrate", takes(change=lambda x, e: (e, -2 * e)), "invalid-field"),
    "drive recorded as x": ("calibrate", driven(), "invalid-field"),
}


async def codes(client: httpx.AsyncClient, address: str, body: Json) -> list[str]:
    """Return the problem's code, or those of the warnings and of the verdict's reasons."""
    answer = await post_packed(client, f"/{address}", body)
    document = answer.json()
    if answer.status_code != 200:
        assert answer.status_code == 422, document
        return [document["type"].rsplit(":", 1)[1]]
    found = document.get("warnings", document.get("diagnosis"))
    found = document["verdict"]["reasons"] if found is None else found
    assert all(item["detail"] for item in found)
    return [item["code"] for item in found]


async def test_valid_ear_has_no_warning(client: httpx.AsyncClient) -> None:
    for factor in (1.0, -1e-6):
        body = paths(factor * P, factor * S, coherence=COHERENCE)
        assert not {
            code for code in await codes(client, "refine", body) if "paths" in code or "implausible" in code
        }
    assert await codes(client, "calibrate", takes()) == []


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"latency_samples": 1000}, "latency_samples of 1000"),
        ({"max_gain_db": -20}, "max_gain_db is low"),
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
    assert any(code.startswith(expected) for code in await codes(client, address, body)), name


FILTER = filtered(1.0)
QUIET, LOUD_FILTER = (FILTER | {"fir": (factor * np.array(FILTER["fir"])).tolist()} for factor in (1e-6, 1e6))
FIR = {"form": "fir"}


@pytest.mark.parametrize(
    ("address", "body", "field"),
    [
        ("refine?leave_one_out=true", paths(), "leave_one_out"),
        ("refine", paths(min_gain_margin_db=12), "min_gain_margin_db"),
        ("refine", paths(min_phase_margin_deg=45), "min_phase_margin_deg"),
        ("export", FILTER | {"target": {"n_taps": 512}}, "target.n_taps"),
        ("export", FILTER | {"target": FIR | {"n_sections": 6}}, "target.n_sections"),
        ("export", FILTER | {"target": FIR, "max_gain_db": -10}, "max_gain_db"),
        ("refine", spectra(lambda h: h + 0.2j * np.abs(h).max() * (np.arange(len(h)) == 0)), "primary"),
        (
            "refine",
            spectra(lambda h: h + 0.2j * np.abs(h).max() * (np.arange(len(h)) == N_FFT // 2)),
            "primary",
        ),
        ("refine", paths(reference_psd=(1e30 * np.ones(16_385)).tolist()), "reference_psd"),
        ("evaluate", LOUD_FILTER, "fir"),
        ("export", LOUD_FILTER | {"target": FIR}, "fir"),
        ("export", QUIET | {"target": FIR}, "fir"),
        ("export", filtered(1e-4) | {"target": FIR | {"number_format": "q1.7"}}, "fir"),
        ("verify", verification() | {"fir": QUIET["fir"]}, "fir"),
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


@pytest.fixture(params=[0.0])
async def design(client: httpx.AsyncClient, request: pytest.FixtureRequest) -> Json:
    """A design for the ear, with a latency."""
    body = paths(coherence=COHERENCE, latency_samples=request.param)
    return (await client.post("/refine?k=1", json=body)).json()


def verifying(design: Json, recorded: Callable[[str, Array], Array] = lambda state, e: e) -> Json:
    """A valid verification of the design, except that `recorded` changes e in both states."""
    n_fft = 1 << 14
    late = np.exp(-2j * np.pi * design.get("latency_samples", 0.0) / n_fft * np.arange(n_fft // 2 + 1))
    played = np.fft.irfft(np.fft.rfft(S, n_fft) * np.fft.rfft(design["fir"], n_fft) * late)
    takes = [take | {"e": recorded(take["state"], take["e"])} for take in off_and_on(P, played)]
    return paths(coherence=COHERENCE) | design | {"takes": takes}


@pytest.mark.parametrize("design", [2.5], indirect=True)
async def test_design_with_latency_is_verified_as_predicted(client: httpx.AsyncClient, design: Json) -> None:
    """The design's answer includes its latency."""
    assert await codes(client, "verify", verifying(design)) == ["as_predicted"]
    without = verifying(design)
    del without["latency_samples"]
    assert "delay_off" in await codes(client, "verify", without)
    evaluated = paths(coherence=COHERENCE) | design
    answer = (await client.post("/evaluate", json=evaluated)).json()
    for figure in ("mean_noise_reduction_db", "amplification_db"):
        assert answer["prediction"][figure] == pytest.approx(design["prediction"][figure], abs=0.01)


async def test_prediction_of_another_filter_is_named(client: httpx.AsyncClient, design: Json) -> None:
    other = (await client.post("/refine?k=0", json=paths(S, P, max_gain_db=12))).json()["prediction"]
    bands = ("noise_reduction_db", "mean_noise_reduction_db")
    for prediction in (other, {name: other[name] for name in bands}):
        body = verifying(design) | {"prediction": prediction}
        assert await codes(client, "verify", body) == ["foreign_prediction"]
    assert await codes(client, "verify", verifying(design) | {"prediction": None}) == ["as_predicted"]


async def test_better_filter_than_the_one_sent_is_another(client: httpx.AsyncClient, design: Json) -> None:
    """Its reduction is no more than the paths allow."""
    body = verifying(design) | {"prediction": None}
    body["fir"] = np.array(design["fir"]) * (1 + 0.2 * np.random.default_rng(3).standard_normal(2048))
    assert await codes(client, "verify", body) == ["other_filter"]


def hum(n: int) -> Array:
    """Noise in one band, at 63 Hz."""
    return np.sin(
        np.arange(n) * (2 * np.pi * 63 / 48_000) + fftconvolve(RNG.standard_normal(n), np.ones(480) / 480)[:n]
    )


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (lambda state, e: e if state == "off" else 1e-5 * RNG.standard_normal(len(e)), "implausible_reduction"),
        (lambda state, e: e if state == "off" else 0.1 * e, "implausible_reduction"),
        (lambda state, e: e + (state == "on") * 0.5 * np.sin(np.arange(len(e)) * 0.3), "howling"),
        (lambda state, e: e + (state == "on") * hum(len(e)), "howling"),
        (lambda state, e: np.clip(e, -2 * e.std(), 2 * e.std()), "clipping"),
    ],
    ids=["e dead while the filter runs", "microphone's gain lowered", "howl", "rumble", "clipped"],
)
async def test_unusable_verification_is_named(
    client: httpx.AsyncClient, design: Json, recorded: Callable[[str, Array], Array], expected: str
) -> None:
    body = verifying(design, recorded)
    assert await codes(client, "verify", body) == [expected]
    assert (await post_packed(client, "/verify", body)).json()["trim"] is None
