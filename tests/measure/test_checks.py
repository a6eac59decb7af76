"""Verdicts on calibrations of measured ears: all pass, and every fault is named."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import butter, fftconvolve, lfilter, resample_poly

from model_store.store import BUNDLED_ROOT, ModelStore
from prime_anc.measure.calibration import Calibration, calibrate
from prime_anc.measure.checks import Verdict, judge
from prime_anc.measure.estimate import GainTake, PlayedTake
from prime_anc.method.bands import WIDE_BANDS, edges_hz
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from prime_anc.method.support.explanation import SupportPrior
from prime_anc.method.unknown import MOST_UNCERTAIN
from tests.measure.probe_takes import Fault, N, noisy, takes_of
from tests.oracles import measured
from training.datasets.simulated_systems import simulate_system
from training.simulated_calibration import record

pytestmark = pytest.mark.usefixtures("coarse_posterior")

Array = np.ndarray
WHITE = 0.05 * np.random.default_rng(4).standard_normal(N)
QUIET = Fault(error=partial(noisy, snr_db=40))


@pytest.fixture(scope="module")
def support() -> SupportPrior:
    """The bundled model's support."""
    prior: SupportPrior = ModelStore(BUNDLED_ROOT).load("bose-qc20").parameters.support
    return prior


@pytest.fixture(scope="module")
def ear(ears: list[measured.MeasuredEar]) -> measured.MeasuredEar:
    return ears[0]


@pytest.fixture(scope="module")
def right(ear: measured.MeasuredEar) -> list[GainTake]:
    """Takes of both states with white noise."""
    return takes_of([WHITE], ear.primary, ear.secondary, QUIET)


@pytest.fixture(scope="module")
def good(right: list[GainTake]) -> Calibration:
    """A calibration that passes."""
    return calibrate(right)


def named(verdict: Verdict) -> set[str]:
    """Return the codes of the reasons."""
    return {reason.code for reason in verdict.reasons}


def test_clean_ear_of_each_person_passes(
    ears: list[measured.MeasuredEar], measured_data: Path, support: SupportPrior
) -> None:
    noises = measured.read_noises(measured_data)[::2, :N]
    for ear in (ears[1], ears[2], ears[4]):
        verdict = judge(calibrate(takes_of(noises, ear.primary, ear.secondary)), support)
        assert verdict.passed, verdict
        assert not verdict.not_judged
        assert verdict.explanation.distance < 60
        # What right ears ring on for longer than the windows is unknown; left ears stay below 0.1.
        assert verdict.noise_cost_db < 1.1


def clipped(error: Array) -> Array:
    limit = 3 * np.sqrt((error**2).mean())
    return np.clip(error, -limit, limit)


def ringing(secondary: Array) -> Array:
    """Add a decay of 60 ms, 20 dB below, as in a small hard box."""
    n = len(secondary)
    tail = np.random.default_rng(2).standard_normal(n) * np.exp(-np.arange(n) / 3000)
    return secondary + 0.1 * np.linalg.norm(secondary) / np.linalg.norm(tail) * tail


@pytest.mark.parametrize(
    ("fault", "code", "beside"),
    [
        # Other codes may follow: clipping adds noise, a leak lowers the SNR at low frequencies, long ringing enters the
        # lags of noise.
        (Fault(error=clipped), "clipping", {"low_snr"}),
        (Fault(error=partial(noisy, snr_db=0)), "low_snr", set()),
        (Fault(secondary=lambda s: np.pad(s, (48, 0))[: len(s)]), "implausible_delay", {"late_secondary"}),
        (
            Fault(secondary=partial(lfilter, *butter(2, 500, "highpass", fs=48_000))),
            "implausible_leak",
            {"low_snr"},
        ),
        (Fault(secondary=ringing), "truncated_tail", {"low_snr"}),
    ],
    ids=["clipped", "0 dB SNR", "late", "leak", "rings on"],
)
def test_fault_is_named(
    ear: measured.MeasuredEar, support: SupportPrior, fault: Fault, code: str, beside: set[str]
) -> None:
    found = named(judge(calibrate(takes_of([WHITE], ear.primary, ear.secondary, fault)), support))
    assert {code} <= found <= {code} | beside


