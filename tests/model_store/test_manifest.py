import pytest
from pydantic import ValidationError

from model_store.errors import InvalidName
from model_store.manifest import Scores, check_name, parse_reference
from tests.model_store.cases import manifest

NO_NAMES = ("", ".x", "../x", "a/b", "a\\b", "A", "é", "a.b", "_a", "a@1", "٣", "a\n", "a" * 65)
NO_VERSIONS = ("", "0", "01", "+1", "1@2", "٣", "1000000000", "1\n")


def test_odd_name_or_version_is_rejected() -> None:
    """None could leave the store's folder."""
    for name in NO_NAMES:
        with pytest.raises(InvalidName, match=r"^model name: found .* expected"):
            check_name(name)
    for version in NO_VERSIONS:
        with pytest.raises(InvalidName, match="a whole number from 1 to 999999999"):
            parse_reference(f"ears@{version}")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "../ears"),
        ("support", ()),
        ("scores", {"held_out": {"k=0": {"noise_reduction_db": float("nan")}}}),
    ],
)
def test_bad_field_is_named(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        manifest(**{field: value})


def test_score_falls_back_to_split_mean() -> None:
    table = {"prime-log": {"noise_reduction_db": 22.0}, "prime-log + GN(1)": {"noise_reduction_db": 23.0}}
    other = {"k=0": {"noise_reduction_db": 20.0}, "k=1": {"control_rms": 0.1}, "wmmse": {"noise_reduction_db": 9.0}}
    assert Scores(held_out=table).noise_reduction_db("prime-log", 1) == 23.0
    assert Scores(held_out=other).noise_reduction_db("prime-log", 0) == 20.0
    assert Scores(held_out=other).noise_reduction_db("prime-log", 1) is None
    both = Scores(split_models={"a": table, "b": other}, in_support=table)
    assert both.noise_reduction_db("prime-log", 0) == 21.0
    assert both.noise_reduction_db("prime-log", 1) == 23.0
    assert Scores(in_support=table).noise_reduction_db("prime-log", 0) is None  # of ears that it has seen
