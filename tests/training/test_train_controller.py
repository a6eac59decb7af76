"""A controller for all listeners is published by one command and runs beside filters of another."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from model_store.store import ModelStore
from prime_anc.cli.__main__ import main as prime_anc
from tests.data.six_ears import FILE
from training.train_controller import main


def run(*arguments: object) -> str:
    done = CliRunner().invoke(prime_anc, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_published_controller_runs_beside_filter(measured_data: Path, tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "store"))
    data = ("--dataset", "pandar", "--data", str(measured_data), "--model", "bose-qc20")
    chip = ("--n-sections", "2", "--number-format", "q5.27", "--latency-us", "20")
    assert main(["everybody", *data, *store, *chip]) == 0
    published = ModelStore(tmp_path / "store").controller("everybody")
    assert (len(published.sos), published.number_format, published.latency_us) == (2, "q5.27", 20)
    assert published.device == "Bose QC20"
    assert {"person-13/left", "person-13/left, pressed"} <= published.plants.keys()
    with np.load(FILE) as stored:
        np.savez(
            tmp_path / "ear.npz", secondary=stored["013"][:, 0], primary=stored["013"][:, 4], sample_rate=48_000
        )
    made, named = tmp_path / "filter.json", ("--controller", "everybody")
    run("design", tmp_path / "ear.npz", *named, *store, "-o", made)
    prediction = json.loads(made.read_text())["prediction"]
    assert min(prediction["feedback_noise_reduction_db"][2:5]) > 3
    evaluated = json.loads(run("evaluate", made, tmp_path / "ear.npz", *store, "--json"))
    assert evaluated["prediction"]["mean_noise_reduction_db"] == pytest.approx(
        prediction["mean_noise_reduction_db"], abs=0.05
    )


def test_model_without_listeners_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["everybody", "--store", str(tmp_path)]) == 2
    assert "generic is no device with listeners" in capsys.readouterr().err
