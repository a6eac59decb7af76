"""Filter and controller of a measured ear: derivatives, margins on every plant, rates, formats, and stability."""

from dataclasses import replace

import numpy as np
import pytest

from prime_anc.hardware.controller_fit import BARRIER_WEIGHT, ControllerFit, fit_controller, start_roots
from prime_anc.hardware.hybrid import design_for_all, design_hybrid
from prime_anc.hardware.plants import Ear, distance, is_quiet, keeps, lent_plants, loop_problem, plant_of
from prime_anc.method.bands import BINS_HZ, WIDE_BANDS
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from prime_anc.method.design import design, predict_all
from prime_anc.method.loops.controller import Controller, judge
from prime_anc.method.loops.sections import Sections
from prime_anc.method.types import DesignOptions, Loop, Paths, Problem
from prime_anc.method.updates.band_weights import BandWeights
from prime_anc.options import ControllerFields
from tests.oracles.closed_loop import growth_in_words

OPTIONS = DesignOptions(n_updates=1)


@pytest.fixture
def ear(measured):
    conditions, noise = measured
    paths = (conditions[0].primary, conditions[0].secondary)
    return Problem((Paths(*(np.fft.irfft(item).astype(np.float32) for item in paths)),), noise.astype(np.float32))


def loops_of(problem, made, **wanted):
    """The loops of a filter that was designed."""
    ears = [Ear(problem, made, [plant_of(problem, problem.conditions[0], "")])]
    return loop_problem(ears, ControllerFields(**wanted), problem.reference_psd, np.zeros(0, np.intp))


@pytest.fixture
def posed(ear, model):
    return loops_of(ear, design(ear, OPTIONS, model))


def test_derivatives_of_loops_match_differences(posed):
    """Also where the loop is nearer to -1, and |K| larger, than they may be."""
    fit = ControllerFit(replace(posed, distance=1.05), 3)
    unknowns = fit.starts(start_roots()[:1])[0]
    fit.problem.ceiling[:] = 0.7 * np.abs(fit.response(unknowns)).max()
    response = fit.response(unknowns)
    value, *details = fit.objective(response, 20.0)
    assert np.isfinite(value).all()
    assert all(item.any() for item in details)
    _, slope = fit.normal_equations(fit.polynomials(unknowns), response, *details)
    step, found = 1e-5, []
    for n in range(unknowns.shape[1]):
        ends = []
        for sign in (-1, 1):
            moved = unknowns.copy()
            moved[0, n] += sign * step
            ends.append(fit.objective(fit.response(moved), 20.0)[0][0])
        found.append((ends[1] - ends[0]) / (2 * step))
    np.testing.assert_allclose(2 * slope[0, :, 0], found, rtol=2e-3, atol=2e-3 * np.abs(found).max())


def test_sign_of_controller_lowers_objective(posed):
    for problem in (posed, replace(posed, scored=-posed.scored, plants=-posed.plants)):
        fit = ControllerFit(problem, 3)
        response = fit.response(fit.starts(start_roots())[0])
        value, opposite = (fit.objective(sign * response, BARRIER_WEIGHT)[0].min() for sign in (1, -1))
        assert value < opposite


def test_margins_are_in_decibels():
    """A loop of half of the gain at which it howls has a margin of 6 dB, and the distance of one half from -1."""
    wanted = ControllerFields(
        max_sensitivity_db=20.0, min_gain_margin_db=20 * np.log10(2), min_phase_margin_deg=0.0
    )
    assert distance(wanted) == pytest.approx(0.5)
    half = Loop(True, 6.03, 90.0, -6.03, 100.0, 6.03, 100.0)
    assert keeps(half, wanted)
    assert not keeps(replace(half, gain_margin_db=6.01), wanted)


def test_controller_loud_below_bands_is_not_quiet():
    low_pass = Sections(np.array([[2e-4, 0, 0, 1, -0.9998, 0]]), 48_000.0)  # 1 at 0 Hz, and 1/2 at 2.6 Hz
    assert is_quiet(Controller(low_pass.scaled(0.49)), np.ones(N_BINS))
    assert not is_quiet(Controller(low_pass), np.ones(N_BINS))


