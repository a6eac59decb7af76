"""Verdicts on calibrations of measured ears: all pass, and every fault is named."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import butter, fftconvolve, lfilter, resample_poly

from model_store.store import BUNDLED_ROOT, ModelStore
from prime_anc.measure.calibration import Calibration, calibrate
from prime_anc.measure.checks import Verdict, judge
from prime_anc.measure.estimate import GainTake, PathEstimate, PlayedTake
from prime_anc.method.bands import WIDE_BANDS, edges_hz
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from prime_anc.method.plausibility import SupportPrior
from prime_anc.method.support_statistics import learn_support_statistics
from prime_anc.method.unknown import MOST_UNCERTAIN
from tests.measure.probe_takes import Fault, N, noisy, takes_of
from tests.oracles import measured
from training.datasets.simulated_systems import simulate_system
from training.simulated_calibration import record

Array = np.ndarray


@pytest.fixture(scope="module")
def noises(measured_data: Path) -> Array:
    """Four seconds of every other recording."""
    return measured.read_noises(measured_data)[::2, :N]


@pytest.fixture(scope="module")
def support() -> SupportPrior:
    """The bundled model's support."""
    prior: SupportPrior = ModelStore(BUNDLED_ROOT).load("bose-qc20").parameters.support
    return prior


Judge = Callable[..., list[Verdict]]


@pytest.fixture(scope="module")
def verdicts(ears: list[measured.MeasuredEar], noises: Array, support: SupportPrior) -> Judge:
    """Judges every ear, or every n-th ear, with a fault."""

    def judged(fault: Fault, stride: int = 1) -> list[Verdict]:
        takes = [takes_of(noises, ear.primary, ear.secondary, fault) for ear in ears[::stride]]
        return [judge(calibrate(take), support) for take in takes]

    return judged


def named(verdict: Verdict) -> set[str]:
    """Return the codes of the reasons."""
    return {reason.code for reason in verdict.reasons}


def clipped(error: Array, sigmas: float) -> Array:
    limit = sigmas * np.sqrt((error**2).mean())
    return np.clip(error, -limit, limit)


def later(secondary: Array, n_samples: int) -> Array:
    return np.pad(secondary, (n_samples, 0))[: len(secondary)]


def leaking(secondary: Array) -> Array:
    return lfilter(*butter(2, 500, "highpass", fs=48_000), secondary)


def ringing(secondary: Array) -> Array:
    """Add a decay of 60 ms, 20 dB below, as in a small hard box."""
    n = len(secondary)
    tail = np.random.default_rng(2).standard_normal(n) * np.exp(-np.arange(n) / 3000)
    return secondary + 0.1 * np.linalg.norm(secondary) / np.linalg.norm(tail) * tail


def test_every_clean_ear_passes(verdicts: Judge) -> None:
    found = verdicts(Fault())
    assert len(found) == 6
    for verdict in found:
        assert verdict.passed, verdict
        assert not verdict.not_judged
        assert verdict.explanation.distance < 60
        # What right ears ring on for longer than the windows is unknown; left ears stay below 0.1.
        assert verdict.noise_cost_db < 1.1


def parts_of(
    noise: Array, ear: measured.MeasuredEar, starts: tuple[int, int], on_gain_db: float = 0
) -> list[GainTake]:
    """Six seconds of one recording per state, from different positions; the second with another microphone gain."""
    takes = []
    for start, gain, gain_db in ((starts[0], 0.0, 0.0), (starts[1], 0.35, on_gain_db)):
        x = np.roll(noise, -start)[: 6 * 48_000]
        path = ear.primary - gain * np.pad(ear.secondary, (0, len(ear.primary) - len(ear.secondary)))
        error = noisy(fftconvolve(x, path)[: len(x)], 40)
        takes.append(GainTake(gain, x, 10 ** (gain_db / 20) * error))
    return takes


def test_gain_change_between_noises_is_found(ears: list[measured.MeasuredEar], support: SupportPrior) -> None:
    noise = 0.05 * np.random.default_rng(3).standard_normal(12 * 48_000)
    for ear in ears[2::4]:
        verdict = judge(calibrate(parts_of(noise, ear, (0, 288_000), on_gain_db=4.0)), support)
        assert "microphone_gain" in named(verdict), verdict


@pytest.mark.parametrize("n", range(4), ids=["duct", "room", "window", "headrest"])
def test_microphone_inverted_between_takes_is_found(n: int) -> None:
    """Either one, while the loudspeaker plays."""
    system = simulate_system(n, seed=41)
    x = 0.05 * np.random.default_rng(n).standard_normal((1, 192_000))
    silent, played = record(x, (system.primary, system.secondary), 40.0, [n])
    assert judge(calibrate([silent, played]), None).passed
    for inverted in (replace(played, reference=-played.reference), replace(played, error=-played.error)):
        assert "microphone_gain" in named(judge(calibrate([silent, inverted]), None))


