"""Domain errors: values are wrong, a field is named, no status code is known."""

import pytest

from synthesis.errors import InvalidOption, InvalidPaths, NonFiniteFilter, SynthesisError


@pytest.mark.parametrize("kind", [InvalidPaths, InvalidOption, NonFiniteFilter])
def test_each_is_a_value_error_that_may_name_its_field(kind: type[SynthesisError]) -> None:
    named = kind("primary: found 3 bins, expected 16385", field="primary")
    assert isinstance(named, ValueError)
    assert named.field == "primary"
    assert str(named) == "primary: found 3 bins, expected 16385"
    assert kind("no field").field is None
    assert not hasattr(named, "status")
