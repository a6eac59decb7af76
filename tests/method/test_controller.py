"""Filter and controller together: the equations against a loop that is run sample by sample, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import sosfilt

from model_store.store import BUNDLED_ROOT, ModelStore
from prime_anc.core.beside import spectrum_of, sums_beside
from prime_anc.method.bands import BAND_BINS, BINS_HZ, NR_BANDS, WIDE_BANDS, band_membership
from prime_anc.method.controller import Controller, in_closed_loop, inner_loop, is_quiet_beyond, judge
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS, N_TAPS
from prime_anc.method.design import design, pose, predict_all
from prime_anc.method.errors import InvalidOption
from prime_anc.method.predict import secondary_errors
from prime_anc.method.sections import Sections
from prime_anc.method.types import DesignOptions, Model, Paths, Problem

N_SAMPLES = 6000
# Number of bins of the band of each bin.
WIDTHS = np.repeat(np.diff(BAND_BINS, prepend=0, append=N_BINS), np.diff(BAND_BINS, prepend=0, append=N_BINS))


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
    primary, secondary, feedback = (item.astype(float) for item in (paths.primary, paths.secondary, paths.feedback))
    disturbance = np.zeros(N_SAMPLES)
    disturbance[: len(primary)] = primary
    delay = round(controller.latency_s * 48_000)
    state = np.zeros((len(controller.sections.rows), 2))
    outer, played, inner, controlled = (np.zeros(N_SAMPLES) for _ in range(4))
    outer[0] = 1.0
    n_filter = 80
    for n in range(N_SAMPLES):
        for signal, path, sign in ((outer, feedback, -1), (inner, secondary, -1)):
            recent = played[max(n - len(path) + 1, 0) : n + 1][::-1]
            signal[n] += sign * (path[: len(recent)] @ recent)
        inner[n] += disturbance[n]
        (controlled[n],), state = sosfilt(
            controller.sections.rows, [inner[n - delay] if n >= delay else 0.0], zi=state
        )
        recent = outer[max(n - n_filter + 1, 0) : n + 1][::-1]
        played[n] = taps[: len(recent)].astype(float) @ recent + controlled[n]
    return inner


@pytest.fixture(scope="module")
def model():
    return Model.on("cpu", ModelStore(BUNDLED_ROOT).load("bose-qc20").parameters)


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


@pytest.mark.parametrize("has_feedback", [False, True])
def test_core_sums_powers_beside_controller(has_feedback: bool):
    """Against float64; the filter as taps and as its response."""
    random = np.random.default_rng(0)
    n_bins = DESIGN_N_FFT // 2 + 1
    response = random.standard_normal(901).astype(np.float32)
    np.testing.assert_allclose(spectrum_of(response), np.fft.rfft(response, DESIGN_N_FFT), atol=1e-4)
    p, s, f, loop, k = random.standard_normal((5, n_bins, 2)).astype(np.float32).view(np.complex64)[..., 0]
    loop *= np.float32(0.1)
    psd = random.random(n_bins).astype(np.float32)
    taps = 0.01 * random.standard_normal(N_TAPS).astype(np.float32)
    w = np.fft.rfft(taps.astype(float), DESIGN_N_FFT)
    alone = 1 + w * f if has_feedback else np.ones(n_bins)
    both = alone + loop
    left = np.abs(alone / both) ** 2
    residual = psd * np.abs(p * alone - s * w) ** 2 / np.abs(alone) ** 2
    powers = {"before": psd * np.abs(p) ** 2, "after": residual, "remaining": residual * left}
    powers |= {"passed": psd * np.abs(p) ** 2 * left, "playback": 1 / np.abs(both) ** 2 / WIDTHS}
    errors = secondary_errors(BINS_HZ)
    off = psd * np.abs(p * alone - errors * s * w) ** 2 / np.abs(both + (errors - 1) * loop) ** 2
    drive = psd @ (np.abs(w + p * k) ** 2 / np.abs(both) ** 2)
    for given in (taps, w.astype(np.complex64)):
        sums = sums_beside(p, s, f if has_feedback else None, given, loop, k / np.float32(2), psd, 2.0)
        for name, power in powers.items():
            expected = power @ band_membership(WIDE_BANDS, DESIGN_N_FFT)
            np.testing.assert_allclose(getattr(sums, name), expected, rtol=1e-4)
        np.testing.assert_allclose(sums.off, off @ band_membership(NR_BANDS, DESIGN_N_FFT), rtol=1e-4)
        assert sums.drive == pytest.approx(drive, rel=1e-3)


def resonator(centre_hz, radius, gain):
    """A narrow band-pass, whose loop turns between the bins."""
    pole = radius * np.exp(2j * np.pi * centre_hz / 48_000)
    numerator = gain * (1 - radius) * np.array([1, 0, -1])
    return Controller(Sections(np.array([[*numerator, 1, -2 * pole.real, radius**2]]), 48_000.0), 2 / 48_000)


@pytest.mark.parametrize("radius", [0.9, 0.999, 0.999999])
def test_core_judges_loop_as_reference(radius: float, system):
    """Stable and unstable loops, whose resonance may lie between two bins."""
    plant, stable = spectrum_of(system[0].secondary), []
    for centre_hz in (31.0, 440.3, 3001.0, 12_000.0):
        for gain in np.geomspace(0.01, 100, 9) * np.array([[1], [-1]]):
            for controller in (resonator(centre_hz, radius, item) for item in gain):
                found, expected = inner_loop(controller, plant), judge(controller, plant)
                np.testing.assert_allclose(found.gain, plant * controller.on_bins, rtol=1e-5, atol=1e-7)
                stable.append(expected.stable)
                assert found.judged.stable == expected.stable
                for name in ("gain_margin_db", "phase_margin_deg", "peak_db", "max_sensitivity_db"):
                    assert getattr(found.judged, name) == pytest.approx(getattr(expected, name), abs=1e-3), name
                for name in ("peak_hz", "nearest_hz"):
                    assert getattr(found.judged, name) == pytest.approx(getattr(expected, name), rel=1e-3), name
    assert 0.2 < np.mean(stable) < 0.95


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


@pytest.mark.parametrize("with_coherence", [False, True])
def test_core_closes_loop_as_reference(ear, model, with_coherence: bool):
    coherence = np.full(N_BINS, 0.999, np.float32) if with_coherence else None
    posed = pose(Problem((replace(ear, coherence=coherence),), controller=integrator(ear)), model)
    options = DesignOptions(n_updates=3)
    found, expected = (model.core.draft([item], options, True)[0] for item in (posed, in_closed_loop(posed)))
    # Two roundings to single precision, of spectra that span 60 dB.
    np.testing.assert_allclose(found.taps, expected.taps, atol=5e-3 * np.abs(expected.taps).max())
    reductions = found.prediction.band_reduction_db, expected.prediction.band_reduction_db
    np.testing.assert_allclose(*reductions, atol=0.02)
    nominal = found.prediction.nominal_noise_reduction_db, expected.prediction.nominal_noise_reduction_db
    assert nominal[0] == pytest.approx(nominal[1], abs=0.02)
    assert found.wmmse.noise_reduction_db == pytest.approx(expected.wmmse.noise_reduction_db, abs=0.02)


def integrator(paths, gain=0.5):
    """A low-pass controller."""
    level = gain / np.abs(np.fft.rfft(paths.secondary, DESIGN_N_FFT)).max()
    pole = np.exp(-2 * np.pi * 80 / 48_000)
    return Controller(Sections(np.array([[level * (1 - pole), 0, 0, 1, -pole, 0]]), 48_000.0))


def test_unstable_loop_names_condition(ear, model):
    problem = Problem((ear,), controller=integrator(ear, gain=-40.0))
    with pytest.raises(InvalidOption, match=r"conditions\.0 is unstable near \d+ Hz"):
        design(problem, DesignOptions(), model)


@pytest.mark.parametrize(
    ("row", "n", "rate_hz", "latency_s", "field"),
    [
        ([1, 0, 0, 1, 0, 1.1], 1, 48_000, 0, "sos"),
        ([np.nan, 0, 0, 1, 0, 0], 1, 48_000, 0, "sos"),
        ([1, 0, 0, 1, 0, 0], 17, 48_000, 0, "sos"),
        ([1, 0, 0, 1, 0, 0], 1, 44_100, 0, "sample_rate"),
        ([1, 0, 0, 1, 0, 0], 1, 48_000, np.nan, "latency_us"),
    ],
)
def test_unusable_controllers_are_refused(row, n, rate_hz, latency_s, field):
    with pytest.raises(InvalidOption) as found:
        Controller(Sections(np.array([row] * n, float), rate_hz), latency_s)
    assert found.value.field == f"controller.{field}"


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