@pytest.mark.parametrize(
    ("fault", "code", "beside", "stride"),
    [
        # The smallest size of a fault is tested on every third ear. Other codes may follow: clipping adds noise, a leak
        # lowers the SNR at low frequencies, long ringing enters the lags of noise.
        (Fault(error=partial(clipped, sigmas=3)), "clipping", {"low_snr"}, 6),
        (Fault(error=partial(noisy, snr_db=0)), "low_snr", set(), 6),
        (Fault(secondary=np.negative), "implausible_polarity", set(), 3),
        (Fault(secondary=lambda s: s / 2), "implausible_level", set(), 3),
        (Fault(secondary=partial(later, n_samples=1)), "implausible_delay", {"late_secondary"}, 3),
        (Fault(secondary=partial(later, n_samples=48)), "implausible_delay", {"late_secondary"}, 6),
        (Fault(secondary=leaking), "implausible_leak", {"low_snr"}, 3),
        (Fault(secondary=ringing), "truncated_tail", {"low_snr"}, 3),
    ],
    ids=[
        *("clipped at 3 sigma", "0 dB SNR", "reversed", "halved"),
        *("1 sample late", "48 samples late", "leak", "rings on"),
    ],
)
def test_fault_is_named(verdicts: Judge, fault: Fault, code: str, beside: set[str], stride: int) -> None:
    for verdict in verdicts(fault, stride):
        assert code in named(verdict), verdict
        assert named(verdict) <= {code} | beside, verdict


def calibration(**changes: object) -> Calibration:
    """A calibration that passes by a wide margin, with changes."""
    bands = np.full((23,), 40.0)
    secondary = np.zeros(2048)
    secondary[5] = 1.0
    estimate = PathEstimate(np.ones(8192), secondary, np.ones(16_385), np.zeros(3072))
    good = Calibration(
        measured=estimate,
        estimate=estimate,
        coherence=bands / 41,
        noise_reduction_ceiling_db=bands,
        secondary_snr_db=bands,
        clipped_share=0.0,
        clipped_in="take 0, x",
        lead_samples=0.0,
        secondary_peak_samples=5,
        tail_db=-80.0,
        returned_db=-80.0,
        noise_share=np.zeros((2, 31)),
        state_levels_db=[],
        has_opposite_signs=False,
        gain_change_db=0.0,
        is_inverted=False,
        silent_share=0.0,
        silent_in="take 0, x",
        acausal_shares=(0.0, 1.0),
        drive_acausal_shares=(0.0, 0.0),
        feedback_lead_samples=0,
        early_db=0.0,
        distortion_db=-90.0,
        disagreement_db=-90.0,
        hum_hz=[],
        window=8192,
        n_frames=48,
        is_excited=np.ones(23, bool),
        uncertainty=np.zeros((2, 31)),
    )
    return replace(good, **changes)


def like_it() -> SupportPrior:
    estimate = calibration().measured
    return SupportPrior(learn_support_statistics(estimate.primary[None], estimate.secondary[None]))


@pytest.mark.parametrize(
    ("field", "beyond", "within", "code"),
    [
        ("clipped_share", 5.1e-4, 4.9e-4, "clipping"),
        ("n_frames", 5, 6, "few_windows"),
        ("silent_share", 0.51, 0.49, "silent_take"),
        ("gain_change_db", -0.71, -0.69, "microphone_gain"),
        ("is_inverted", True, False, "microphone_gain"),
        ("acausal_shares", (0.06, 0.01), (0.06, 0.02), "exchanged_channels"),
        ("drive_acausal_shares", (0.06, 0.01), (0.06, 0.02), "exchanged_channels"),
        ("feedback_lead_samples", 3, 2, "exchanged_channels"),
        ("early_db", -12.1, -11.9, "exchanged_takes"),
        ("distortion_db", -31.0, -33.0, "distortion"),
        ("disagreement_db", -17.9, -18.1, "takes_differ"),
        ("hum_hz", [50.0], [], "hum"),
        ("lead_samples", -5.0, -4.0, "late_secondary"),
        ("secondary_peak_samples", 0, 1, "early_secondary"),
        ("window", 4096, 8192, "truncated_tail"),
        ("tail_db", -59.0, -61.0, "truncated_tail"),
        ("state_levels_db", [(0.35, 0.6), (0.7, -0.5)], [(0.35, 0.5), (0.7, -0.4)], "inconsistent_gains"),
    ],
)
def test_limits_separate_pass_from_fail(field: str, beyond: object, within: object, code: str) -> None:
    assert named(judge(calibration(**{field: beyond}), like_it())) == {code}
    assert judge(calibration(**{field: within}), like_it()).passed


