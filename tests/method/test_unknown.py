"""What is unknown of paths as they were sent: silent bands, and what the ends of responses show."""

import numpy as np
import pytest
from scipy.signal import firwin

from model_store.store import ModelStore
from prime_anc.method.bands import NR_BANDS, WIDE_BANDS
from prime_anc.method.conventions import DESIGN_N_FFT
from prime_anc.method.design import design, predict_all
from prime_anc.method.errors import answer_or_raise
from prime_anc.method.types import DesignOptions, Known, Model, Path, Paths, Problem
from prime_anc.method.unknown import SILENT_UNCERTAINTY
from tests.oracles.measured import MeasuredEar

MODEL = Model.on("cpu", ModelStore().load("generic").parameters)


def judged(primary: Path, secondary: Path) -> Known:
    pair = (item.astype(np.complex64 if np.iscomplexobj(item) else np.float32) for item in (primary, secondary))
    return MODEL.core.pose(Paths(*pair), MODEL.parameters.reference_psd)[2]


@pytest.mark.parametrize("as_spectrum", [False, True])
def test_silent_bands_have_unknown_secondary_path(as_spectrum: bool) -> None:
    """A cup that lets nothing through above 2 kHz, in front of a loudspeaker that plays up to 6 kHz."""
    pair = [firwin(1023, end_hz, window=("kaiser", 9), fs=48_000) for end_hz in (2000, 6000)]
    found = judged(*(np.fft.rfft(item, DESIGN_N_FFT) if as_spectrum else item for item in pair))
    n = np.array(WIDE_BANDS)
    assert not found.silent[n <= 32].any()  # up to 1.6 kHz
    assert found.silent[n >= 34].all()  # from 2.5 kHz
    np.testing.assert_array_equal(found.uncertainty[1] == SILENT_UNCERTAINTY, found.silent)


SCORED = slice(WIDE_BANDS.index(NR_BANDS[0]) + 6, WIDE_BANDS.index(NR_BANDS[-1]) + 1)  # bands of many bins


def decaying(n: int, decay_samples: float, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(n) * np.exp(-np.arange(n) / decay_samples)


@pytest.mark.parametrize("noise_db", [-20.0, -40.0])
def test_noise_floor_is_found(noise_db: float) -> None:
    response = decaying(2048, 60)
    noise = np.random.default_rng(4).standard_normal(2048)
    noise *= 10 ** (noise_db / 20) * np.linalg.norm(response) / np.linalg.norm(noise)
    uncertainty = judged(response + noise, response + noise).uncertainty
    found_db = 10 * np.log10(np.median(uncertainty[:, SCORED], axis=1))
    assert found_db == pytest.approx([noise_db] * 2, abs=3)  # of the spread of single bands


def test_missing_tail_follows_from_decay() -> None:
    whole = decaying(8192, 400)
    kept, cut = whole[:1024], whole[1024:]
    uncertainty = judged(kept, kept).uncertainty
    # Bands of a few independent bins see a decay that is up to 1 dB off from quarter to quarter.
    true_db = 10 * np.log10(np.sum(cut**2) / np.sum(kept**2))
    assert 10 * np.log10(np.median(uncertainty[0, SCORED])) == pytest.approx(true_db, abs=5)


def test_form_of_response_does_not_matter() -> None:
    response = decaying(1000, 200)
    one = judged(response, response)
    for form in (np.pad(response, (0, 7000)), np.fft.rfft(response, 32_768), 1e-3 * response):
        other = judged(form, form)
        np.testing.assert_allclose(other.uncertainty, one.uncertainty, rtol=0.02, atol=1e-7)
        assert other.ends_interval_db == pytest.approx(one.ends_interval_db, abs=0.01)


@pytest.mark.parametrize(
    "response", [np.ones(1), decaying(2048, 60), decaying(8192, 2000)], ids=["one", "decayed", "long"]
)
def test_nothing_is_unknown_of_whole_response(response: np.ndarray) -> None:
    uncertainty = judged(response, response).uncertainty
    assert uncertainty.max() < 1e-6


def test_rising_end_shows_missing_windows() -> None:
    falling = decaying(8192, 1500)
    rising = falling + 0.3 * decaying(8192, 1500, seed=4)[::-1]
    none, lacked = judged(falling, falling), judged(rising, falling)
    assert lacked.ends_interval_db > none.ends_interval_db
    assert not none.uncertainty.any()
    assert lacked.uncertainty[0, SCORED].all()


@pytest.mark.measured
@pytest.mark.parametrize("n", [1024, 8192])
def test_bare_estimates_keep_their_interval(ears: list[MeasuredEar], n: int) -> None:
    """Estimates by windows promise up to 15 dB more than the filter takes away, which no end of a response shows."""
    within = []
    for ear in ears[:6]:
        estimated, true = (
            Problem((Paths(primary.astype(np.float32), secondary.astype(np.float32)),))
            for primary, secondary in (
                (ear.estimated_primary[:n], ear.estimated_secondary[:n]),
                (ear.primary, ear.secondary),
            )
        )
        made = design(estimated, DesignOptions(n_updates=1), MODEL)
        scored = answer_or_raise(predict_all([true], [made.taps], MODEL, is_true=True)[0])
        error_db = made.prediction.mean_noise_reduction_db - scored.mean_noise_reduction_db
        within.append(abs(error_db) <= made.prediction.interval_db)
    assert sum(within) >= 5  # nine in ten
