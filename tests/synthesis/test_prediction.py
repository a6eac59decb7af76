"""The figures of a filter from band sums, against a plain evaluation per bin in which the paths really change."""

import dataclasses

import numpy as np
import pytest
import torch

from synthesis.errors import NonFiniteFilter
from synthesis.noise_reduction import band_sums
from synthesis.octave_bands import AMP_BANDS, NR_BANDS, WIDE_BANDS, centre_hz
from synthesis.paths import AcousticPaths
from synthesis.prediction import N_SUMS, Prediction, a_weight, columns, predict
from tests.oracles import noise_reduction as oracle
from tests.oracles.octave_bands import band_sums as oracle_band_sums

N_FFT = 32_768
TYPICAL = np.stack((np.full(31, 0.01), np.ones(31)))


@dataclasses.dataclass(frozen=True)
class Ear:
    """primary, secondary: complex128 [16385]; taps [64]; reference_psd, coherence [16385]."""

    primary: np.ndarray
    secondary: np.ndarray
    taps: np.ndarray
    reference_psd: np.ndarray
    coherence: np.ndarray

    def sums(self, *, with_coherence: bool = True, is_true: bool = False) -> np.ndarray:
        paths = AcousticPaths(*(torch.from_numpy(each)[None] for each in (self.primary, self.secondary)))
        taps, psd = torch.from_numpy(self.taps)[None], torch.from_numpy(self.reference_psd)
        coherence = torch.from_numpy(self.coherence)[None] if with_coherence else None
        return band_sums(paths, taps, psd, coherence, is_true=is_true)[0].numpy()

    def predicted(self, **options: bool) -> Prediction:
        with_coherence, is_true = options.get("with_coherence", True), options.get("is_true", False)
        basis = None if is_true else "coherence" if with_coherence else "model"
        found = predict(self.sums(**options), basis, TYPICAL)
        assert isinstance(found, Prediction)
        return found

    def mean_db(self, secondary: np.ndarray) -> float:
        return oracle.predict(
            self.primary, secondary, self.taps, self.reference_psd, self.coherence
        ).mean_noise_reduction_db


