"""Filter and controller together: the equations against a loop that is run sample by sample, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from prime_anc.hardware.running import Machine, run_in_loop
from prime_anc.method.bands import WIDE_BANDS, band_membership
from prime_anc.method.conventions import DESIGN_N_FFT, N_TAPS
from prime_anc.method.design import design, predict_all
from prime_anc.method.errors import InvalidOption
from prime_anc.method.loops.controller import Controller, is_quiet_beyond, judge
from prime_anc.method.loops.sections import Sections
from prime_anc.method.posing import pose
from prime_anc.method.types import DesignOptions, Paths, Problem

N_SAMPLES = 6000


def decaying(random, n, delay, level):
    """Draw an impulse response that starts after a delay, so that no loop is instantaneous."""
    response = random.standard_normal(n) * np.exp(-np.arange(n) / 12)
    return np.concatenate((np.zeros(delay), level * response / np.abs(np.fft.rfft(response, 4096)).max())).astype(
        np.float32
    )


@pytest.fixture
def system():
    random = np.random.default_rng(3)
    paths = Paths(
        decaying(random, 200, 4, 1.0), decaying(random, 60, 2, 1.0), feedback=decaying(random, 60, 1, 0.3)
    )
    taps = np.zeros(N_TAPS, np.float32)
    taps[:80] = decaying(random, 80, 0, 0.7)
    rows = np.array([[0.4, -0.3, 0.05, 1, -1.6, 0.68], [0.6, -0.2, 0.1, 1, -0.4, 0.2]])
    return paths, taps, Controller(Sections(rows, 48_000.0), 2 / 48_000)


def run(paths, taps, controller):
    """Run m = x - f y, y = w m + k e, e = p x - s y for an impulse x, and return e."""
    delay, rate = round(controller.latency_s * 48_000), 48_000
    loops = [
        [np.pad(path.astype(float), (late, 80 - late - len(path))) for late in (0, delay)]
        for path in (paths.feedback, paths.secondary)
    ]
    sounds = np.zeros((2, N_SAMPLES))
    sounds[0, 0], sounds[1, : len(paths.primary)] = 1.0, paths.primary
    machines = [
        Machine({"form": "fir", "taps": taps[:80].astype(float), "sample_rate": rate}),
        Machine({"form": "sos", "sos": controller.sections.rows, "sample_rate": rate}),
    ]
    played = run_in_loop(machines, sounds, loops)
    return sounds[1] - sum(map(np.convolve, played, loops[1]))[:N_SAMPLES]


def test_prediction_matches_simulated_loop(system, model):
    paths, taps, controller = system
    psd = np.ones(DESIGN_N_FFT // 2 + 1, np.float32)
    problem = Problem((paths,), psd, controller=controller)
    (found,) = predict_all([problem], [taps], model, is_true=True)
    residual = np.abs(np.fft.rfft(run(paths, taps, controller), DESIGN_N_FFT)) ** 2
    before = np.abs(np.fft.rfft(paths.primary.astype(float), DESIGN_N_FFT)) ** 2
    membership = band_membership(WIDE_BANDS, DESIGN_N_FFT)
    expected = 10 * np.log10((before @ membership) / (residual @ membership))
    np.testing.assert_allclose(found.band_reduction_db, expected, atol=0.05)
    assert np.abs(expected).max() > 3  # or this shows little
    shares = found.feedforward_noise_reduction_db + found.feedback_noise_reduction_db
    np.testing.assert_allclose(shares, expected, atol=0.05)


def test_sensitivity_matches_changed_path(system, model):
    """The stated cost of 1 dB in the secondary path is at least that of the loop with a path so changed."""
    paths, taps, controller = system
    psd = np.ones(DESIGN_N_FFT // 2 + 1, np.float32)
    changed = replace(paths, secondary=np.float32(10 ** (1 / 20)) * paths.secondary)
    found, other = (
        predict_all([Problem((item,), psd, controller=controller)], [taps], model, is_true=True)[0]
        for item in (paths, changed)
    )
    lost_db = found.mean_noise_reduction_db - other.mean_noise_reduction_db
    assert found.gain_sensitivity_db > lost_db - 1e-3
    assert found.playback_change_db.shape == (31,)


@pytest.fixture(scope="module")
def ear(ears):
    """True paths of a measured ear."""
    return Paths(ears[0].primary.astype(np.float32), ears[0].secondary.astype(np.float32))


def test_design_predicts_both(ear, model):
    """W designed in the closed loop, its prediction is that of the same filter with the controller beside it."""
    problem = Problem((ear,), controller=integrator(ear))
    made = design(problem, DesignOptions(n_updates=3), model)
    (again,) = predict_all([problem], [made.taps], model)
    np.testing.assert_allclose(made.prediction.band_reduction_db, again.band_reduction_db, atol=0.01)
    assert made.loop.stable
    assert made.prediction.feedback_noise_reduction_db.max() > 1.5


def test_filter_is_designed_in_closed_loop(ear, model):
    """P and S of the problem that updates see are over 1 + S K; a feedback path takes P F from S."""
    controller, feedback = integrator(ear), 0.1 * ear.secondary[:50]
    posed = pose(Problem((replace(ear, feedback=feedback),), controller=controller), model)
    p, s, f = (np.fft.rfft(item.astype(float), DESIGN_N_FFT) for item in (ear.primary, ear.secondary, feedback))
    closed, scale = 1 + s * controller.on_bins, np.vdot(p, posed.primary[0]).real / np.vdot(p, p).real
    aim = posed.open_loop
    np.testing.assert_allclose(aim.primary[0], scale * p / closed, atol=1e-5 * scale * np.abs(p).max())
    np.testing.assert_allclose(aim.secondary[0], scale * (s - p * f) / closed, atol=1e-5 * scale * np.abs(s).max())


def integrator(paths, gain=0.5):
    """A low-pass controller."""
    level = gain / np.abs(np.fft.rfft(paths.secondary, DESIGN_N_FFT)).max()
    pole = np.exp(-2 * np.pi * 80 / 48_000)
    return Controller(Sections(np.array([[level * (1 - pole), 0, 0, 1, -pole, 0]]), 48_000.0))


def test_unstable_loop_names_condition(ear, model):
    problem = Problem((ear,), controller=integrator(ear, gain=-40.0))
    with pytest.raises(InvalidOption, match=r"conditions\.0 is unstable near \d+ Hz"):
        design(problem, DesignOptions(), model)


def test_gain_above_measured_band_is_refused(ear, model):
    """At 192 kHz a controller that is loud above 24 kHz has a loop of which nothing is known."""
    plant = np.fft.rfft(ear.secondary, DESIGN_N_FFT)
    high_pass = np.array([[1.0, -2.0, 1.0, 4.0, 0.0, 0.0]]) / 4  # 4th order with its copy
    quiet = Controller(Sections(np.array([[1e-3, 0, 0, 1, 0, 0]]), 192_000.0))
    assert is_quiet_beyond(quiet, plant)
    loud = replace(
        quiet, sections=Sections(np.concatenate((high_pass, high_pass * [30, 30, 30, 1, 1, 1])), 192_000.0)
    )
    assert judge(loud, plant).stable
    with pytest.raises(InvalidOption, match="above 24 kHz"):
        design(Problem((ear,), controller=loud), DesignOptions(), model)
