"""The verdict on calibrations of measured ears: all pass, and each fault put into each of them is named."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import butter, lfilter

from synthesis.calibration import Calibration, Windows, calibrate
from synthesis.calibration_verdict import REASONS, Verdict, judge
from synthesis.path_estimation import PathEstimate
from synthesis.support_statistics import Spread, SupportStatistics, learn_support_statistics
from tests.oracles import measured
from tests.synthesis.probe_takes import FRAMES, Fault, Probes, noisy, takes_of

Array = np.ndarray


@pytest.fixture(scope="module")
def noises(measured_data: Path) -> Array:
    """The eight recordings."""
    return measured.read_noises(measured_data)


@pytest.fixture(scope="module")
def probes(noises: Array) -> Probes:
    """Their six windows each."""
    return Probes.of(noises)


@pytest.fixture(scope="module")
def statistics(ears: list[measured.Ear]) -> SupportStatistics:
    """Of all ears, as the default model's."""
    return learn_support_statistics(np.array([ear.estimated_secondary for ear in ears]))


Judge = Callable[..., list[Verdict]]


@pytest.fixture(scope="module")
def verdicts(ears: list[measured.Ear], probes: Probes, statistics: SupportStatistics) -> Judge:
    """Every ear's verdict with a fault, or of every few."""

    def judged(fault: Fault, stride: int = 1) -> list[Verdict]:
        takes = [takes_of(probes, ear.primary, ear.secondary, fault) for ear in ears[::stride]]
        return [judge(calibrate(each, windows=FRAMES), statistics) for each in takes]

    return judged


def named(verdict: Verdict) -> set[str]:
    """The codes of the reasons."""
    return {reason.code for reason in verdict.reasons}


def clipped(error: Array, sigmas: float) -> Array:
    limit = sigmas * np.sqrt((error**2).mean(-1, keepdims=True))
    return np.clip(error, -limit, limit)


def later(secondary: Array, n_samples: int) -> Array:
    return np.pad(secondary, (n_samples, 0))[: len(secondary)]


def leaking(secondary: Array) -> Array:
    return lfilter(*butter(2, 500, "highpass", fs=48_000), secondary)


def ringing(secondary: Array) -> Array:
    """With a decay of 60 ms, 20 dB below, as in a small hard box."""
    n = len(secondary)
    tail = np.random.default_rng(2).standard_normal(n) * np.exp(-np.arange(n) / 3000)
    return secondary + 0.1 * np.linalg.norm(secondary) / np.linalg.norm(tail) * tail


def test_every_clean_ear_passes(verdicts: Judge) -> None:
    found = verdicts(Fault())
    assert len(found) == 30
    for verdict in found:
        assert verdict.passed, verdict
        assert not verdict.not_judged
        assert verdict.polarity is not None
        assert verdict.polarity > 0.6


def in_16_bits(error: Array) -> Array:
    """With a tenth of full scale at its peak."""
    step = np.abs(error).max(-1, keepdims=True) / 3277
    return step * np.round(error / step)


def test_an_ear_recorded_in_16_bits_passes(verdicts: Judge) -> None:
    assert all(verdict.passed for verdict in verdicts(Fault(error=in_16_bits), 3))


@pytest.mark.parametrize(
    ("fault", "code", "beside", "stride"),
    [
        # Of a fault that comes in sizes the smallest is put into every third ear.
        # What else may be named: what clipping adds is noise, what a leak takes away at low frequencies no longer
        # stands above it, and what rings on for long enough is found where only noise should be.
        (Fault(error=partial(clipped, sigmas=5)), "clipping", {"low_snr"}, 3),
        (Fault(error=partial(clipped, sigmas=3)), "clipping", {"low_snr"}, 6),
        (Fault(error=partial(clipped, sigmas=2)), "clipping", {"low_snr"}, 6),
        (Fault(error=partial(noisy, snr_db=20)), "low_snr", set(), 3),
        (Fault(error=partial(noisy, snr_db=10)), "low_snr", set(), 6),
        (Fault(secondary=np.negative), "wrong_polarity", set(), 3),
        (Fault(secondary=partial(later, n_samples=3)), "late_secondary", set(), 3),
        (Fault(secondary=partial(later, n_samples=8)), "late_secondary", set(), 6),
        (Fault(secondary=partial(later, n_samples=48)), "late_secondary", set(), 6),
        (Fault(secondary=leaking), "leak", {"low_snr"}, 3),
        (Fault(secondary=ringing), "truncated_tail", {"low_snr"}, 3),
    ],
    ids=[
        *("clipped at 5 sigma", "clipped at 3 sigma", "clipped at 2 sigma", "20 dB SNR", "10 dB SNR", "reversed"),
        *("3 samples late", "8 samples late", "48 samples late", "leak", "rings on"),
    ],
)
def test_each_fault_is_named(verdicts: Judge, fault: Fault, code: str, beside: set[str], stride: int) -> None:
    for verdict in verdicts(fault, stride):
        assert code in named(verdict), verdict
        assert named(verdict) <= {code} | beside, verdict


