"""The expected error of paths that are known in part: what updates minimise, and the prediction states."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from model_store.store import ModelStore
from prime_anc.method.bands import NR_BANDS, WIDE_BANDS, columns
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from prime_anc.method.design import design
from prime_anc.method.methods import METHODS
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.profiles import FAST, settling
from prime_anc.method.types import DesignOptions, Fallback, Model, Paths, Problem
from prime_anc.method.update import refine
from tests.method.cases import Case, relative_error
from tests.method.test_update import SILENCE_ATOL, base_taps, on_grid
from tests.oracles import gauss_newton as oracle
from tests.oracles.measured import MeasuredEar
from tests.oracles.octave_bands import band_sums

PARAMETERS = ModelStore().load("bose-qc20").parameters
FREE = replace(FAST, ceiling_weight=0.0)
# 1e-4 to 1 of the power is unknown, as of noisy calibrations.
SHARES = 10 ** np.random.default_rng(4).uniform(-4, 0, (2, 31))


def uncertainty_of(paths: AcousticPaths) -> torch.Tensor:
    return torch.from_numpy(SHARES).expand(paths.batch_size, -1, -1)


@pytest.fixture(scope="module")
def paths(ears: list[MeasuredEar]) -> Paths:
    """Estimates of a measured ear."""
    return Paths(np.float32(ears[1].estimated_primary), np.float32(ears[1].estimated_secondary))


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("fallback", [None, Fallback()], ids=["alone", "fallback"])
@pytest.mark.parametrize("method", METHODS)
def test_start_is_same_whatever_is_known(paths: Paths, method: str, fallback: Fallback | None, device: str) -> None:
    """Without a ceiling, below which the search for a filter weighs what is unknown."""
    model, coherence = Model.on(device, PARAMETERS), np.full(N_BINS, 0.97, np.float32)
    coherence[9000:] = 0.01
    known = {}, {"coherence": coherence}, {"uncertainty": 30 * np.float32(SHARES)}
    conditions = [*((replace(paths, **item),) for item in known), (paths, paths)]
    first, *others, twice = (
        design(Problem(item, max_gain_db=300), DesignOptions(method), model, fallback).taps for item in conditions
    )
    for other in others:
        assert np.array_equal(first, other)
    # torch's sums over two conditions round in float32 before they are solved: measured 5e-3.
    assert np.array_equal(first, twice) if device == "cpu" else relative_error(twice, first) < 0.01


def expected_powers(
    primary: np.ndarray, secondary: np.ndarray, taps: np.ndarray, psd: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """D_b and E_b in float64 with SHARES unknown, [31] each."""
    played = secondary * np.fft.rfft(taps, 2 * (len(primary) - 1))
    whole, left, control = (
        band_sums(WIDE_BANDS, psd * np.abs(item) ** 2) for item in (primary, primary - played, played)
    )
    return (1 + SHARES[0]) * whole, left + SHARES[0] * whole + SHARES[1] * control


def test_objective_of_updates_is_of_brute_sums(measured_case: Case) -> None:
    paths = measured_case.paths()[:2]
    taps = base_taps(paths, 2048)
    found = refine(
        paths, taps, measured_case.psd(), n_updates=0, profile=FREE, uncertainty=uncertainty_of(paths)
    ).objective[:, 0]
    coarse = on_grid(measured_case, FREE)
    for item in range(2):
        d, e = expected_powers(
            coarse.primary[item], coarse.secondary[item], taps[item].numpy(), coarse.reference_psd
        )
        empty = d == 0  # at 20 Hz this grid has no bin
        ratios = np.log(np.where(empty, 1.0, e) / np.where(empty, 1.0, d))
        expected = oracle.without_penalty(ratios, range(13, 44), FREE.risk_weight)
        assert found[item].item() == pytest.approx(expected, abs=SILENCE_ATOL)


def test_updated_filter_is_minimum(measured_case: Case) -> None:
    paths = measured_case.paths()[:2]
    given = {"profile": settling(FREE), "uncertainty": uncertainty_of(paths)}
    taps = refine(paths, base_taps(paths, 2048), measured_case.psd(), n_updates=40, **given).taps
    lowest = refine(paths, taps, measured_case.psd(), n_updates=0, **given).objective[:, 0]
    generator = torch.Generator().manual_seed(2)
    for size in (1e-4, 1e-3, 1e-2):
        change = torch.randn(4, *taps.shape, generator=generator, dtype=taps.dtype)
        for item in change / change.norm(dim=-1, keepdim=True) * size * taps.norm(dim=-1, keepdim=True):
            moved = refine(paths, taps + item, measured_case.psd(), n_updates=0, **given).objective[:, 0]
            # Updates end where a step gains less than 1e-5 |J|.
            assert (moved > lowest - 1e-5 * lowest.abs()).all()


def test_band_of_unknown_secondary_path_is_quiet(measured_case: Case) -> None:
    """2.5 to 4 kHz. A single band at 1 kHz may stay loud: J has a second minimum where it is given up."""
    paths, bands = measured_case.paths()[:2], np.isin(WIDE_BANDS, (34, 35, 36))
    unknown = torch.from_numpy(np.outer([0, 1e6], bands)).expand(2, -1, -1)
    taps = refine(paths, base_taps(paths, 2048), measured_case.psd(), n_updates=8, uncertainty=unknown).taps
    for item in range(2):
        played = measured_case.secondary[item] * np.fft.rfft(taps[item].numpy(), DESIGN_N_FFT)
        powers = [
            band_sums(WIDE_BANDS, measured_case.reference_psd * np.abs(each) ** 2)[bands]
            for each in (played, measured_case.primary[item])
        ]
        assert 10 * np.log10(powers[0] / powers[1]).max() < -25


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_prediction_is_of_expected_error(paths: Paths, device: str) -> None:
    problem = Problem((replace(paths, uncertainty=np.float32(SHARES)),))
    made = design(problem, DesignOptions(n_updates=3), Model.on(device, PARAMETERS))
    spectra = (np.fft.rfft(np.float64(item), DESIGN_N_FFT) for item in (paths.primary, paths.secondary))
    d, e = expected_powers(*spectra, made.taps.astype(np.float64), PARAMETERS.reference_psd.astype(np.float64))
    expected_db = 10 * np.log10(d / e)
    # Spectra in float32.
    np.testing.assert_allclose(made.prediction.band_reduction_db, expected_db, atol=1e-3)
    mean_db = expected_db[columns(NR_BANDS)].mean()
    assert made.prediction.mean_noise_reduction_db == pytest.approx(mean_db, abs=1e-3)
