"""API keys from a file that may change or break at any time."""

import os
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from service.errors import HttpProblem
from service.keys import LOOK_EVERY_S, Keys
from tests.service.bodies import digest


class Clock:
    """A clock that the test turns."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def from_holder_of(key: str, scheme: str = "Bearer") -> Headers:
    headers = [(b"authorization", f"{scheme} {key}".encode())] if key else []
    return Headers(raw=headers)


def is_known(keys: Keys, key: str) -> bool:
    try:
        keys.require(from_holder_of(key))
        return True
    except HttpProblem as problem:
        return {"unauthorised": False}[problem.code]


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    """One key; an empty file has none."""
    file = tmp_path / "one"
    file.touch()
    assert not is_known(Keys(file), "anything")
    file.write_text(f"one:{digest('open sesame')}")
    return Keys(file)


def test_digest_is_no_key(keys: Keys) -> None:
    assert is_known(keys, "open sesame")
    for key in ("", "open", digest("open sesame"), "open sesame "[:-2]):
        assert not is_known(keys, key)
    with pytest.raises(HttpProblem) as refused:
        keys.require(from_holder_of("open sesame", scheme="Basic"))
    assert "open sesame" not in refused.value.detail


@pytest.mark.parametrize("others", ["Bearer other", "Bearer open sesame", "Basic b3Blbg=="])
def test_two_keys_are_rejected(keys: Keys, others: str) -> None:
    """A proxy may have checked the other key."""
    headers = [(b"authorization", item.encode()) for item in ("Bearer open sesame", others)]
    for sent in (headers, headers[::-1]):
        with pytest.raises(HttpProblem) as refused:
            keys.require(Headers(raw=sent))
        assert refused.value.code == "unauthorised"


def test_file_is_rotated_without_restart(tmp_path: Path) -> None:
    file, clock = tmp_path / "keys", Clock()
    file.write_text(f"# staff\n\nclinic-1:{digest('old')}\n")
    keys = Keys(file, clock)
    assert [is_known(keys, key) for key in ("old", "new")] == [True, False]
    file.write_text(f"clinic-1:{digest('old')}\nclinic-1 from May:{digest('new')}\n")
    clock.now_s += LOOK_EVERY_S
    assert [is_known(keys, key) for key in ("old", "new")] == [True, True]
    replacement = tmp_path / "next"
    replacement.write_text(f"clinic-1 from May:{digest('new')}\n")
    os.replace(replacement, file)
    clock.now_s += LOOK_EVERY_S
    assert [is_known(keys, key) for key in ("old", "new")] == [False, True]


@pytest.mark.parametrize("text", ["secret", f"a:{'A' * 64}", f":{'0' * 64}", f"a:{'0' * 65}"])
def test_malformed_line_fails_start_and_is_ignored_later(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    file, clock = tmp_path / "keys", Clock()
    file.write_text(text)
    with pytest.raises(ValueError, match="line 1"):
        Keys(file)
    file.write_text(f"bad:{digest('bad')}")
    keys = Keys(file, clock)
    file.write_text(f"{text}\ngood:{digest('good')}\n")
    clock.now_s += LOOK_EVERY_S
    assert [is_known(keys, key) for key in ("good", "bad")] == [True, False]
    assert "line 1" in caplog.text
    assert text not in caplog.text


def test_unreadable_file_keeps_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, clock = tmp_path / "keys", Clock()
    file.write_text(f"good:{digest('good')}")
    keys = Keys(file, clock)
    for breaking in (lambda: file.write_text("\n\n"), file.unlink):
        breaking()
        clock.now_s += LOOK_EVERY_S
        assert is_known(keys, "good")
        assert "remain valid" in caplog.text
        caplog.clear()


def test_irregular_file_is_rejected(tmp_path: Path) -> None:
    """A FIFO would keep the event loop waiting for somebody to write into it."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for file in (fifo, Path("/dev/zero"), tmp_path):
        with pytest.raises(ValueError, match=r"not a regular file|cannot be read"):
            Keys(file)