def test_low_snr_reports_cost_and_bands() -> None:
    """Noise of both paths over what remains without noise, 0.003: equal power costs 3 dB, 99 times that 19 dB."""
    noise = np.full((2, 31), 0.004)
    noise[0, [4, 17]], noise[1, [4, 18, 26]] = [0.02, 0.297], [0.01, 0.297, 9.0]  # 50, 1000, 1250, 8000 Hz
    verdict = judge(calibration(noise_share=noise), like_it())
    share = noise.sum(0)[4:25]
    cost_db = np.mean(10 * np.log10((0.003 + share) / (0.003 * (1 + share))))
    assert verdict.noise_cost_db == pytest.approx(cost_db, abs=1e-6)
    (reason,) = verdict.reasons
    assert reason.code == "low_snr"
    assert f"costs {cost_db:.1f} dB" in reason.detail
    assert "most of it at 50, 1000, 1250 Hz" in reason.detail
    assert "dead microphone" not in reason.detail
    unrelated = judge(calibration(coherence=np.full(23, 0.1), noise_share=noise), like_it())
    assert "dead microphone" in unrelated.reasons[0].detail


def sampled(take: GainTake, up: int, down: int) -> GainTake:
    return GainTake(take.gain, resample_poly(take.reference, up, down), resample_poly(take.error, up, down))


@pytest.mark.parametrize(("up", "down"), [(160, 147), (147, 160)], ids=["48 as 44.1", "44.1 as 48"])
def test_wrong_rate_is_named_either_way(
    ears: list[measured.MeasuredEar], support: SupportPrior, up: int, down: int
) -> None:
    noise = 0.05 * np.random.default_rng(4).standard_normal(6 * 48_000)
    for ear in ears[:2]:
        takes = [sampled(item, up, down) for item in parts_of(noise, ear, (0, 0))]
        assert named(judge(calibrate(takes), support)) == {"implausible_sample_rate"}


def test_exchanged_channels_hide_other_reasons(ears: list[measured.MeasuredEar], support: SupportPrior) -> None:
    noise = 0.05 * np.random.default_rng(4).standard_normal(6 * 48_000)
    for ear in ears[::4]:
        right = parts_of(noise, ear, (0, 0))
        off, on = (GainTake(item.gain, item.error, item.reference) for item in right)
        for takes in ([off, on], [right[0], on]):
            assert named(judge(calibrate(takes), support)) == {"exchanged_channels"}


@pytest.mark.parametrize("number", [0, 2, 4], ids=["duct", "window", "headset"])
def test_exchanged_takes_are_named_where_noise_comes_later(number: int) -> None:
    system = simulate_system(number)
    x = 0.05 * np.random.default_rng(4).standard_normal(4 * SAMPLE_RATE_HZ)
    quiet, control = (fftconvolve(x, path)[: x.size] for path in (system.primary, system.secondary))
    takes = [GainTake(0.35 - gain, x, noisy((quiet - gain * control), 40)) for gain in (0.0, 0.35)]
    assert named(judge(calibrate(takes), None)) == {"exchanged_takes"}


def test_hum_is_named_and_outside_tones_are_not(ears: list[measured.MeasuredEar], support: SupportPrior) -> None:
    noise = 0.05 * np.random.default_rng(4).standard_normal(6 * 48_000)
    time = np.arange(noise.size) / 48_000
    hum = 0.005 * sum(np.sin(2 * np.pi * n * 60 * time) / n for n in (1, 3, 5))
    for ear in ears[::4]:
        right = parts_of(noise, ear, (0, 0))
        wrong = [GainTake(item.gain, item.reference + hum, item.error + hum) for item in right]
        assert "hum" in named(judge(calibrate(wrong), support))
        outside = parts_of(noise + hum, ear, (0, 0))
        assert judge(calibrate(outside), support).passed


def test_loudspeaker_that_saturates_is_named(ears: list[measured.MeasuredEar], support: SupportPrior) -> None:
    x = 0.05 * np.random.default_rng(4).standard_normal(6 * 48_000)
    most = 2 * 0.35 * x.std()
    for ear in ears[::4]:
        off, _ = parts_of(x, ear, (0, 0))
        played = fftconvolve(most * np.tanh(0.35 * x / most), ear.secondary)[: x.size]
        on = noisy((fftconvolve(x, ear.primary)[: x.size] - played), 40)
        assert "distortion" in named(judge(calibrate([off, GainTake(0.35, x, on)]), support))