def test_microphone_inverted_between_takes_is_found() -> None:
    """Either one, while the loudspeaker plays."""
    system = simulate_system(1, seed=41)
    x = 0.05 * np.random.default_rng(1).standard_normal((1, N))
    silent, played = record(x, (system.primary, system.secondary), 40.0, [1])
    assert judge(calibrate([silent, played]), None).passed
    for inverted in (replace(played, reference=-played.reference), replace(played, error=-played.error)):
        assert "microphone_gain" in named(judge(calibrate([silent, inverted]), None))


def test_gain_change_between_noises_is_found(ears: list[measured.MeasuredEar], support: SupportPrior) -> None:
    noises = 0.05 * np.random.default_rng(3).standard_normal((2, N))
    off, _, _, on = takes_of(noises, ears[2].primary, ears[2].secondary, QUIET)
    louder = replace(on, error=10 ** (4 / 20) * on.error)
    assert "microphone_gain" in named(judge(calibrate([off, louder]), support))


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
def test_limits_separate_pass_from_fail(
    good: Calibration, support: SupportPrior, field: str, beyond: object, within: object, code: str
) -> None:
    assert named(judge(replace(good, **{field: beyond}), support)) == {code}
    assert judge(replace(good, **{field: within}), support).passed


def test_low_snr_reports_cost_and_bands(good: Calibration) -> None:
    """Noise of both paths over what remains without noise, 0.003: equal power costs 3 dB, 99 times that 19 dB."""
    noise = np.full((2, 31), 0.004)
    noise[0, [4, 17]], noise[1, [4, 18, 26]] = [0.02, 0.297], [0.01, 0.297, 9.0]  # 50, 1000, 1250, 8000 Hz
    verdict = judge(replace(good, noise_share=noise), None)
    share = noise.sum(0)[4:25]
    cost_db = np.mean(10 * np.log10((0.003 + share) / (0.003 * (1 + share))))
    assert verdict.noise_cost_db == pytest.approx(cost_db, abs=1e-6)
    (reason,) = verdict.reasons
    assert reason.code == "low_snr"
    assert f"costs {cost_db:.1f} dB" in reason.detail
    assert "most of it at 50, 1000, 1250 Hz" in reason.detail
    assert "dead microphone" not in reason.detail
    unrelated = judge(replace(good, coherence=np.full(23, 0.1), noise_share=noise), None)
    assert "dead microphone" in unrelated.reasons[0].detail


@pytest.mark.parametrize(("up", "down"), [(160, 147), (147, 160)], ids=["48 as 44.1", "44.1 as 48"])
def test_wrong_rate_is_named_either_way(right: list[GainTake], support: SupportPrior, up: int, down: int) -> None:
    takes = [
        GainTake(take.gain, *(resample_poly(item, up, down) for item in (take.reference, take.error)))
        for take in right
    ]
    assert named(judge(calibrate(takes), support)) == {"implausible_sample_rate"}


def test_exchanged_channels_hide_other_reasons(right: list[GainTake], support: SupportPrior) -> None:
    off, on = (GainTake(item.gain, item.error, item.reference) for item in right)
    for takes in ([off, on], [right[0], on]):
        assert named(judge(calibrate(takes), support)) == {"exchanged_channels"}


def test_exchanged_takes_are_named_where_noise_comes_later() -> None:
    system = simulate_system(0)
    off, on = takes_of([WHITE], system.primary, system.secondary, QUIET)
    takes = [replace(off, gain=on.gain), replace(on, gain=0.0)]
    assert named(judge(calibrate(takes), None)) == {"exchanged_takes"}


def test_hum_is_named_and_outside_tones_are_not(
    ear: measured.MeasuredEar, right: list[GainTake], support: SupportPrior
) -> None:
    time = np.arange(N) / 48_000
    hum = 0.005 * sum(np.sin(2 * np.pi * n * 60 * time) / n for n in (1, 3, 5))
    wrong = [GainTake(item.gain, item.reference + hum, item.error + hum) for item in right]
    assert "hum" in named(judge(calibrate(wrong), support))
    outside = takes_of([WHITE + hum], ear.primary, ear.secondary, QUIET)
    assert judge(calibrate(outside), support).passed