def test_controller_follows_band_weights(ear, model):
    """A controller of three sections, mostly for the bands from 50 to 200 Hz."""
    weighted = replace(ear, band_weights=BandWeights([200, 215], [10, 0]))
    low = slice(WIDE_BANDS.index(17), WIDE_BANDS.index(23) + 1)
    made = design(ear, OPTIONS, model)
    left = []
    for problem in (ear, weighted):
        posed = loops_of(problem, made)
        fit, rows = fit_controller(posed, 3)
        closed = 1 + fit.response(rows[:1])[:, None, : fit.n_scored] * posed.scored + posed.scored_before
        power = np.add.reduceat(posed.residual / np.abs(closed) ** 2, fit.first_of_band, axis=-1)
        left.append(np.log(power[0, 0, low]).mean())
    assert left[1] < left[0] - 0.1


@pytest.mark.parametrize(("rate_hz", "latency_us"), [(48_000.0, 83.0), (384_000.0, 5.0)])
def test_margins_hold_on_every_plant(ear, model, rate_hz, latency_us):
    wanted = ControllerFields(n_sections=4, sample_rate=rate_hz, latency_us=latency_us)
    pressed = Paths(ear.conditions[0].primary, 1.3 * ear.conditions[0].secondary, label="pressed")
    found = design_hybrid(ear, OPTIONS, model, wanted, stability_only=[pressed])
    alone = design(ear, OPTIONS, model)
    gained_db = found.design.prediction.mean_noise_reduction_db - alone.prediction.mean_noise_reduction_db
    assert gained_db > 2
    assert [label for label, _ in found.loops] == ["conditions.0", "pressed"]
    assert found.controller.latency_s == pytest.approx(1e-6 * latency_us)
    loudest = judge(found.controller, 10 ** (3 / 20) * np.fft.rfft(pressed.secondary, DESIGN_N_FFT))
    assert dict(found.loops)["pressed"].gain_margin_db <= loudest.gain_margin_db + 1e-3
    assert found.design.loop.gain_margin_db == min(loop.gain_margin_db for _, loop in found.loops)
    for _, loop in found.loops:
        assert loop.stable
        assert loop.max_sensitivity_db <= wanted.max_sensitivity_db
        assert loop.gain_margin_db >= wanted.min_gain_margin_db
        assert loop.phase_margin_deg >= wanted.min_phase_margin_deg


def test_loop_holds_while_taken_off(ear, model):
    """On the straight line from the ear's path to that of the earphone taken off, at -3 to 6 dB."""
    found = design_hybrid(ear, OPTIONS, model)
    assert not found.is_plant_unknown
    worn = np.fft.rfft(ear.conditions[0].secondary, DESIGN_N_FFT)
    (opened,) = (item.secondary for item in lent_plants(ear, model.parameters) if item.is_taken_off)
    for share in np.linspace(0, 1, 26):
        for gain_db in (-3, 0, 3, 6):
            path = 10 ** (gain_db / 20) * (worn + share * (opened - worn))
            assert judge(found.controller, path).stable, (share, gain_db)


@pytest.mark.parametrize("number_format", ["float64", "q5.27"])
def test_controller_is_quiet_outside_bands(ear, model, number_format):
    """It is 0 at 0 Hz, and |S K| below one half where S was not measured."""
    wanted = ControllerFields(n_sections=4, number_format=number_format)
    found = design_hybrid(ear, OPTIONS, model, wanted).controller
    at_zero = found.sections.rows[:, :3].sum(1)
    assert np.abs(at_zero).min() <= (1e-15 if number_format == "float64" else 0)
    plants = [plant_of(ear, ear.conditions[0], ""), *lent_plants(ear, model.parameters)]
    outside = (BINS_HZ < 17.8) | (BINS_HZ > 20_000)
    for plant in plants:
        assert np.abs(plant.secondary * found.on_bins)[outside].max() < 0.5


def test_path_taken_off_follows_ear(ear, model):
    """Its level, sign and time are the ear's; what is later than any earphone has none."""
    worn = np.fft.rfft(ear.conditions[0].secondary, DESIGN_N_FFT)
    change = model.parameters.wearing[-1]
    later = np.exp(-2j * np.pi * np.arange(N_BINS) * 3 / DESIGN_N_FFT)
    np.testing.assert_allclose(change.applied(-2 * later * worn), -2 * later * change.applied(worn), rtol=1e-6)
    assert change.suits(worn)
    assert not change.suits(later**20 * worn)


