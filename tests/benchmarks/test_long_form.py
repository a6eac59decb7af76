"""What every long form does besides its work: it counts, it ends when told to, it states a verdict."""

import argparse
import json
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmarks import long_form


@dataclass
class Outcome:
    """Of work on nothing."""

    done: Counter[int] = field(default_factory=Counter)
    mistakes: Counter[str] = field(default_factory=Counter)


def arguments(file: Path) -> tuple[str, ...]:
    return ("--device", "cpu", "--out", str(file), "--threads", "3")


@pytest.mark.parametrize(
    ("mistake", "told", "status"),
    [(None, None, 0), ("a mistake", None, 1), (None, signal.SIGTERM, 130), (None, signal.SIGINT, 130)],
)
def test_the_verdict_is_printed_and_written(
    mistake: str | None,
    told: signal.Signals | None,
    status: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome, before, file = Outcome(), signal.getsignal(signal.SIGTERM), tmp_path / "new" / "outcome.json"

    def work(_: argparse.Namespace, rest: Sequence[str]) -> None:
        assert list(rest) == ["--device", "cpu", "--threads", "3"]
        outcome.done[7] += 1
        if mistake:
            outcome.mistakes[mistake] += 1
        if told:
            signal.raise_signal(told)
            outcome.done[8] += 1  # is not reached

    assert long_form.main("nothing", argparse.ArgumentParser(), arguments(file), outcome, work) == status
    (line,) = capsys.readouterr().out.splitlines()
    verdict = json.loads(line)
    assert verdict["done"] == {"7": 1}
    assert verdict["mistakes"] == ({mistake: 1} if mistake else {})
    assert (verdict["held"], verdict["interrupted"]) == (status == 0, told is not None)
    written = json.loads(file.read_text())
    assert written["rows"] == [{key: value for key, value in verdict.items() if key != "benchmark"}]
    assert written["benchmark"] == verdict["benchmark"] == "nothing"
    assert signal.getsignal(signal.SIGTERM) == before


def test_signals_that_come_together_are_one(tmp_path: Path) -> None:
    """`timeout` sends two; the second must not disturb the end."""
    outcome = Outcome()

    def work(_: argparse.Namespace, rest: Sequence[str]) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            outcome.done[1] += 1

    file = tmp_path / "outcome.json"
    assert long_form.main("nothing", argparse.ArgumentParser(), arguments(file), outcome, work) == 130
    assert outcome.done == {1: 1}


def test_progress_says_how_many_are_done_and_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(long_form, "TELL_EVERY_S", 0.0)
    assert list(long_form.counted(3, "rounds")) == [0, 1, 2]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "2/3 rounds" in lines[-1]
    assert lines[-1].endswith("0:00 left")
    assert long_form.as_time(3725) == "62:05"
