"""What a backend is given."""

from synthesis.backends import Condition, DesignInput
from tests.model_store import cases


def test_an_input_is_the_first_of_its_conditions() -> None:
    primary, secondary, coherence = cases.ear(1)
    ear = DesignInput(
        primary, secondary, coherence, None, 12.0, others=(Condition(primary, secondary, label="loose"),)
    )
    assert ear.conditions == (ear, *ear.others)
    assert (ear.max_gain_db, ear.label, ear.conditions[1].label) == (12.0, "", "loose")
    assert DesignInput(primary, secondary).conditions[0].weight == 1
