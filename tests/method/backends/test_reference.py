"""The reference as a backend: a fault of one ear leaves the others as they are."""

import numpy as np
import pytest
import torch

from prime_anc.method.backends.reference import ReferenceBackend
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from prime_anc.method.design import design_all
from prime_anc.method.errors import InvalidPaths
from prime_anc.method.types import Design, DesignOptions, Model, Paths, Problem
from tests.method.cases import relative_error
from tests.model_store import cases
from tests.problems import changed


@pytest.fixture(scope="module")
def model() -> Model:
    """Random weights, in float64."""
    parameters = cases.parameters(1)
    return Model(parameters, ReferenceBackend(parameters, torch.float64))


def ear(seed: int) -> Problem:
    primary, secondary, coherence = cases.ear(seed)
    return Problem((Paths(primary, secondary, coherence=coherence),))


def designed(answer: object) -> Design:
    assert isinstance(answer, Design)
    return answer


def test_fault_fails_alone(model: Model) -> None:
    good = ear(6)
    nan = good.conditions[0].primary * np.float32(np.nan)
    faulty = [
        changed(good, primary=nan),
        good,
        changed(good, secondary=np.zeros(8, np.float32)),
        changed(good, primary=np.ones(DESIGN_N_FFT + 1, np.float32)),
        changed(good, primary=np.ones(N_BINS - 1, np.complex64)),
    ]
    answers = design_all(faulty, DesignOptions(), model)
    kinds = [InvalidPaths, Design, InvalidPaths, InvalidPaths, InvalidPaths]
    assert [type(answer) for answer in answers] == kinds
    assert [getattr(answer, "field", None) for answer in answers[2:5]] == ["secondary", "primary", "primary"]
    alone = designed(design_all([good], DesignOptions(), model)[0])
    assert relative_error(designed(answers[1]).taps, alone.taps) < 1e-6
    assert [type(item) for item in design_all(faulty[:1], DesignOptions(), model)] == [InvalidPaths]
