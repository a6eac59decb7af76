"""The reference as a backend: NumPy in, NumPy out, ears independent."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from synthesis.backends.reference import ReferenceBackend
from synthesis.conventions import DESIGN_N_FFT, N_BINS
from synthesis.design import design_all
from synthesis.errors import InvalidPaths, NonFiniteFilter
from synthesis.methods import METHODS
from synthesis.paths import AcousticPaths
from synthesis.start.features import GeneratorConfig
from synthesis.types import Design, DesignOptions, Draft, Model, Paths, Prediction, Problem
from tests.model_store import cases
from tests.problems import changed
from tests.synthesis.cases import predictions, relative_error

CONFIGS = {
    "prime-log": GeneratorConfig.prime_log(n_channels=8, dilations=(1, 2)),
    "prime-log, minimum phase": GeneratorConfig.prime_log(realisation="minimum_phase"),
    "prime": GeneratorConfig.prime(n_fft=4096),
}


@pytest.fixture(scope="module")
def model() -> Model:
    """Random weights, in float64."""
    parameters = cases.parameters(1, CONFIGS["prime-log"])
    return Model(parameters, ReferenceBackend(parameters, torch.float64))


def ear(seed: int) -> Problem:
    primary, secondary, coherence = cases.ear(seed)
    return Problem((Paths(primary, secondary, coherence=coherence),))


def designed(answer: object) -> Design:
    assert isinstance(answer, Design)
    return answer


@pytest.mark.parametrize(("method", "n_updates"), [*((method, 0) for method in METHODS), ("prime", 2)])
def test_draft_equals_synthesizer(model: Model, method: str, n_updates: int) -> None:
    ears = [ear(1), changed(ear(2), coherence=None), replace(ear(3), max_gain_db=6.0)]
    found = model.backend.draft(ears, DesignOptions(method, n_updates, "fine"), False)
    synthesizer = model.backend.synthesizer
    for item, answer in zip(ears, found, strict=True):
        assert isinstance(answer, Draft)
        (own_paths,) = item.conditions
        responses = (torch.from_numpy(path)[None].double() for path in (own_paths.primary, own_paths.secondary))
        paths = AcousticPaths.from_impulse_responses(*responses)
        refined = synthesizer.design(paths, n_updates, method=method, profile="fine", max_gain_db=item.max_gain_db)
        coherence = None if own_paths.coherence is None else torch.from_numpy(own_paths.coherence)[None].double()
        assert answer.taps.dtype == np.float32
        # Rounded to float32; of a batch, where a direct solve hardly damps what weighs nothing in J.
        assert relative_error(answer.taps, refined.taps[0]) < (1e-3 if n_updates else 1e-6)
        assert answer.refinement.applied == int(refined.n_applied[0])
        assert len(answer.refinement.objective) == answer.refinement.applied + 1
        assert answer.refinement.objective == pytest.approx(refined.objective[0, : answer.refinement.applied + 1])
        (expected,) = predictions(
            paths,
            torch.from_numpy(answer.taps)[None].double(),
            synthesizer.reference_psd,
            coherence,
            synthesizer.band_uncertainty,
        )
        same_figures(answer.prediction, expected)
        assert answer.prediction.basis == ("model" if coherence is None else "coherence")
    assert isinstance(found[0], Draft)
    assert set(found[0].times_ms) <= {"path_ratio", "generate", "reconstruct", "refine", "predict"}
    assert all(item >= 0 for item in found[0].times_ms.values())


def same_figures(found: Prediction, expected: Prediction) -> None:
    assert found.basis == expected.basis
    for field in fields(expected):
        if field.name not in ("basis", "conditions") and getattr(expected, field.name) is not None:
            # Figures are compared in dB and in RMS, the filters' rounding to float32 between them.
            np.testing.assert_allclose(
                getattr(found, field.name), getattr(expected, field.name), rtol=3e-5, atol=1e-5
            )


def test_fault_fails_alone(model: Model) -> None:
    good = ear(6)
    nan = good.conditions[0].primary * np.float32(np.nan)
    faulty = [
        changed(good, primary=nan),
        good,
        changed(good, secondary=np.zeros(8, np.float32)),
        changed(good, primary=np.ones(DESIGN_N_FFT + 1, np.float32)),
        changed(good, primary=np.ones(N_BINS - 1, np.complex64)),
        changed(good, coherence=good.conditions[0].coherence * np.float32(np.nan)),
    ]
    answers = design_all(faulty, DesignOptions(), model)
    kinds = [InvalidPaths, Design, InvalidPaths, InvalidPaths, InvalidPaths, NonFiniteFilter]
    assert [type(answer) for answer in answers] == kinds
    assert [getattr(answer, "field", None) for answer in answers[2:5]] == ["secondary", "primary", "primary"]
    alone = designed(design_all([good], DesignOptions(), model)[0])
    assert relative_error(designed(answers[1]).taps, alone.taps) < 1e-6
    assert [type(item) for item in design_all(faulty[:1], DesignOptions(), model)] == [InvalidPaths]
