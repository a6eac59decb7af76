import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_store.errors import InvalidName
from model_store.names import MAX_VERSION, check_name, is_name, parse_reference, version_of

RULE = r"[a-z0-9][a-z0-9_-]{0,63}"
names = st.from_regex(RULE, fullmatch=True)
versions = st.integers(1, MAX_VERSION)


@given(st.text())
def test_any_other_text_is_rejected(text: str) -> None:
    # An oracle of its own: the characters one by one, not the pattern.
    first, rest = "abcdefghijklmnopqrstuvwxyz0123456789", "abcdefghijklmnopqrstuvwxyz0123456789_-"
    allowed = 1 <= len(text) <= 64 and text[0] in first and all(character in rest for character in text)
    assert is_name(text) == allowed


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "/etc", "a\\b", "A", "é", "a.b", "-a", "_a", "a\n", "a\0", "a b", "a" * 65, "٣"],
)
def test_what_could_leave_folder_is_no_name(name: str) -> None:
    with pytest.raises(InvalidName, match=re.escape("expected [a-z0-9][a-z0-9_-]{0,63}")):
        check_name(name)


@pytest.mark.parametrize(
    "version", ["", "0", "01", "-1", "+1", "1.0", "1e3", " 1", "1\n", "1@2", "latest", "٣", "9" * 10]
)
def test_version_is_plain_whole_number(version: str) -> None:
    assert version_of(version) is None
    with pytest.raises(InvalidName, match="expected a whole number from 1 to 999999999"):
        parse_reference(f"ears@{version}")
