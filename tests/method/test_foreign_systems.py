"""Designs for systems that are no earphone: as good as they can be, and the same however the paths are sent."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model_store.store import BUNDLED_ROOT, ModelStore
from prime_anc.method.conventions import DESIGN_N_FFT
from prime_anc.method.design import design
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.profiles import FINE
from prime_anc.method.start.wiener import design_wmmse
from prime_anc.method.types import Design, DesignOptions, Fallback, Model, Problem
from tests.oracles.octave_bands import reduction_db
from tests.problems import one
from training.datasets.simulated_systems import simulate_system


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.on("cpu", ModelStore(BUNDLED_ROOT).load("generic").parameters)


def problem_of(number: int) -> Problem:
    system = simulate_system(number)
    return one(system.primary.astype(np.float32), system.secondary.astype(np.float32))


def designed(problem: Problem, model: Model, k: int, method: str = "prime") -> Design:
    fallback = Fallback() if method == "prime" else None
    return design(problem, DesignOptions(method, k, FINE.name), model, fallback)


def reached_db(problem: Problem, taps: NDArray[np.floating], model: Model) -> float:
    """Mean noise reduction in float64."""
    (paths,) = problem.conditions
    spectra = (np.fft.rfft(x.real.astype(float), DESIGN_N_FFT) for x in (paths.primary, paths.secondary, taps))
    return reduction_db(*spectra, model.parameters.reference_psd)


# In the last, a headrest, updates lower the mean by 1 dB.
@pytest.mark.parametrize("number", [0, 2, 193])
def test_design_is_not_below_wmmse_unsaid(number: int, model: Model) -> None:
    problem = problem_of(number)
    (paths,) = problem.conditions
    pair = (torch.from_numpy(path.real)[None].double() for path in (paths.primary, paths.secondary))
    psd = torch.from_numpy(model.parameters.reference_psd).double()
    direct = design_wmmse(AcousticPaths.from_impulse_responses(*pair), psd)[0].numpy()
    for k in (0, 1, 3):
        made = designed(problem, model, k)
        behind_db = reached_db(problem, direct, model) - reached_db(problem, made.taps, model)
        assert behind_db < 0.3 or (made.ceiling_cost_db or 0) > 0.3


@pytest.mark.parametrize(("number", "k"), [(0, 1), (2, 3)])
def test_design_does_not_depend_on_form_of_paths(number: int, k: int, model: Model) -> None:
    """Not on zeros at the end, a factor, or whether a response or its spectrum is sent; little on zeros at the
    beginning of both, since a generator looks at phases.
    """
    problem = problem_of(number)
    (paths,) = problem.conditions
    plain = designed(problem, model, k)
    expected = reached_db(problem, plain.taps, model)
    pair = [path.real for path in (paths.primary, paths.secondary)]
    forms = {
        "padded": [np.pad(path, (0, 4000)) for path in pair],
        "delayed": [np.pad(path, (100, 0)) for path in pair],
        "scaled": [np.float32(1000) * path for path in pair],
        "spectra": [np.fft.rfft(path.astype(float), DESIGN_N_FFT).astype(np.complex64) for path in pair],
    }
    for name, form in forms.items():
        made, limit_db = designed(one(*form), model, k), 0.3 if name == "delayed" else 0.05
        assert reached_db(problem, made.taps, model) == pytest.approx(expected, abs=limit_db), name
        predicted_db = made.prediction.mean_noise_reduction_db
        assert predicted_db == pytest.approx(plain.prediction.mean_noise_reduction_db, abs=limit_db), name
