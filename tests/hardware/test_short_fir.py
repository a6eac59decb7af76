"""Short filters: better than truncated ones, the same at other rates, within their ceiling."""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.linalg import solve_toeplitz
from scipy.signal import resample_poly

from model_store.store import ModelStore
from prime_anc.hardware.realise import Target, realise
from prime_anc.hardware.residual_power import PathSpectra
from prime_anc.hardware.short_fir import at_design_rate, design_fir
from prime_anc.measure.files.measurements import paths_at_48_khz
from prime_anc.measure.files.resampling import Response
from prime_anc.method.bands import NR_BANDS, WIDE_BANDS, edges_hz
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from prime_anc.method.errors import InvalidPaths
from prime_anc.method.methods import spectrum
from prime_anc.method.posing import pose
from prime_anc.method.profiles import FAST
from prime_anc.method.types import Model, Paths, Problem
from prime_anc.method.updates.band_weights import BandWeights
from service.errors import to_problem
from tests.oracles.octave_bands import reduction_db
from training.datasets.simulated_systems import simulate_system

MODEL = Model.on("cpu", ModelStore().load("generic").parameters)


def reached_db(condition: PathSpectra, psd: np.ndarray, taps: np.ndarray, bands: Iterable[int] = NR_BANDS) -> float:
    return reduction_db(condition.primary, condition.secondary, at_design_rate(taps, 48_000), psd, bands)


def test_short_design_beats_truncation_and_ceiling_costs_little(measured):
    """The ceiling costs 0.2 to 0.4 dB; with a hundred times the first penalty up to 1 dB."""
    conditions, noise = measured
    for condition in conditions[:2]:
        long = design_fir([condition], noise, 2048)
        truncated, short, free, bounded = (
            reached_db(condition, noise, taps)
            for taps in (
                long[:512],
                design_fir([condition], noise, 512),
                long,
                design_fir([condition], noise, 2048, max_gain_db=20.0),
            )
        )
        assert short > truncated + 3
        assert bounded > free - 0.5


@pytest.mark.parametrize("rate", [8000, 96_000])
def test_response_is_that_of_taps(rate):
    taps = np.random.default_rng(0).standard_normal(300)
    found = at_design_rate(taps, rate)
    frequency_hz = np.fft.rfftfreq(DESIGN_N_FFT, 1 / 48_000)
    expected = np.polynomial.polynomial.polyval(np.exp(-2j * np.pi * frequency_hz / rate), taps)
    np.testing.assert_allclose(found, np.where(frequency_hz <= rate / 2, expected, 0), atol=1e-8)


@pytest.mark.parametrize("ceiling_db", [-6.0, 3.0])
def test_ceiling_holds_between_bins(condition, pink, ceiling_db):
    assert 20 * np.log10(np.abs(np.fft.rfft(design_fir([condition], pink, 256), 1 << 18)).max()) > ceiling_db
    taps = design_fir([condition], pink, 256, max_gain_db=ceiling_db)
    assert 20 * np.log10(np.abs(np.fft.rfft(taps, 1 << 18)).max()) <= ceiling_db + 0.01


def test_taps_gain_where_band_weights_are(condition, pink):
    """64 taps are too few for all bands."""
    weighted = replace(FAST, band_weights=BandWeights([200, 215], [10, 0]).relative())
    designs = (realise([condition], pink, Target("fir", n_taps=64), profile=item) for item in (weighted, FAST))
    found, plain = (reached_db(condition, pink, item.taps, bands=tuple(range(17, 24))) for item in designs)
    assert found > plain + 0.4


def test_taps_hold_louder_bands(measured):
    """The loudspeaker is four samples late."""
    conditions, noise = measured
    delay = np.exp(-2j * np.pi * 4 * np.arange(N_BINS) / DESIGN_N_FFT)
    late = PathSpectra(conditions[0].primary, conditions[0].secondary * delay)
    made = [design_fir([late], noise, 512, profile=item) for item in (FAST, replace(FAST, max_louder_db=3.0))]
    free_db, held_db = (min(reached_db(late, noise, taps, bands=(band,)) for band in WIDE_BANDS) for taps in made)
    assert free_db < -5
    assert held_db > -4
    assert reached_db(late, noise, made[1]) > reached_db(late, noise, made[0]) - 4


def test_condition_without_sound_is_rejected(condition, pink):
    """This also holds beside a valid condition, and numerical errors map to a problem of the paths."""
    above_all_bands = np.fft.rfft([1.0, -1.0] * (DESIGN_N_FFT // 2))
    with pytest.raises(InvalidPaths, match="primary: it has no power"):
        design_fir([condition, PathSpectra(above_all_bands, condition.secondary)], pink, 64, sample_rate_hz=8000)
    broken = PathSpectra(condition.primary, np.full_like(condition.secondary, np.nan))
    with pytest.raises((np.linalg.LinAlgError, InvalidPaths)) as raised:
        design_fir([condition, broken], pink, 64)
    problem = to_problem(raised.value)
    assert problem.code == "unusable-paths"


def test_taps_at_system_rate_are_optimal():
    """Of a headrest, within 0.3 dB of float64 taps from the responses at that rate, with weights 1 / E."""
    system = simulate_system(18)
    rate, n_taps = system.rate_hz, round(2048 * system.rate_hz / 48_000)
    ratio = Fraction(rate, 48_000)
    pair = [resample_poly(item, ratio.numerator, ratio.denominator) for item in (system.primary, system.secondary)]
    n_fft = DESIGN_N_FFT * rate // 48_000
    p, s = (np.fft.rfft(item, n_fft) for item in pair)
    hz = np.fft.rfftfreq(n_fft, 1 / rate)
    bands = np.array([(hz >= low) & (hz < high) for low, high in map(edges_hz, NR_BANDS) if high < 0.46 * rate])
    psd = np.where(hz > 20, 1 / np.maximum(hz, 20), 0)
    residual = p
    for _ in range(12):
        weight = psd * ((1 / (bands @ (psd * np.abs(residual) ** 2))) @ bands)
        normal, matched = (np.fft.irfft(weight * s.conj() * item)[:n_taps] for item in (s, p))
        normal[0] *= 1 + 1e-7
        residual = p - s * np.fft.rfft(solve_toeplitz(normal, matched), n_fft)
    names = ("primary", "secondary")
    responses = {name: Response(name, item, rate) for name, item in zip(names, pair, strict=True)}
    at_48_khz, _ = paths_at_48_khz(responses)
    posed = pose(Problem((Paths(*map(np.float32, at_48_khz.values())),), exact=True), MODEL)
    spectra = spectrum(posed.primary[0]), spectrum(posed.secondary[0])
    condition = PathSpectra(*spectra, uncertainty=posed.known[0].uncertainty)
    noise = 1 / np.maximum(np.fft.rfftfreq(DESIGN_N_FFT, 1 / 48_000), 20)
    found = np.fft.rfft(design_fir([condition], noise, n_taps, sample_rate_hz=rate, max_gain_db=60.0), n_fft)
    powers = [bands @ (psd * np.abs(item) ** 2) for item in (residual, p - s * found)]
    assert 10 * np.log10(powers[1] / powers[0]).mean() < 0.3