def test_controller_for_all_suits_each(measured, model):
    """Every listener's path at -3 to 3 dB is a plant of it."""
    conditions, noise = measured
    paths = [
        Paths(*(np.fft.irfft(item).astype(np.float32) for item in (ear.primary, ear.secondary)))
        for ear in conditions[::3]
    ]
    problems = [Problem((item,), noise.astype(np.float32)) for item in paths]
    wanted = ControllerFields(n_sections=2)
    controller, loops = design_for_all(problems, OPTIONS, model, wanted)
    assert all(keeps(loop, wanted) for loop in loops.values())
    for item in paths:
        for gain in (0.71, 1.0, 1.41):
            assert judge(controller, gain * np.fft.rfft(item.secondary, DESIGN_N_FFT)).stable


def test_margins_hold_with_feedback_path(ear, model):
    """The loudspeaker, loud at the outer microphone, joins both loops; so it does where only stability counts."""
    shape = np.exp(-np.arange(64) / 6) * np.cos(np.arange(64) / 5)
    feedback = np.concatenate(([0.0, 0.0], 0.5 * shape)).astype(np.float32)
    paths = replace(ear.conditions[0], feedback=feedback)
    louder = replace(paths, feedback=1.4 * feedback, label="louder")
    wanted = ControllerFields(n_sections=3)
    found = design_hybrid(replace(ear, conditions=(paths,)), OPTIONS, model, wanted, stability_only=[louder])
    assert all(keeps(loop, wanted) for _, loop in found.loops)
    (again,) = predict_all(
        [replace(ear, conditions=(paths,), controller=found.controller)], [found.design.taps], model
    )
    mean_db = found.design.prediction.mean_noise_reduction_db
    assert again.mean_noise_reduction_db == pytest.approx(mean_db, abs=0.01)


def test_format_is_named_that_keeps_reduction(ear, model):
    """At 768 kHz, q1.23 does not resolve poles in the bass; q1.28 does, q1.31 keeps the reduction too."""

    def made(number_format):
        wanted = ControllerFields(n_sections=3, sample_rate=768_000.0, number_format=number_format)
        return design_hybrid(ear, OPTIONS, model, wanted)

    exact, wide, narrow = map(made, ("float64", "q1.31", "q1.23"))
    assert [item.needed_format for item in (exact, wide, narrow)] == [None, None, "q1.28"]
    reached_db = [item.design.prediction.nominal_noise_reduction_db for item in (exact, wide)]
    assert reached_db[1] > reached_db[0] - 0.3


def test_stability_agrees_with_time(ear, model):
    """In words the designed controller dies away, and grows where its loop is judged unstable."""
    wanted = ControllerFields(n_sections=3, latency_us=500.0, number_format="q1.23")
    found = design_hybrid(ear, OPTIONS, model, wanted)
    plant = np.array(ear.conditions[0].secondary[:800], float)
    plant[: np.flatnonzero(np.abs(plant) > 1e-3 * np.abs(plant).max())[0]] = 0  # what comes before the sound
    for gain in (1.0, 2.0, 20.0, -20.0):
        stable = judge(found.controller, np.fft.rfft(gain * plant, DESIGN_N_FFT)).stable
        assert stable is (abs(gain) < 3)
        assert (growth_in_words(gain * plant, found) < 0) is stable


def test_level_of_paths_changes_controller_alone(ear, model):
    """A microphone with another unit scales K, and nothing else."""
    paths = ear.conditions[0]
    ear = replace(ear, max_gain_db=40, exact=True)  # or the model knows one ear, and not the other
    quiet = replace(ear, conditions=(Paths(paths.primary, 0.5 * paths.secondary),))
    wanted = ControllerFields(n_sections=2)
    first, second = (design_hybrid(item, OPTIONS, model, wanted, lend_wearing=False) for item in (ear, quiet))
    ratio = np.abs(second.controller.on_bins[10:4000] / first.controller.on_bins[10:4000])
    assert np.median(ratio) == pytest.approx(2, rel=0.1)
    means_db = [item.design.prediction.nominal_noise_reduction_db for item in (first, second)]
    assert means_db[0] == pytest.approx(means_db[1], abs=0.3)
    assert first.is_plant_unknown
    plant = np.fft.rfft(quiet.conditions[0].secondary, 32_768)
    assert judge(second.controller, plant).max_sensitivity_db <= wanted.max_sensitivity_db