def test_takes_of_two_seatings_are_named(ears: list[measured.MeasuredEar], support: SupportPrior) -> None:
    """Between them the primary path changes by 40 %."""
    x = 0.05 * np.random.default_rng(4).standard_normal(4 * SAMPLE_RATE_HZ)
    for ear in ears[::4]:
        takes = []
        for seating in (0.0, 0.4):
            primary = ear.primary + seating * np.pad(ear.primary, (9, 0))[: len(ear.primary)]
            for gain in (0.0, 0.35):
                played = primary - gain * np.pad(ear.secondary, (0, len(primary) - len(ear.secondary)))
                takes.append(GainTake(gain, x, noisy(fftconvolve(x, played)[: x.size], 40)))
        assert "takes_differ" not in named(judge(calibrate([*takes[:2], *takes[:2]]), support))
        assert "takes_differ" in named(judge(calibrate(takes), support))


def test_feedback_without_drive_is_named(ears: list[measured.MeasuredEar]) -> None:
    """At -15 dB; at -50 dB, or with the outer microphone's noise alone, nothing is said."""
    x, rng = 0.05 * np.random.default_rng(4).standard_normal(4 * SAMPLE_RATE_HZ), np.random.default_rng(5)
    for ear in ears[::4]:
        for level_db, is_named in ((-15, True), (-50, False)):
            feedback = np.pad(ear.secondary, (9, 0)) * 10 ** (level_db / 20) / np.linalg.norm(ear.secondary)
            heard = x - 0.35 * fftconvolve(x, feedback)[: x.size]  # once around is enough at these levels
            takes = []
            for gain, outer in ((0.0, x), (0.35, heard)):
                e = fftconvolve(x, ear.primary)[: x.size] - gain * fftconvolve(outer, ear.secondary)[: x.size]
                takes.append(GainTake(gain, outer + 5e-4 * rng.standard_normal(x.size), noisy(e, 40)))
            found = [finding.code for finding in judge(calibrate(takes), None).not_judged]
            assert ("unmeasured_feedback" in found) is is_named


def test_late_echo_to_outer_microphone_is_named(ears: list[measured.MeasuredEar]) -> None:
    """At 113 ms, beyond what is kept: the loop's margins would be wrong."""
    x, played = 0.05 * np.random.default_rng(4).standard_normal((2, 4 * SAMPLE_RATE_HZ))
    for ear in ears[::4]:
        silent = GainTake(0.0, x, noisy(fftconvolve(x, ear.primary)[: x.size], 40))
        for echo, codes in ((0.0, set()), (0.2, {"truncated_tail"})):
            feedback = 0.1 * (np.pad(ear.secondary, (0, 5442)) + echo * np.pad(ear.secondary, (5442, 0)))
            heard = [noisy(fftconvolve(played, path)[: x.size], 40) for path in (feedback, ear.secondary)]
            assert named(judge(calibrate([silent], drives=[PlayedTake(played, *heard)]), None)) == codes


@pytest.mark.parametrize("number", [0, 3])
def test_other_device_passes_without_prior(number: int) -> None:
    system, rng = simulate_system(number), np.random.default_rng(number)
    x = rng.standard_normal(4 * SAMPLE_RATE_HZ)
    quiet, control = (fftconvolve(x, path)[: x.size] for path in (system.primary, system.secondary))
    takes = [GainTake(gain, x, quiet - gain * control + 1e-3 * rng.standard_normal(x.size)) for gain in (0.0, 0.35)]
    model = ModelStore().load("bose-qc20").parameters
    found = calibrate(takes, prior=model.path_prior, support=model.support)
    verdict = judge(found, model.support)
    assert verdict.passed, verdict.reasons
    assert [finding.code for finding in verdict.not_judged] == ["other_device"]
    assert np.array_equal(found.estimate.secondary, calibrate(takes).estimate.secondary)


@pytest.mark.parametrize("number", [17, 0], ids=["8 kHz", "16 kHz"])
def test_bands_above_recording_are_unknown(number: int) -> None:
    """Recordings that end at half their converter's rate pass in spite of noise above it, where nothing is known."""
    system, rng = simulate_system(number), np.random.default_rng(number)
    up = SAMPLE_RATE_HZ // system.rate_hz
    x = resample_poly(rng.standard_normal(4 * system.rate_hz), up, 1)
    quiet, control = (fftconvolve(x, path)[: x.size] for path in (system.primary, system.secondary))
    noise = 0.01 * quiet.std() * rng.standard_normal((2, x.size))
    takes = [GainTake(gain, x, quiet - gain * control + noise[n]) for n, gain in enumerate((0.0, 0.35))]
    found = calibrate(takes)
    assert judge(found, None).passed
    unknown = (found.uncertainty > MOST_UNCERTAIN).any(0)
    low_hz, high_hz = np.transpose([edges_hz(n) for n in WIDE_BANDS])
    assert unknown[low_hz > system.rate_hz / 2].all()
    assert not unknown[(low_hz > 400) & (high_hz < system.rate_hz / 2)].any()
