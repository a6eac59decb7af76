"""What a backend is given."""

import numpy as np
import pytest

from synthesis.backends import Condition, DesignInput, DesignOptions, create_backend
from synthesis.errors import InvalidOption
from tests.model_store import cases


def test_an_input_is_the_first_of_its_conditions() -> None:
    primary, secondary, coherence = cases.ear(1)
    ear = DesignInput(
        primary, secondary, coherence, None, 12.0, others=(Condition(primary, secondary, label="loose"),)
    )
    assert ear.conditions == (ear, *ear.others)
    assert (ear.max_gain_db, ear.label, ear.conditions[1].label) == (12.0, "", "loose")
    assert DesignInput(primary, secondary).conditions[0].weight == 1


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_what_a_backend_cannot_do_is_that_ears_error(device: str) -> None:
    primary, secondary, _ = cases.ear(2)
    backend = create_backend(device, cases.parameters(1))
    several = DesignInput(primary, secondary, others=(Condition(primary, secondary),))
    late = DesignInput(primary, secondary, latency_samples=2.5)
    open_fit = DesignInput(primary, secondary, feedback=np.ones(8, np.float32))
    for ear, name in ((several, "conditions"), (late, "latency_samples"), (open_fit, "feedback")):
        (answer,) = backend.design([ear], DesignOptions())
        assert isinstance(answer, InvalidOption)
        assert answer.field == name
