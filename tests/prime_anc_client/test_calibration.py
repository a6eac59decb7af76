"""From recordings to a filter through the client, against the real program."""

from collections.abc import Iterator

import httpx
import numpy as np
import pytest
from scipy.signal import fftconvolve

from model_store.store import ModelStore
from prime_anc_client import (
    Client,
    Condition,
    DesignResult,
    DriveTake,
    Item,
    Take,
)
from synthesis.support_statistics import learn_support_statistics
from tests.service import models
from tests.service.program import Program, started
from tests.service.recordings import encoded, recordings
from training.datasets.noise import simulated_noise
from training.datasets.path_pairs import PathPair
from training.datasets.simulated import simulate_listeners

N_SAMPLES = 4 * 48_000
noise = simulated_noise()


@pytest.fixture(scope="module")
def pairs() -> tuple[PathPair, ...]:
    """Four simulated ears."""
    return simulate_listeners(2).pairs


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, pairs: tuple[PathPair, ...]) -> Iterator[Program]:
    """A running service whose default model includes its support."""
    folder = tmp_path_factory.mktemp("store")
    knowing = models.checkpoint(1)
    traits = learn_support_statistics(
        np.array([pair.primary for pair in pairs]), np.array([pair.secondary for pair in pairs])
    )
    knowing.manifest = knowing.manifest.model_copy(update={"support_traits": traits})
    ModelStore(folder, include_bundled=False).publish("ears", knowing)
    with started(folder) as program:
        yield program


def takes_of(pair: PathPair, **more: float) -> list[Take]:
    return recordings(noise.signals[3:4, :N_SAMPLES], pair.primary, pair.secondary, **more)


@pytest.fixture(scope="module")
def takes(pairs: tuple[PathPair, ...]) -> list[Take]:
    """Takes of an ear without faults."""
    return takes_of(pairs[0])


def test_calibration_equals_service(client: Client, program: Program, takes: list[Take]) -> None:
    found = client.calibrate(takes)
    answer = httpx.post(
        f"{program.address}/calibrate",
        content=encoded(takes),
        headers={"Content-Type": "application/x-safetensors"},
        timeout=60,
    ).json()
    for name, n in (("primary", 8192), ("secondary", 2048)):
        path = getattr(found, name)
        assert path.dtype == np.float32
        assert path.shape == (n,)
        assert np.array_equal(path, np.float32(answer[name]["impulse_response"]))
    assert np.array_equal(found.coherence, np.float32(answer["coherence"]))
    assert found.uncertainty is not None
    assert np.array_equal(found.uncertainty, np.float32(answer["uncertainty"]))
    assert (found.bands.centre_hz[0], found.bands.centre_hz[-1]) == (50, 8000)
    assert np.array_equal(found.bands.secondary_snr_db, np.float32(answer["bands"]["secondary_snr_db"]))
    assert found.verdict.figures == answer["verdict"]["figures"]
    assert (found.verdict.passed, found.verdict.reasons, found.verdict.not_judged) == (True, (), ())


def test_drive_takes_give_feedback_path(client: Client, takes: list[Take], pairs: tuple[PathPair, ...]) -> None:
    drive, secondary = noise.signals[4, :N_SAMPLES], pairs[0].secondary
    feedback = 0.02 * np.pad(secondary, (10, 0))[: len(secondary)]
    driven = DriveTake(drive, *(fftconvolve(drive, path)[:N_SAMPLES] for path in (feedback, secondary)))
    calibration = client.calibrate([*takes, driven])
    assert calibration.feedback is not None
    error = calibration.feedback - feedback[:2048]
    assert np.sum(error**2) < 1e-3 * np.sum(feedback**2)
    design = client.refine(calibration, k=1, method="wmmse")
    assert design.loop is not None
    assert client.refine(client.calibrate(takes), k=1, method="wmmse").loop is None
    joint = client.refine_conditions([Condition(calibration)], k=1, method="wmmse")
    (item,) = client.refine_items([Item(calibration, method="wmmse")], k=1)
    assert np.array_equal(design.taps, joint.taps)
    assert isinstance(item, DesignResult)
    assert np.array_equal(design.taps, item.taps)
    with pytest.raises(ValueError, match=r"takes\.0: x is .* drive is .*; give real signals of the same length"):
        client.calibrate([driven._replace(drive=drive[1:])])


def test_failed_calibration_has_reasons(client: Client, pairs: tuple[PathPair, ...]) -> None:
    noisy = client.calibrate(takes_of(pairs[0], snr_db=10.0)).verdict
    assert not noisy.passed
    assert [reason.code for reason in noisy.reasons] == ["low_snr"]
    assert "louder" in noisy.reasons[0].detail
    reversed_chain = client.calibrate(takes_of(pairs[0]), sign="plus").verdict
    assert "implausible_polarity" in [reason.code for reason in reversed_chain.reasons]
