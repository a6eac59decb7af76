"""From recordings to a filter through the client, against the real program."""

import httpx
import numpy as np
import pytest
from scipy.signal import fftconvolve

from prime_anc.answers import document
from prime_anc.client import (
    Client,
    Condition,
    DriveTake,
    Take,
)
from tests.service.program import Program
from tests.service.recordings import encoded, recordings
from training.datasets.noise import simulated_noise
from training.datasets.simulated import simulate_listeners

N_SAMPLES = 4 * 48_000
noise = simulated_noise()


PAIR = simulate_listeners(1).pairs[0]


def takes_of(**more: float) -> list[Take]:
    return recordings(noise.signals[3:4, :N_SAMPLES], PAIR.primary, PAIR.secondary, **more)


@pytest.fixture(scope="module")
def takes() -> list[Take]:
    """Takes of an ear without faults."""
    return takes_of()


def test_calibration_equals_service(client: Client, program: Program, takes: list[Take]) -> None:
    found = client.calibrate(takes)
    answer = httpx.post(
        f"{program.address}/calibrate",
        content=encoded(takes),
        headers={"Content-Type": "application/x-safetensors"},
        timeout=60,
    ).json()
    for name, n in (("primary", 8192), ("secondary", 4096)):
        path = getattr(found, name).impulse_response
        assert path.dtype == np.float32
        assert path.shape == (n,)
        assert np.array_equal(path, np.float32(answer[name]["impulse_response"]))
    assert np.array_equal(found.coherence, np.float32(answer["coherence"]))
    assert np.array_equal(found.uncertainty, np.float32(answer["uncertainty"]))
    assert (found.bands.centre_hz[0], found.bands.centre_hz[-1]) == (50, 8000)
    assert np.array_equal(found.bands.secondary_snr_db, np.float32(answer["bands"]["secondary_snr_db"]))
    assert document(found.verdict.figures) == answer["verdict"]["figures"]
    assert (found.verdict.passed, found.verdict.reasons) == (True, [])
    assert np.array_equal(
        client.calibrate(takes, sign="plus").secondary.impulse_response, -found.secondary.impulse_response
    )
    assert [item.code for item in found.verdict.not_judged] == [
        item["code"] for item in answer["verdict"]["not_judged"]
    ]


def test_drive_takes_give_feedback_path(client: Client, takes: list[Take]) -> None:
    drive, secondary = noise.signals[4, :N_SAMPLES], PAIR.secondary
    feedback = 0.02 * np.pad(secondary, (10, 0))[: len(secondary)]
    driven = DriveTake(drive, *(fftconvolve(drive, path)[:N_SAMPLES] for path in (feedback, secondary)))
    calibration = client.calibrate([*takes, driven])
    error = calibration.feedback.impulse_response - feedback[:4096]
    assert np.sum(error**2) < 1e-3 * np.sum(feedback**2)
    design = client.refine(calibration, k=1, method="wmmse")
    assert client.refine(client.calibrate(takes), k=1, method="wmmse").loop is None
    joint = client.refine_conditions([Condition(calibration)], k=1, method="wmmse")
    assert np.array_equal(design.taps, joint.taps)
    with pytest.raises(ValueError, match=r"takes\.0: x is .* drive is .*; give real signals of the same length"):
        client.calibrate([driven._replace(drive=drive[1:])])


def test_failed_calibration_has_reasons(client: Client) -> None:
    noisy = client.calibrate(takes_of(snr_db=0.0)).verdict
    assert not noisy.passed
    assert [reason.code for reason in noisy.reasons] == ["low_snr"]
    assert "louder" in noisy.reasons[0].detail