def test_two_faults_are_both_named(verdicts: Judge) -> None:
    fault = Fault(secondary=lambda s: -later(s, 24), error=partial(noisy, snr_db=20))
    for verdict in verdicts(fault, stride=6):
        assert named(verdict) == {"late_secondary", "wrong_polarity", "low_snr"}


def test_without_statistics_polarity_and_leak_are_not_judged(ears: list[measured.Ear], probes: Probes) -> None:
    for fault, codes in (
        (Fault(secondary=np.negative), set()),
        (Fault(secondary=partial(later, n_samples=8)), {"late_secondary"}),
    ):
        for ear in ears[::6]:
            verdict = judge(calibrate(takes_of(probes, ear.primary, ear.secondary, fault), windows=FRAMES), None)
            assert named(verdict) == codes
            assert [each.code for each in verdict.not_judged] == ["wrong_polarity", "leak"]
            assert (verdict.polarity, verdict.low_level_db) == (None, None)


@pytest.mark.parametrize("window", [2048, 4096])
def test_takes_too_short_for_a_window_are_named(
    ears: list[measured.Ear], noises: Array, statistics: SupportStatistics, window: int
) -> None:
    probes = Probes.of(noises, window)
    for ear in ears[::6]:
        takes = takes_of(probes, ear.primary, ear.secondary)
        assert "truncated_tail" in named(judge(calibrate(takes, windows=Windows(window, 0, 6)), statistics))


def calibration(**changes: object) -> Calibration:
    """One that passes by a wide margin, but for the changes."""
    bands = np.full((23,), 40.0)
    secondary = np.zeros(2048)
    secondary[5] = 1.0
    estimate = PathEstimate(np.ones(8192), secondary, np.ones(16_385))
    good = Calibration(
        estimate, estimate, secondary, bands / 41, bands, bands, 0.0, "take 0, x", 0.0, -70.0, 0.0, 8192, 48
    )
    return replace(good, **changes)  # type: ignore[arg-type]


def like_it() -> SupportStatistics:
    return learn_support_statistics(calibration().measured.secondary[None])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"clipped_share": 5.1e-4}, "clipping"),
        ({"n_frames": 5}, "few_windows"),
        ({"lead_samples": -5.0}, "late_secondary"),
        ({"window": 4096}, "truncated_tail"),
        ({"tail_db": -44.0, "tail_over_noise_db": 7.0}, "truncated_tail"),
    ],
)
def test_each_limit_has_a_near_side_and_a_far_side(changes: dict[str, float], code: str) -> None:
    verdict = judge(calibration(**changes), like_it())
    assert named(verdict) == {code}
    within = {
        "clipped_share": 4.9e-4,
        "n_frames": 6,
        "lead_samples": -4.0,
        "window": 8192,
        "tail_over_noise_db": 5.0,
        "tail_db": -44.0,
    }
    assert judge(calibration(**{name: within[name] for name in changes}), like_it()).passed


def test_low_snr_names_its_bands() -> None:
    snr_db = np.full((23,), 40.0)
    snr_db[[0, 13]] = np.array([24.0, 12.5])
    (reason,) = judge(calibration(secondary_snr_db=snr_db), like_it()).reasons
    assert reason.code == "low_snr"
    assert "12.5 dB" in reason.detail
    assert reason.detail.endswith("at 50, 1000 Hz")


def test_traits_of_noise_are_not_judged() -> None:
    verdict = judge(calibration(secondary_snr_db=np.full((23,), 5.0), lead_samples=-100.0), like_it())
    assert named(verdict) == {"low_snr"}
    assert {each.code for each in verdict.not_judged} == set(REASONS) - {"low_snr", "clipping", "few_windows"}


def test_a_support_of_many_delays_allows_as_many() -> None:
    wide = replace(like_it(), delay_samples=Spread(1.0, 2.0))
    assert judge(calibration(), wide).passed
    assert named(judge(calibration(), replace(wide, delay_samples=Spread(1.0, 0.1)))) == {"late_secondary"}
