"""Files from the field with known answers, in the folder named by PRIME_CASES."""

import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from scipy.signal import freqz

from prime_anc.cli.__main__ import main

Command = Callable[..., Result]


@pytest.fixture(scope="session")
def cases() -> Path:
    """Folder of the cases; without it the test is skipped."""
    named = os.environ.get("PRIME_CASES")
    if not named:
        pytest.skip("no cases from the field: PRIME_CASES is not set")
    folder = Path(named)
    if not folder.is_dir():
        pytest.skip(f"no cases from the field: PRIME_CASES is {named!r}, which is not a folder")
    return folder


@pytest.fixture(scope="session")
def score(cases: Path) -> ModuleType:
    """The scores that come with the cases and import nothing of the project: `Truth(P, S, rate).nr(taps, rate)`."""
    specification = importlib.util.spec_from_file_location("score", cases / "score.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    # Its sum over taps and frequencies takes seconds a response.
    module.dtft = lambda taps, rate, frequencies: freqz(taps, worN=frequencies, fs=rate)[1]
    return module


@pytest.fixture
def in_case(cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Command]:
    """`in_case("14")` copies the case's files to a folder, enters it and returns what runs `prime-anc` there."""

    def enter(number: str) -> Command:
        (source,) = cases.glob(f"{number}_*")
        for file in source.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        monkeypatch.chdir(tmp_path)
        return lambda *arguments: CliRunner().invoke(main, [str(argument) for argument in arguments])

    return enter


def designed(run: Command, *arguments: object) -> dict[str, Any]:
    """The answer of `prime-anc design`, which must succeed."""
    found = run("design", *arguments, "-o", "out.json")
    assert found.exit_code == 0, found.output
    answer: dict[str, Any] = json.loads(Path("out.json").read_text())
    return answer


def reached_db(truth: Any, answer: dict[str, Any]) -> np.ndarray:
    """Noise reduction per band that a design reaches on the true paths."""
    bands: np.ndarray = truth.nr(np.array(answer["fir"]), 48_000)[1]
    return bands


def stored(file: str) -> np.ndarray:
    """The response in an .npz file beside its sample rate."""
    with np.load(file) as loaded:
        return next(np.squeeze(loaded[name]) for name in loaded.files if loaded[name].size > 1)
