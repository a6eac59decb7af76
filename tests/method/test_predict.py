"""The figures of a filter from band sums against an evaluation per bin, and what is unknown of paths."""

import dataclasses

import numpy as np
import pytest

from model_store.store import ModelStore
from prime_anc.core import Core
from prime_anc.method.bands import WIDE_BANDS, centre_hz
from prime_anc.method.errors import NonFiniteFilter
from prime_anc.method.predict import N_SUMS, NATURAL_SPREAD, a_weight, band_sums, mean_prediction, predict
from prime_anc.method.support.statistics import band_uncertainty, learn_uncertainty
from prime_anc.method.types import NOT_JUDGED, Known, KnownFrom, Paths, Prediction
from prime_anc.method.unknown import COHERENCE_SHARE, CUT_DB, MODEL_BOUND, RESPONSE_LENGTHS
from tests.oracles import measured
from tests.oracles.octave_bands import band_sums as oracle_sums
from tests.oracles.octave_bands import reduction_db

N_FFT = 32_768
LEARNED = np.full(31, 0.01)


def known_from(basis: KnownFrom, primary: np.ndarray | float, secondary: np.ndarray | float = 0.0) -> Known:
    """Unknown over known power of both paths, per band or of all."""
    return Known(np.stack([np.broadcast_to(item, 31) for item in (primary, secondary)]).astype(np.float32), basis)


@dataclasses.dataclass(frozen=True)
class OneEar:
    """primary, secondary: complex128 [16385]; taps [64]; reference_psd [16385]."""

    primary: np.ndarray
    secondary: np.ndarray
    taps: np.ndarray
    reference_psd: np.ndarray

    @property
    def sums(self) -> np.ndarray:
        return band_sums(self.primary[None], self.secondary[None], self.taps[None], self.reference_psd)[0]

    def predicted(self, known: Known = NOT_JUDGED, learned: np.ndarray = LEARNED) -> Prediction:
        return predict(self.sums, learned, known)

    def mean_db(self, secondary: np.ndarray) -> float:
        """Mean noise reduction with another secondary path."""
        return reduction_db(self.primary, secondary, np.fft.rfft(self.taps, N_FFT), self.reference_psd)


