"""`prime-anc device` and the training of its generator."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from prime_anc.cli.__main__ import main
from prime_anc.method.conventions import PRIMARY_TAPS, SECONDARY_TAPS
from tests.model_store.test_devices import ears
from training.data import open_dataset
from training.train_device import write_index


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def files(folder: Path, tmp_path: Path) -> list[Path]:
    """Calibrations of four ears that passed, and one that did not."""
    found, known = [], json.loads((folder / "ear.json").read_text())
    for n, ear in enumerate(ears()[:5]):
        whole = {
            "primary": ear.primary[:PRIMARY_TAPS],
            "secondary": np.pad(ear.secondary, (0, SECONDARY_TAPS - 2048)),
        }
        paths = {name: {"impulse_response": path.tolist()} for name, path in whole.items()}
        document = known | paths | {"verdict": known["verdict"] | {"passed": n < 4}}
        found.append(tmp_path / f"{n}.json")
        found[-1].write_text(json.dumps(document))
    return found


def test_device_is_added_listed_and_removed(files: list[Path], tmp_path: Path) -> None:
    store = ("--store", tmp_path / "store")
    found = run("device", "add", "mine", *files[:4], *store)
    assert found.exit_code == 0, found.output
    assert "mine@1" in run("device", "list", *store).output
    refused = run("device", "add", "mine", files[4], *store)
    assert refused.exit_code == 2
    assert "no calibration that passed" in refused.output
    assert run("device", "train", "mine", *store).exit_code == 2
    assert run("device", "remove", "mine", *store).exit_code == 0
    assert "mine" not in run("device", "list", *store).output


def test_training_names_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "training.train_device", None)  # as without torch
    found = run("device", "train", "mine")
    assert found.exit_code == 2
    assert "prime-anc[training]" in found.output


def test_listeners_become_training_data(tmp_path: Path) -> None:
    write_index(tmp_path / "data", ears())
    found = open_dataset("index", tmp_path / "data")
    assert [pair.listener for pair in found.pairs] == ["001", "001", "013", "013", "023", "023"]
    np.testing.assert_allclose(found.pairs[0].primary, ears()[0].primary)
