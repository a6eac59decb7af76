"""The real command, for a few updates on simulated listeners: rows, tables, published checkpoints, resumption."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
import torch

from model_store.store import ModelStore
from synthesis.backends.reference import build_synthesizer
from tests.training.conftest import SCRIPT, command
from training.datasets.noise import simulated_noise
from training.datasets.simulated import simulate_listeners
from training.measurements import Measurements
from training.report import read_rows
from training.run_splits import main

pytestmark = pytest.mark.usefixtures("opened_once")

STATE_EVERY_UPDATES = 40
"""What is killed writes a state on the way, as a training does every 250 updates."""


def test_a_run_writes_rows_tables_figures_and_its_record(finished):
    folder, printed = finished.folder, finished.printed
    rows = read_rows(folder / "out")
    assert set(rows.method) == {"ratio_base_held_band", "wmmse", "prime-log"}
    own = rows[rows.method == "prime-log"]
    assert set(zip(own.k, own.profile.fillna(""), strict=True)) == {
        (0, ""), *((k, profile) for k in (1, 2, 3) for profile in ("paper", "fast")),
    }  # fmt: skip
    assert rows.listener.nunique() == 2
    # Both ears of two listeners; each design's start and its updates in both profiles.
    assert len(rows) == 4 * ((1 + 4 + 4) + 2 * (1 + 3 + 3))
    assert set(rows.paths) == {"estimated"}
    assert "SIMULATED" in printed
    assert "prime-log + GN(3)" in printed
    assert (folder / "out" / "tables.md").read_text().strip() in printed
    for picture in ("noise_reduction_per_band.png", "predicted_against_scored.png", "listeners/simulated-001.png"):
        assert (folder / "out" / picture).stat().st_size > 10_000
    times = pd.read_csv(folder / "out" / "core_time.csv")
    assert set(times.method) == set(rows.method)
    assert (times.core_ms > 0).all()
    record = json.loads((folder / "out" / "run.json").read_text())
    assert record["settings"]["simulated"]
    (start,) = record["starts"]
    assert start["environment"]["torch"] == torch.__version__
    assert set(rows.commit) == {start["environment"]["commit"]}


def test_the_published_checkpoint_names_its_support_and_scores(finished):
    folder, printed = finished.folder, finished.printed
    store = ModelStore(folder / "store", include_bundled=False)
    manifest = store.manifest("simulated-prime-log-split00-seed0")
    rows = read_rows(folder / "out")
    assert not set(manifest.support) & set(rows.listener)
    assert f"split 0: {', '.join(manifest.support)} in support\n" in printed
    assert f"- In support of split 0: {' '.join(manifest.support)}.\n" in printed
    assert manifest.support_traits is not None
    assert manifest.support_traits.n_ears == 2 * len(manifest.support)
    own = rows[(rows.method == "prime-log") & (rows.k == 1) & (rows.profile == "fast")]
    expected = own.groupby("listener").noise_reduction_db.mean().mean()
    held_out = manifest.scores.held_out["prime-log + GN(1)"]["noise_reduction_db"]
    assert held_out == pytest.approx(expected, abs=5e-4)  # the rows' digits
    assert set(own.checkpoint) == {"simulated-prime-log-split00-seed0@1"}
    assert set(own.digest) == {store.resolve("simulated-prime-log-split00-seed0").digest}


def test_the_published_checkpoint_makes_the_filters_that_were_scored(finished):
    """Loaded again, it repeats a row's prediction from the same estimates, to the row's digits."""
    folder = finished.folder
    rows = read_rows(folder / "out")
    row = rows[(rows.method == "prime-log") & (rows.k == 1) & (rows.profile == "fast")].iloc[0]
    dataset = simulate_listeners(23, 0)
    measurements = Measurements.calibrate(dataset, simulated_noise(), window=8192, conditions="original")
    index = next(i for i, pair in enumerate(dataset.pairs) if (pair.listener, pair.ear) == (row.listener, row.ear))
    synthesizer = build_synthesizer(ModelStore(folder / "store").load(row.checkpoint).parameters)
    with torch.no_grad():
        paths = measurements.paths([index])
        taps = synthesizer.design(paths, 1).taps
        prediction = synthesizer.predict(paths, taps, measurements.estimates.coherence[[index]].float())
    assert prediction.mean_noise_reduction_db.item() == pytest.approx(row.predicted_noise_reduction_db, abs=1e-3)


def test_started_again_it_repeats_nothing(finished, no_figures, capsys):
    folder = finished.folder
    done = folder / "out" / "rows" / "prime-log" / "split00-seed0.csv"
    before = done.stat().st_mtime_ns
    assert main(command(folder)) == 0
    assert "5 of 5 tasks were already finished" in capsys.readouterr().out
    assert done.stat().st_mtime_ns == before
    assert [each.version for each in ModelStore(folder / "store", include_bundled=False).list()] == [1]


def test_another_model_of_the_same_name_is_refused_before_any_work(finished, tmp_path, capsys):
    folder = finished.folder
    shutil.copytree(folder / "out", tmp_path / "out")
    name = "simulated-prime-log-split00-seed0"
    ModelStore(tmp_path / "store").publish(name, ModelStore(folder / "store").load(name))
    expected = ModelStore(folder / "store").resolve(name).digest
    assert main(command(tmp_path, "--methods", "prime-log,wmmse_fast")) == 2
    printed = capsys.readouterr()
    assert f"model {name}@1: {tmp_path / 'store'} holds sha256:" in printed.err
    assert expected in printed.err
    assert "prime-log/split00-seed0.csv" in printed.err
    assert printed.err.count("\n") == 1
    assert "rows;" not in printed.out


def test_another_setting_in_the_same_folder_is_refused(finished, capsys):
    folder = finished.folder
    assert main(command(folder, "--updates", "21")) == 2
    message = capsys.readouterr().err
    assert "holds a run with other settings" in message
    assert "updates: found 50, asked for 21" in message


KILLED = f"""
import sys
from training import run_splits, trainer

