"""Bands of which nothing is known are kept quiet; what the end of a response tells of its noise and missing tail."""

import numpy as np
import pytest
from scipy.signal import firwin

from model_store.store import ModelStore
from synthesis.bands import ABSENT, NR_BANDS, UNKNOWN, WIDE_BANDS
from synthesis.ceiling import LOUDEST_DB, quiet_gain
from synthesis.conventions import DESIGN_N_FFT, N_BINS, N_TAPS
from synthesis.design import design, predict_all, with_silence
from synthesis.errors import answer_or_raise
from synthesis.types import DesignOptions, Model, Paths, Problem
from synthesis.unknown import ends_uncertainty
from tests.oracles.measured import MeasuredEar


@pytest.mark.parametrize("sign", [1, -1])
def test_gain_keeps_unknown_band_quiet(sign: int) -> None:
    """A loudspeaker in phase with the noise, and one that cancels it three times over."""
    primary, secondary = np.full(N_BINS, 0.5 + 0j, np.complex64), np.full(N_BINS, 2 + 0j, np.complex64)
    unknown = (np.arange(len(WIDE_BANDS)) < 13).astype(np.uint8)  # 20 to 315 Hz
    taps = np.zeros(N_TAPS, np.float32)
    taps[0] = sign * 0.75
    conditions = (Paths(primary, secondary), Paths(primary, secondary, unknown=unknown))
    gain = quiet_gain(Problem(conditions), taps)
    louder_db = 20 * np.log10(abs(0.5 - 2 * gain * taps[0]) / 0.5)
    assert louder_db == pytest.approx(LOUDEST_DB, abs=1e-3)
    assert quiet_gain(Problem(conditions), gain * taps / 2) == 1
    assert quiet_gain(Problem(conditions), 1.25 * gain * taps) == pytest.approx(0.8, abs=1e-3)
    assert quiet_gain(Problem(conditions[:1]), taps) == 1


@pytest.mark.parametrize("as_spectrum", [False, True])
def test_silence_is_unknown_or_absent(as_spectrum: bool) -> None:
    """A cup that lets nothing through above 2 kHz, in front of a loudspeaker that plays up to 6 kHz."""
    ends_hz = (2000, 6000)
    pair = [firwin(1023, end, window=("kaiser", 9), fs=48_000).astype(np.float32) for end in ends_hz]
    if as_spectrum:
        pair = [np.fft.rfft(item, DESIGN_N_FFT).astype(np.complex64) for item in pair]
    found = with_silence(Paths(*pair))
    known, n = found.unknown, np.array(WIDE_BANDS)
    assert not known[n <= 32].any()  # up to 1.6 kHz
    assert (known[(n >= 34) & (n <= 37)] == UNKNOWN).all()  # 2.5 to 5 kHz
    assert (known[n >= 39] == ABSENT).all()  # from 8 kHz
    np.testing.assert_array_equal(found.silent, known > 0)


SCORED = slice(WIDE_BANDS.index(NR_BANDS[0]) + 6, WIDE_BANDS.index(NR_BANDS[-1]) + 1)  # bands of many bins


def decaying(n: int, decay_samples: float, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(n) * np.exp(-np.arange(n) / decay_samples)


@pytest.mark.parametrize("noise_db", [-20.0, -40.0])
def test_noise_floor_is_found(noise_db: float) -> None:
    response = decaying(2048, 60)
    noise = np.random.default_rng(4).standard_normal(2048)
    noise *= 10 ** (noise_db / 20) * np.linalg.norm(response) / np.linalg.norm(noise)
    (uncertainty, _) = ends_uncertainty(response + noise, response + noise, 1.0)
    found_db = 10 * np.log10(np.median(uncertainty[:, SCORED], axis=1))
    assert found_db == pytest.approx([noise_db] * 2, abs=3)  # of the spread of single bands


def test_missing_tail_follows_from_decay() -> None:
    whole = decaying(8192, 400)
    kept, cut = whole[:1024], whole[1024:]
    (uncertainty, _) = ends_uncertainty(kept, kept, 1.0)
    # Bands of a few independent bins see a decay that is up to 1 dB off from quarter to quarter.
    true_db = 10 * np.log10(np.sum(cut**2) / np.sum(kept**2))
    assert 10 * np.log10(np.median(uncertainty[0, SCORED])) == pytest.approx(true_db, abs=5)


def test_decayed_response_lacks_nothing() -> None:
    response = decaying(2048, 60)
    (uncertainty, _) = ends_uncertainty(response, response, 1.0)
    assert uncertainty.max() < 1e-6


def test_form_of_response_does_not_matter() -> None:
    response = decaying(1000, 200)
    one, interval_db = ends_uncertainty(response, response, 1.0)
    padded = np.pad(response, (0, 7000)).astype(np.float32)
    spectrum = np.fft.rfft(response, 32_768).astype(np.complex64)
    for form in (padded, spectrum, 1e-3 * response):
        other, other_db = ends_uncertainty(form, form, 1.0)
        np.testing.assert_allclose(other, one, rtol=0.02, atol=1e-7)
        assert other_db == pytest.approx(interval_db, abs=0.01)


@pytest.mark.parametrize("response", [np.ones(1), np.ones(10), decaying(8192, 2000)], ids=["one", "few", "long"])
def test_nothing_is_unknown_of_short_or_long(response: np.ndarray) -> None:
    (uncertainty, _) = ends_uncertainty(response, response, 1.0)
    assert not uncertainty.any()


def test_rising_end_shows_missing_windows() -> None:
    falling = decaying(8192, 1500)
    rising = falling + 0.3 * decaying(8192, 1500, seed=4)[::-1]
    none, narrow_db = ends_uncertainty(falling, falling, 1.0)
    lacked, wide_db = ends_uncertainty(rising, falling, 1.0)
    assert wide_db > narrow_db
    assert not none.any()
    assert lacked[0, SCORED].all()


@pytest.mark.measured
@pytest.mark.parametrize("n", [1024, 2048, 4096, 8192])
def test_bare_estimates_keep_their_interval(ears: list[MeasuredEar], n: int) -> None:
    """Estimates by windows promise up to 15 dB more than the filter takes away, which no end of a response shows."""
    model, within = Model.on("cpu", ModelStore().load("generic").parameters), []
    for ear in ears[:6]:
        estimated, true = (
            Problem((Paths(primary.astype(np.float32), secondary.astype(np.float32)),))
            for primary, secondary in (
                (ear.estimated_primary[:n], ear.estimated_secondary[:n]),
                (ear.primary, ear.secondary),
            )
        )
        made = design(estimated, DesignOptions(n_updates=1), model)
        scored = answer_or_raise(predict_all([true], [made.taps], model, is_true=True)[0])
        error_db = made.prediction.mean_noise_reduction_db - scored.mean_noise_reduction_db
        within.append(abs(error_db) <= made.prediction.interval_db)
    assert sum(within) >= 5  # nine in ten