def test_loudspeaker_that_saturates_is_named(
    ear: measured.MeasuredEar, right: list[GainTake], support: SupportPrior
) -> None:
    most = 2 * 0.35 * WHITE.std()
    played = fftconvolve(most * np.tanh(0.35 * WHITE / most), ear.secondary)[:N]
    on = noisy(fftconvolve(WHITE, ear.primary)[:N] - played, 40)
    assert "distortion" in named(judge(calibrate([right[0], GainTake(0.35, WHITE, on)]), support))


def test_takes_of_two_seatings_are_named(
    ear: measured.MeasuredEar, right: list[GainTake], support: SupportPrior
) -> None:
    """Between them the primary path changes by 40 %."""
    primary = ear.primary + 0.4 * np.pad(ear.primary, (9, 0))[: len(ear.primary)]
    assert "takes_differ" not in named(judge(calibrate([*right, *right]), support))
    moved = takes_of([WHITE], primary, ear.secondary, QUIET)
    assert "takes_differ" in named(judge(calibrate([*right, *moved]), support))


@pytest.mark.parametrize(("level_db", "is_named"), [(-15, True), (-50, False)])
def test_feedback_without_drive_is_named(ear: measured.MeasuredEar, level_db: float, is_named: bool) -> None:
    """At -50 dB, or with the outer microphone's noise alone, nothing is said."""
    rng = np.random.default_rng(5)
    feedback = np.pad(ear.secondary, (9, 0)) * 10 ** (level_db / 20) / np.linalg.norm(ear.secondary)
    heard = WHITE - 0.35 * fftconvolve(WHITE, feedback)[:N]  # once around is enough at these levels
    takes = []
    for gain, outer in ((0.0, WHITE), (0.35, heard)):
        e = fftconvolve(WHITE, ear.primary)[:N] - gain * fftconvolve(outer, ear.secondary)[:N]
        takes.append(GainTake(gain, outer + 5e-4 * rng.standard_normal(N), noisy(e, 40)))
    found = [finding.code for finding in judge(calibrate(takes), None).not_judged]
    assert ("unmeasured_feedback" in found) is is_named


@pytest.mark.parametrize(("echo", "codes"), [(0.0, set()), (0.2, {"truncated_tail"})])
def test_late_echo_to_outer_microphone_is_named(
    ear: measured.MeasuredEar, right: list[GainTake], echo: float, codes: set[str]
) -> None:
    """At 113 ms, beyond what is kept: the loop's margins would be wrong."""
    played = 0.05 * np.random.default_rng(5).standard_normal(N)
    feedback = 0.1 * (np.pad(ear.secondary, (0, 5442)) + echo * np.pad(ear.secondary, (5442, 0)))
    heard = [noisy(fftconvolve(played, path)[:N], 40) for path in (feedback, ear.secondary)]
    assert named(judge(calibrate(right[:1], drives=[PlayedTake(played, *heard)]), None)) == codes


def test_other_device_passes_without_prior() -> None:
    system = simulate_system(3)
    takes = record(WHITE[None], (system.primary, system.secondary), 60.0, [3])
    model = ModelStore().load("bose-qc20").parameters
    found = calibrate(takes, prior=model.path_prior, support=model.support)
    verdict = judge(found, model.support)
    assert verdict.passed, verdict.reasons
    assert [finding.code for finding in verdict.not_judged] == ["other_device"]
    assert np.array_equal(found.estimate.secondary, calibrate(takes).estimate.secondary)


def test_bands_above_recording_are_unknown() -> None:
    """A recording that ends at half its converter's rate passes in spite of noise above it, where nothing is known."""
    system, rng = simulate_system(17), np.random.default_rng(17)
    x = resample_poly(rng.standard_normal(4 * system.rate_hz), SAMPLE_RATE_HZ // system.rate_hz, 1)
    found = calibrate(record(x[None], (system.primary, system.secondary), 40.0, [17]))
    assert judge(found, None).passed
    unknown = (found.uncertainty > MOST_UNCERTAIN).any(0)
    low_hz, high_hz = np.transpose([edges_hz(n) for n in WIDE_BANDS])
    assert unknown[low_hz > system.rate_hz / 2].all()
    assert not unknown[(low_hz > 400) & (high_hz < system.rate_hz / 2)].any()