@pytest.fixture
def ear() -> Ear:
    """A filter that reaches about 20 dB on short random paths."""
    rng = np.random.default_rng(3)
    secondary = np.fft.rfft(np.r_[1.0, 0.3 * rng.standard_normal(30) * np.exp(-np.arange(30) / 5)], N_FFT)
    taps = rng.standard_normal(64) * np.exp(-np.arange(64) / 10)
    error = np.fft.rfft(0.01 * rng.standard_normal(4096) * np.exp(-np.arange(4096) / 300), N_FFT)
    primary = secondary * np.fft.rfft(taps, N_FFT) + error
    return Ear(primary, secondary, taps, rng.uniform(0.5, 2, N_FFT // 2 + 1), rng.uniform(0.98, 1, N_FFT // 2 + 1))


def test_figures_equal_the_twin(ear: Ear) -> None:
    found = ear.predicted()
    expected = oracle.predict(ear.primary, ear.secondary, ear.taps, ear.reference_psd, ear.coherence)
    for field in dataclasses.fields(expected):
        # Float64 against float64: the floor of 1e-12 that the twin does not have and the rounding to float32.
        np.testing.assert_allclose(
            getattr(found, field.name), getattr(expected, field.name), rtol=1e-6, atol=1e-6, err_msg=field.name
        )
    np.testing.assert_allclose(found.band_reduction_db[columns(AMP_BANDS)], expected.noise_reduction_db, atol=1e-5)


def test_gain_sensitivity_is_the_loss_with_a_changed_secondary_path(ear: Ear) -> None:
    found = ear.predicted()
    changed = [ear.mean_db(ear.secondary * 10 ** (sign / 20)) for sign in (1, -1)]
    # The loudspeaker's own share of the error is in the sums: exact.
    assert found.gain_sensitivity_db == pytest.approx(found.mean_noise_reduction_db - min(changed), abs=1e-6)
    assert found.gain_sensitivity_db > 1


def test_delay_sensitivity_is_the_loss_with_a_delayed_secondary_path(ear: Ear) -> None:
    found = ear.predicted()
    omega = np.linspace(0, np.pi, N_FFT // 2 + 1)
    changed = [ear.mean_db(ear.secondary * np.exp(sign * 1j * omega)) for sign in (1, -1)]
    # Within a band the phase is taken at its centre, from which it differs by up to a ninth.
    assert found.delay_sensitivity_db == pytest.approx(found.mean_noise_reduction_db - min(changed), abs=0.1)
    assert found.delay_sensitivity_db > 1


def test_level_reduction_is_of_the_sum_over_bands(ear: Ear) -> None:
    found = ear.predicted(is_true=True)
    before = oracle_band_sums(WIDE_BANDS, ear.reference_psd * np.abs(ear.primary) ** 2)
    error = ear.primary - ear.secondary * np.fft.rfft(ear.taps, N_FFT)
    after = oracle_band_sums(WIDE_BANDS, ear.reference_psd * np.abs(error) ** 2)
    assert found.level_reduction_db == pytest.approx(10 * np.log10(before.sum() / after.sum()), abs=1e-6)
    weight = a_weight(np.array([centre_hz(n) for n in WIDE_BANDS]))
    expected = 10 * np.log10((weight * before).sum() / (weight * after).sum())
    assert found.a_weighted_level_reduction_db == pytest.approx(expected, abs=1e-6)


def test_a_weighting_has_the_values_of_the_standard() -> None:
    """IEC 61672-1, Table 3, at the exact frequencies of the nominal 31.5, 63, 125, ... 16000 Hz."""
    bands = (15, 18, 21, 24, 27, 30, 33, 36, 39, 42)
    nominal_db = [-39.4, -26.2, -16.1, -8.6, -3.2, 0.0, 1.2, 1.0, -1.1, -6.6]
    found_db = 10 * np.log10(a_weight(np.array([centre_hz(n) for n in bands])))
    np.testing.assert_allclose(found_db, nominal_db, atol=0.05 + 1e-9)  # the table has one decimal


def test_uncertainty_costs_what_more_than_the_typical_one_takes_away(ear: Ear) -> None:
    assert ear.predicted(with_coherence=False).uncertainty_cost_db == pytest.approx(0, abs=1e-9)
    certain = dataclasses.replace(ear, coherence=np.full_like(ear.coherence, 0.999))
    assert certain.predicted().uncertainty_cost_db == 0
    poor = dataclasses.replace(ear, coherence=np.full_like(ear.coherence, 0.8))
    typical = dataclasses.replace(ear, coherence=np.full_like(ear.coherence, 1 / 1.01))
    missing = typical.predicted().mean_noise_reduction_db - poor.predicted().mean_noise_reduction_db
    assert poor.predicted().uncertainty_cost_db == pytest.approx(missing, abs=1e-6)
    assert missing > 3


def test_true_paths_have_no_uncertainty(ear: Ear) -> None:
    sure = dataclasses.replace(ear, coherence=np.ones_like(ear.coherence))
    assert ear.predicted(is_true=True).mean_noise_reduction_db == pytest.approx(
        sure.predicted().mean_noise_reduction_db, abs=1e-6
    )


def test_the_length_of_a_response_is_where_it_ends(ear: Ear) -> None:
    primary = np.zeros(N_FFT)
    primary[[3, 700]] = 1.0, 1e-3
    cut = dataclasses.replace(ear, primary=np.fft.rfft(primary))
    assert cut.sums()[-1] == 701


def test_what_is_not_finite_is_refused(ear: Ear) -> None:
    sums = ear.sums()
    assert len(sums) == N_SUMS
    for place in (0, 40):
        broken = sums.copy()
        broken[place] = np.nan
        assert isinstance(predict(broken, "coherence", TYPICAL), NonFiniteFilter)


def test_the_mean_is_over_50_hz_to_5_khz(ear: Ear) -> None:
    found = ear.predicted()
    assert found.mean_noise_reduction_db == pytest.approx(
        found.band_reduction_db[columns(NR_BANDS)].mean(), abs=1e-5
    )
