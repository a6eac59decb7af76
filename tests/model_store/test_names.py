import re

import pytest

from model_store.errors import InvalidName
from model_store.names import check_name, is_name, parse_reference, version_of

FIRST = "abcdefghijklmnopqrstuvwxyz0123456789"


def test_name_holds_plain_characters_alone() -> None:
    for character in map(chr, range(0x3000)):
        assert is_name(character) == (character in FIRST)
        assert is_name("a" + character) == (character in FIRST + "_-")
    assert (is_name("a" * 64), is_name("a" * 65)) == (True, False)


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
