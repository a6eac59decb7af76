"""Long work ends between two steps once its caller wants no more of it."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from prime_anc.hardware.realise import Target, realise
from prime_anc.hardware.residual_power import PathSpectra
from prime_anc.measure.verify import StateTake, verify
from prime_anc.method.ceiling import keep_margins
from prime_anc.method.design import design_all
from prime_anc.method.errors import Interrupted, check_interruption, interruptible
from prime_anc.method.methods import spectrum
from prime_anc.method.posing import pose
from prime_anc.method.types import DesignOptions, Model, Problem
from tests.service import models

PATHS = models.ear(1)
TAPS = np.random.default_rng(0).standard_normal(2048).astype(np.float32) / 100
LOUD = np.float32(100) * TAPS[:64]


def realised(target: Target) -> object:
    paths = PathSpectra(spectrum(PATHS.primary), spectrum(PATHS.secondary), 1.0)
    return realise([paths], np.ones(16_385), target)


def verified() -> object:
    x, e = np.random.default_rng(1).standard_normal((2, 40_000))
    takes = [StateTake(is_on, x, e) for is_on in (False, True, True)]
    return verify(takes, TAPS, PATHS.primary, PATHS.secondary, None)


def margins_kept() -> object:
    model = Model.on("cpu", models.checkpoint(1).parameters)
    posed = pose(Problem((replace(PATHS, feedback=LOUD),)), model)
    return keep_margins(posed, TAPS, np.full(16_385, 30.0), model.core)


def each_left_out() -> object:
    """A design for three conditions with `leave_one_out`."""
    problem = Problem(tuple(models.ear(seed) for seed in (1, 2, 3)))
    backend = Model.on("cpu", models.checkpoint(1).parameters)
    (found,) = design_all([problem], DesignOptions(leave_one_out=True, n_conditions=3), backend)
    if isinstance(found, Interrupted):
        raise found
    return found


WORK: dict[str, Callable[[], object]] = {
    "sections": lambda: realised(Target(n_sections=2)),
    "taps": lambda: realised(Target("fir", n_taps=64)),
    "verification": verified,
    "margins": margins_kept,
    "left out": each_left_out,
}


@pytest.mark.parametrize("name", WORK)
def test_long_work_is_interrupted(name: str) -> None:
    n_checks = 0

    def third_time() -> None:
        nonlocal n_checks
        n_checks += 1
        if n_checks == 3:
            raise Interrupted("enough")

    with pytest.raises(Interrupted), interruptible(third_time):
        WORK[name]()
    assert n_checks == 3
    check_interruption()  # outside, nobody asks