trainer.STATE_EVERY_UPDATES = {STATE_EVERY_UPDATES}
sys.exit(run_splits.main(sys.argv[1:]))
"""


def test_a_killed_run_goes_on_and_ends_as_an_unbroken_one(finished, no_figures, tmp_path, capsys):
    """SIGKILL after the first state; the second start goes on from there and finishes."""
    arguments = command(tmp_path, "--methods", "wmmse,prime-log")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parents[1])}
    state = tmp_path / "out" / "state" / "prime-log" / "split00-seed0.pt"
    with subprocess.Popen([sys.executable, "-c", KILLED, *arguments], env=environment) as first:
        deadline = time.monotonic() + 240
        while not state.exists() and first.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(first.pid, signal.SIGKILL)
    assert state.exists()
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "2 of 3 tasks were already finished" in printed
    assert f"goes on from update {STATE_EVERY_UPDATES}" in printed
    assert not state.exists()
    unbroken = finished.folder
    found, expected = (read_rows(each / "out").drop(columns=["digest", "commit"]) for each in (tmp_path, unbroken))
    expected = expected[expected.method.isin(["wmmse", "prime-log"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, expected, check_like=True)  # columns stand as their first rows came


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dataset", "pandar"], "no folder is given"),
        (["--dataset", "pandar", "--data", "/nonexistent"], "/nonexistent"),
        (["--dataset", "simulated", "--noise", "/nonexistent"], "/nonexistent"),
        (["--dataset", "simulated", "--split", "3", "--splits", "2"], "3 does not exist; use 0 to 1"),
        (["--dataset", "simulated", "--support", "23"], "found n_support = 23"),
        (["--dataset", "simulated", "--methods", "wmmse,primo"], "'primo' does not exist; use some of standard"),
        (["--dataset", "simulated", "--methods", ","], "--methods: ',' names none"),
        (["--dataset", "simulated", "--window", "7"], "window"),
        (["--dataset", "simulated", "--window", "4097"], "window: 4097"),
    ],
)
def test_a_mistaken_request_is_one_clear_line(tmp_path, capsys, options, message):
    assert main([*options, "--store", str(tmp_path / "store"), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_gpu_is_one_clear_line(tmp_path, capsys):
    assert main(command(tmp_path, "--device", "cuda")) == 2
    assert "sees no CUDA device" in capsys.readouterr().err


@pytest.mark.measured
def test_altering_the_true_paths_alone_leaves_the_filter_alone(measured_data):
    """On measured ears: other true paths, the same taps bit for bit; other estimates, other taps; other scores."""
    from dataclasses import replace

    from synthesis.generator import Generator
    from synthesis.generator_config import GeneratorConfig
    from synthesis.synthesizer import Synthesizer
    from training.datasets.noise import read_noise
    from training.datasets.pandar import read_pandar
    from training.evaluation import Updates, evaluate
    from training.methods import GeneratorDesign
    from training.scoring import TimeDomainScore

    dataset = read_pandar(measured_data)
    noise = read_noise(measured_data / "noise")
    measurements = Measurements.calibrate(
        replace(dataset, pairs=dataset.pairs[:2]), noise, window=8192, conditions="original"
    )
    generator = Generator(GeneratorConfig.prime_log()).eval()
    torch.nn.init.normal_(generator.head[-1].weight, std=0.1)
    synthesizer = Synthesizer(generator, measurements.reference_psd.float(), torch.zeros(2, 31))
    seen = []

    class Spied(GeneratorDesign):
        def design(self, paths):
            seen.append(paths)
            return super().design(paths)

    def rows_of(measurements):
        updates = (Updates("fast", (1,)),)
        method = Spied("prime-log", synthesizer)
        return evaluate(measurements, TimeDomainScore(noise), method, updates, [0, 1])[2:]

    rows = rows_of(measurements)
    other_truth = replace(
        measurements, pairs=tuple(replace(p, primary=p.primary[::-1].copy()) for p in measurements.pairs)
    )
    rows_truth = rows_of(other_truth)
    estimates = replace(measurements.estimates, secondary=measurements.estimates.secondary * 1.1)
    rows_estimates = rows_of(replace(measurements, estimates=estimates))
    with torch.no_grad():
        taps = [synthesizer.design(paths, 1).taps for paths in seen]
    assert torch.equal(taps[0], taps[1])
    assert not torch.equal(taps[0], taps[2])
    assert rows[0]["control_rms"] == rows_truth[0]["control_rms"] != rows_estimates[0]["control_rms"]
    assert rows[0]["noise_reduction_db"] != rows_truth[0]["noise_reduction_db"]
