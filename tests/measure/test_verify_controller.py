"""A controller beside the filter, recorded in a loop that is run sample by sample: its state is found and trimmed."""

import numpy as np
import pytest
from scipy.signal import lfilter

from prime_anc.hardware.running import Machine, run_in_loop
from prime_anc.measure.verify import StateTake, diagnose
from prime_anc.measure.verify_controller import diagnose_controller, verify_both
from prime_anc.method.loops.controller import Controller
from prime_anc.method.loops.sections import Sections
from tests.data.six_ears import FILE

RATE, N = 48_000.0, 2 * 48_000
# Samples of latency of the controller.
LATENCY = 16


@pytest.fixture(scope="module")
def ear():
    """Primary and secondary path of a measured ear."""
    with np.load(FILE) as stored:
        data = stored["013"].astype(float)
    return data[:600, 4], data[:600, 0]


@pytest.fixture(scope="module")
def controller(ear):
    """A band-pass that peaks at |S K| = 2 near 120 Hz in phase with S."""
    _, secondary = ear
    hz = 120.0
    radius, angle = 1 - np.pi * 200 / RATE, 2 * np.pi * hz / RATE
    rows = np.array([[1.0, 0.0, -1.0, 1.0, -2 * radius * np.cos(angle), radius**2]])
    found = Controller(Sections(rows, RATE), LATENCY / RATE)
    at = np.exp(-1j * angle * np.arange(len(secondary))) @ secondary * found.response(np.array([hz]))[0]
    return found.scaled(2.0 * np.sign(at.real) / abs(at))


def recorded(ear, taps, controller, gain=1.0, louder=1.0):
    """Takes off and on of y = w x + k e, e = p x - s y."""
    primary, secondary = ear
    takes = []
    for seed, is_on in ((1, False), (2, True)):
        random = np.random.default_rng(seed)
        x = random.standard_normal(N)
        e = lfilter(primary, 1, x) + 1e-3 * random.standard_normal(N)
        if is_on:
            e -= louder * lfilter(np.convolve(taps, secondary), 1, x)
            plant = louder * np.pad(secondary, (LATENCY, 0))
            sections = {"form": "sos", "sample_rate": RATE, "sos": controller.scaled(gain).sections.rows}
            (played,) = run_in_loop([Machine(sections)], [e], [[plant]])
            e -= lfilter(plant, 1, played)
        takes.append(StateTake(is_on, x, e))
    return takes


@pytest.fixture(scope="module")
def taps(ear):
    """A filter that takes away some of the noise: a Wiener filter of few taps would do; a scaled delay does here."""
    primary, secondary = ear
    n = 4096
    wanted = np.fft.rfft(primary, n) * np.fft.rfft(secondary, n).conj()
    response = np.fft.irfft(wanted / (np.abs(np.fft.rfft(secondary, n)) ** 2 + 1e-2), n)
    found = np.zeros(2048, np.float32)
    found[:256] = 0.7 * response[:256]
    return found


@pytest.mark.parametrize(
    ("gain", "louder", "codes", "by"),
    [
        (1.0, 1.0, [], 1.0),
        (0.0, 1.0, ["controller_off"], 0.0),
        (-0.3, 1.0, ["controller_inverted", "controller_level_off"], -0.3),
        (1.0, 1.3, [], 1.0),
    ],
)
def test_state_of_controller_is_found(ear, taps, controller, gain, louder, codes, by):
    takes = recorded(ear, taps, controller, gain, louder)
    paths = [item.astype(np.float32) for item in ear]
    found, beside = verify_both(takes, taps, controller, *paths, paths[1])
    assert beside.gain == pytest.approx(by, abs=0.1)
    assert [item.code for item in diagnose_controller(beside)] == codes
    assert found.gain_db == pytest.approx(20 * np.log10(louder), abs=0.2)
    assert beside.loop_gain == pytest.approx(by * louder, abs=0.1)
    assert ("level_off" in [item.code for item in diagnose(found, 0.0)]) == (louder != 1)


def test_controller_that_is_unknown_or_howls_is_named(ear, taps, controller):
    """What another filter plays is no controller's."""
    paths = [item.astype(np.float32) for item in ear]
    other = np.convolve(taps, [0.5, 0, 0, 0, 0, 0, 0.9])[:2048]
    _, beside = verify_both(recorded(ear, other, controller, 0.0), taps, controller, *paths, paths[1])
    assert [item.code for item in diagnose_controller(beside)] == ["controller_unknown"]
    loud = controller.scaled(-0.37)
    _, beside = verify_both(recorded(ear, taps, loud), taps, loud, *paths, paths[1])
    assert [item.code for item in diagnose_controller(beside)] == ["near_howling"]
    assert beside.loop.max_sensitivity_db > 9