@pytest.fixture
def ear() -> OneEar:
    """A filter that reaches about 20 dB on short random paths."""
    rng = np.random.default_rng(3)
    secondary = np.fft.rfft(np.r_[1.0, 0.3 * rng.standard_normal(30) * np.exp(-np.arange(30) / 5)], N_FFT)
    taps = rng.standard_normal(64) * np.exp(-np.arange(64) / 10)
    error = np.fft.rfft(0.01 * rng.standard_normal(4096) * np.exp(-np.arange(4096) / 300), N_FFT)
    primary = secondary * np.fft.rfft(taps, N_FFT) + error
    return OneEar(primary, secondary, taps, rng.uniform(0.5, 2, N_FFT // 2 + 1))


def flat_ear(residual: np.ndarray | float) -> OneEar:
    """An ear of flat paths whose filter leaves `residual` of the disturbance."""
    ones = np.ones(N_FFT // 2 + 1)
    return OneEar(ones + 0j, (1 - residual) * ones + 0j, np.ones(1), 1e-4 * ones)


def test_secondary_uncertainty_counts_with_filter(ear: OneEar) -> None:
    known = known_from("calibration", 1e-3, 4e-3)
    known.uncertainty[:, 12] = 2.0  # of which most is unknown
    found = ear.predicted(known)
    played = ear.secondary * np.fft.rfft(ear.taps, N_FFT)
    disturbance, left, control = (
        oracle_sums(WIDE_BANDS, ear.reference_psd * np.abs(item) ** 2)
        for item in (ear.primary, ear.primary - played, played)
    )
    unknown = known.uncertainty[0] * disturbance
    expected_db = 10 * np.log10((disturbance + unknown) / (left + unknown + known.uncertainty[1] * control))
    np.testing.assert_allclose(found.band_reduction_db, expected_db, atol=1e-5)
    # On the paths as sent, nothing is unknown, and starts are compared by that.
    nominal = ear.predicted()
    assert nominal.mean_noise_reduction_db == pytest.approx(ear.mean_db(ear.secondary), rel=1e-6)
    assert found.interval_db > nominal.interval_db == 0
    assert (found.compared_db(1), found.compared_db(0)) == (
        found.mean_noise_reduction_db,
        pytest.approx(nominal.mean_noise_reduction_db, abs=1e-9),
    )
    assert nominal.level_reduction_db == pytest.approx(10 * np.log10(disturbance.sum() / left.sum()), abs=1e-6)
    # IEC 61672-1, Table 3, at the nominal 31.5, 63, 125, ... 16000 Hz: one decimal.
    octaves = np.isin(WIDE_BANDS, range(15, 43, 3))
    weight = a_weight(np.array([centre_hz(n) for n in WIDE_BANDS]))
    nominal_db = [-39.4, -26.2, -16.1, -8.6, -3.2, 0.0, 1.2, 1.0, -1.1, -6.6]
    np.testing.assert_allclose(10 * np.log10(weight[octaves]), nominal_db, atol=0.05 + 1e-9)
    weighted_db = 10 * np.log10(weight @ disturbance / (weight @ left))
    assert nominal.a_weighted_level_reduction_db == pytest.approx(weighted_db, abs=1e-6)


def test_bands_that_the_unknown_may_make_louder_are_named(ear: OneEar) -> None:
    """With 0.4 of the loudspeaker's sound unknown 4 dB are predicted, but three times as much would be louder."""
    known = known_from("calibration", 1e-6, 1e-6)
    assert ear.predicted(known).louder_bands == ()
    known.uncertainty[1, 12], known.uncertainty[1, 20] = 0.4, 0.2
    found = ear.predicted(known)
    assert found.louder_bands == (WIDE_BANDS[12],)
    assert found.band_reduction_db[12] > 3
    known.uncertainty[1, 20] = 10.0  # unknown, and louder for sure
    assert ear.predicted(known).louder_bands == (WIDE_BANDS[12], WIDE_BANDS[20])


def test_amplitude_of_error_counts_in_low_bands() -> None:
    """Three times 0.8 that is unknown works against what is played: there with all of its amplitude, else with half."""
    found = flat_ear(0.1).predicted(known_from("calibration", 0.8))
    assert found.louder_bands == WIDE_BANDS[:4]
    least_db = 10 * np.log10((1 + 2.4) / (0.01 + 2.4 + np.sqrt(2.4) * 0.9))
    assert found.least_reduction_db[0] == pytest.approx(least_db, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "change", "atol"),
    [
        # The loudspeaker's own share of the error is in the sums: exact but for the floor of 1e-12.
        ("gain", np.log(10) / 20, 1e-6),
        # Within a band the phase is taken at its centre, from which it differs by up to a ninth.
        ("delay", 1j * np.linspace(0, np.pi, N_FFT // 2 + 1), 0.1),
    ],
)
def test_sensitivity_is_loss_with_changed_secondary_path(
    ear: OneEar, name: str, change: object, atol: float
) -> None:
    found = ear.predicted()
    changed = [ear.mean_db(ear.secondary * np.exp(sign * change)) for sign in (1, -1)]
    sensitivity_db = getattr(found, f"{name}_sensitivity_db")
    assert sensitivity_db == pytest.approx(found.mean_noise_reduction_db - min(changed), abs=atol)
    assert sensitivity_db > 1


def test_uncertainty_beyond_natural_one_costs(ear: OneEar) -> None:
    natural = NATURAL_SPREAD * LEARNED[0]
    poor, good, better = (ear.predicted(known_from("coherence", item)) for item in (0.2, natural, 1e-3))
    # The uncertainty is rounded to float32.
    assert [item.uncertainty_cost_db for item in (good, better)] == pytest.approx([0, 0], abs=1e-6)
    missing = good.mean_noise_reduction_db - poor.mean_noise_reduction_db
    assert poor.uncertainty_cost_db == pytest.approx(missing, abs=1e-6)
    assert missing > 3


def judged(learned: np.ndarray, primary: np.ndarray, psd: np.ndarray, coherence: np.ndarray) -> np.ndarray:
    """Uncertainty [2, 31] of a primary path, for a model of its device."""
    parameters = dataclasses.replace(
        ModelStore().load("bose-qc20").parameters, band_uncertainty=np.float32(learned)
    )
    paths = Paths(np.float32(primary), np.float32(primary), coherence=coherence)
    return Core(parameters).pose(paths, np.float32(psd))[2].uncertainty


def test_coherence_tells_uncertainty_up_to_models_bound(ears: list[measured.MeasuredEar]) -> None:
    """A microphone's noise lowers the coherence without making the paths less certain, until it hides them."""
    primary, hz = ears[0].primary, np.linspace(0, 24_000, N_FFT // 2 + 1)
    psd = 1 / np.maximum(hz, 20)
    power = psd * np.abs(np.fft.rfft(primary, N_FFT)) ** 2
    expected = 10 ** (CUT_DB[-1] / 10) * LEARNED
    for value, is_hidden in ((0.8, False), (0.3, True)):
        coherence = np.where(hz < 1000, 1, value).astype(np.float32)
        items = (1 / np.float64(coherence) - 1) * power, power
        unexplained, whole = (oracle_sums(WIDE_BANDS, item) for item in items)
        share = COHERENCE_SHARE * unexplained / whole
        wanted = np.where(share > 1, share, np.minimum(share, MODEL_BOUND * expected))
        found = judged(LEARNED, primary, psd, coherence)
        np.testing.assert_allclose(found[0], wanted, rtol=1e-4, atol=1e-7)  # of transforms in float32
        np.testing.assert_allclose(found[1], np.where(share > 1, share, 0), rtol=1e-4)
        assert (share > 1).any() == is_hidden
        np.testing.assert_allclose(judged(0 * LEARNED, primary, psd, coherence)[0], share, rtol=1e-4, atol=1e-7)


def test_model_expects_more_of_response_that_is_cut(ears: list[measured.MeasuredEar]) -> None:
    model = ModelStore().load("bose-qc20").parameters
    psd, found = model.reference_psd, []
    for n in (2048, 1024, 512):
        paths = Paths(*(np.float32(item[:n]) for item in (ears[0].primary, ears[0].secondary)))
        *_, known = Core(model).pose(paths, psd, is_device=True)
        assert known.basis == "model"
        raised = 10 ** (CUT_DB[RESPONSE_LENGTHS.index(n)] / 10)
        np.testing.assert_allclose(known.uncertainty[0], raised * model.band_uncertainty, rtol=1e-3)
        found.append(known.uncertainty[0])
    assert (np.diff(found, axis=0) > 0).all()


def test_interval_is_wider_where_less_is_known(ear: OneEar) -> None:
    stated, of_coherence = (ear.predicted(known_from(basis, 0.008)) for basis in ("calibration", "coherence"))
    assert 0 < stated.interval_db < of_coherence.interval_db
    of_model = known_from("model", 0.008)._replace(ends_interval_db=5.0)
    assert ear.predicted(of_model).interval_db == 5
    assert ear.predicted(known_from("coherence", 0.02)).interval_db > of_coherence.interval_db


def test_what_is_not_finite_is_rejected(ear: OneEar) -> None:
    sums = ear.sums
    assert len(sums) == N_SUMS
    for place in (0, 40):
        broken = sums.copy()
        broken[place] = np.nan
        assert isinstance(predict(broken, LEARNED, NOT_JUDGED), NonFiniteFilter)


def test_joint_prediction_keeps_largest_levels(ear: OneEar) -> None:
    """The loudest condition decides what the loudspeaker must play; all other figures are means."""
    quiet = ear.predicted()
    loud = dataclasses.replace(
        quiet, max_gain_db=quiet.max_gain_db + 6, control_rms=4 * quiet.control_rms, amplification_db=2.0
    )
    joint = mean_prediction([quiet, loud], np.array([0.75, 0.25]), ["", ""])
    assert (joint.max_gain_db, joint.control_rms) == (loud.max_gain_db, loud.control_rms)
    assert joint.amplification_db == pytest.approx(0.75 * quiet.amplification_db + 0.25 * 2.0)


def decaying(n_ears: int) -> np.ndarray:
    """Spectra of responses of 8192 samples."""
    rng = np.random.default_rng(8)
    return np.fft.rfft(rng.standard_normal((n_ears, 8192)) * np.exp(-np.arange(8192) / 900), 32_768)


def test_learned_values_are_geometric_means() -> None:
    primary, rng = decaying(2), np.random.default_rng(5)
    psd, coherence = rng.uniform(0.5, 2.0, 16_385), rng.uniform(0.5, 1, (2, 16_385))
    power = psd * np.abs(primary) ** 2
    items = power, (1 - coherence) / coherence * power
    whole, unexplained = (np.array([oracle_sums(WIDE_BANDS, row) for row in item]) for item in items)
    uncertainty = unexplained / whole
    np.testing.assert_allclose(band_uncertainty(primary, coherence, psd), uncertainty, rtol=1e-9)
    learned = learn_uncertainty(primary, coherence, psd)
    np.testing.assert_allclose(learned, np.sqrt(uncertainty.prod(0)), rtol=1e-9)
