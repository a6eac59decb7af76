"""The real command, for a few updates on simulated listeners: rows, tables, published checkpoints, resumption."""

import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from model_store.store import ModelStore
from synthesis.paths import AcousticPaths
from training import ceiling_study, correction_study, limit_study, packed_run, publish_default
from training.datasets.noise import simulated_noise
from training.datasets.simulated import simulate_listeners
from training.measurements import Measurements
from training.report import read_rows, split_means
from training.report.__main__ import main as report
from training.run_folder import RunError, RunFolder, read_record, under_way
from training.run_folder import read_rows as read_rows_of_piece
from training.run_splits import main

pytestmark = pytest.mark.usefixtures("opened_once")

SCRIPT = Path(__file__).parents[2] / "training" / "run_splits.py"
UPDATES = "60"
STATE_EVERY_UPDATES = 40
"""What is killed writes a state on the way, as a training does every 250 updates."""

QUICK = ["--dataset", "simulated", "--generator", "prime-log", "--quick"]


def command(folder, *options):
    return [*QUICK, "--store", str(folder / "store"), "--out", str(folder / "out"), *options]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A quick run of the real script in a process of its own."""
    folder = tmp_path_factory.mktemp("quick")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *command(folder, "--updates", UPDATES)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_a_run_writes_rows_tables_figures_and_its_record(finished):
    folder, printed = finished
    rows = read_rows(folder / "out")
    assert set(rows.method) == {
        "ratio_base_full_band", "ratio_base_held_band", "fir_wiener", "projected_ratio", "wmmse", "prime-log",
    }  # fmt: skip
    own = rows[rows.method == "prime-log"]
    assert set(zip(own.k, own.profile.fillna(""), strict=True)) == {
        (0, ""), *((k, profile) for k in (1, 2, 3) for profile in ("paper", "fast")),
    }  # fmt: skip
    assert rows.listener.nunique() == 2
    # Both ears of two listeners; each design's start and its updates in both profiles.
    assert len(rows) == 4 * (2 * (1 + 4 + 4) + 4 * (1 + 3 + 3))
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
    folder, printed = finished
    store = ModelStore(folder / "store", include_bundled=False)
    manifest = store.manifest("simulated-prime-log-split00-seed0")
    rows = read_rows(folder / "out")
    assert not set(manifest.support) & set(rows.listener)
    assert f"split 0: {', '.join(manifest.support)} in support\n" in printed
    assert f"- In support of split 0: {' '.join(manifest.support)}.\n" in printed
    assert manifest.support_statistics is not None
    assert manifest.support_statistics.n_ears == 2 * len(manifest.support)
    own = rows[(rows.method == "prime-log") & (rows.k == 1) & (rows.profile == "fast")]
    expected = own.groupby("listener").noise_reduction_db.mean().mean()
    held_out = manifest.scores.held_out["prime-log + GN(1)"]["noise_reduction_db"]
    assert held_out == pytest.approx(expected, abs=5e-4)  # the rows' digits
    assert set(own.checkpoint) == {"simulated-prime-log-split00-seed0@1"}
    assert set(own.digest) == {store.resolve("simulated-prime-log-split00-seed0").digest}


def test_the_published_checkpoint_makes_the_filters_that_were_scored(finished):
    """Loaded again, it repeats a row's prediction from the same estimates, to the row's digits."""
    folder, _ = finished
    rows = read_rows(folder / "out")
    row = rows[(rows.method == "prime-log") & (rows.k == 1) & (rows.profile == "fast")].iloc[0]
    dataset = simulate_listeners(23, 0)
    measurements = Measurements.calibrate(dataset, simulated_noise(), window=8192, conditions="original")
    index = next(i for i, pair in enumerate(dataset.pairs) if (pair.listener, pair.ear) == (row.listener, row.ear))
    synthesizer = ModelStore(folder / "store").load(row.checkpoint).synthesizer()
    with torch.no_grad():
        paths = measurements.paths([index])
        taps = synthesizer.design(paths, 1).taps
        prediction = synthesizer.predict(paths, taps, measurements.estimates.coherence[[index]].float())
    assert prediction.mean_noise_reduction_db.item() == pytest.approx(row.predicted_noise_reduction_db, abs=1e-3)


def test_started_again_it_repeats_nothing(finished, undrawn, capsys):
    folder, _ = finished
    done = folder / "out" / "rows" / "prime-log" / "split00-seed0.csv"
    before = done.stat().st_mtime_ns
    assert main(command(folder, "--updates", UPDATES)) == 0
    assert "11 of 11 pieces of work were finished before" in capsys.readouterr().out
    assert done.stat().st_mtime_ns == before
    assert [each.version for each in ModelStore(folder / "store", include_bundled=False).list()] == [1]


def test_the_price_of_a_ceiling_is_measured_on_held_out_ears(finished, monkeypatch, capsys):
    folder, _ = finished
    monkeypatch.setattr(ceiling_study, "CEILINGS_DB", (6.0, 30.0))
    ceiling_study.main(["--run", str(folder / "out"), "--store", str(folder / "store")])
    rows = pd.read_csv(folder / "out" / "ceiling.csv")
    support = ModelStore(folder / "store").manifest("simulated-prime-log-split00-seed0").support
    assert not set(support) & set(rows.listener)
    assert len(rows) == rows.listener.nunique() * 2 * 2 * 3
    low, high = (rows[(rows.max_gain_db == limit) & (rows.k == 0)] for limit in (6.0, 30.0))
    assert low.reached_gain_db.max() < 7.5 < high.reached_gain_db.max()
    assert low.noise_reduction_db.mean() < high.noise_reduction_db.mean()
    assert (folder / "out" / "ceiling.png").stat().st_size > 10_000
    assert "max_gain_db" in capsys.readouterr().out


def test_refined_corrections_lower_the_objective_of_held_out_ears(finished, monkeypatch, capsys):
    folder, _ = finished
    monkeypatch.setattr(correction_study, "N_ITERATIONS", (2, 4))
    correction_study.main(["--run", str(folder / "out"), "--store", str(folder / "store"), "--split", "0"])
    rows = pd.read_csv(folder / "out" / "correction.csv")
    support = ModelStore(folder / "store").manifest("simulated-prime-log-split00-seed0").support
    assert not set(support) & set(rows.listener)
    by_ear = rows[rows.k == 0].pivot(index=["listener", "ear"], columns="n_iterations", values="objective")
    assert list(by_ear.columns) == [0, 2, 4]
    assert (by_ear.mean().diff()[[2, 4]] < 0).all()  # it is the ears' sum that is refined
    # An update of the taps lowers it further, from wherever it starts.
    updated = rows[rows.k == 1].pivot(index=["listener", "ear"], columns="n_iterations", values="objective")
    assert (updated < by_ear).all(axis=None)
    assert "objective" in capsys.readouterr().out


def test_what_updates_leave_and_the_estimate_withholds_is_measured_on_held_out_ears(finished, monkeypatch, capsys):
    folder, _ = finished
    monkeypatch.setattr(limit_study, "WINDOWS", (8192,))
    monkeypatch.setattr(limit_study, "N_TO_CONVERGE", 6)
    limit_study.main(["--run", str(folder / "out"), "--store", str(folder / "store"), "--split", "0"])
    rows = pd.read_csv(folder / "out" / "limit.csv", dtype={"estimate": str})
    support = ModelStore(folder / "store").manifest("simulated-prime-log-split00-seed0").support
    assert not set(support) & set(rows.listener)
    assert len(rows) == rows.listener.nunique() * 2 * 2 * 12  # ears, estimates, designs
    means = rows.groupby(["estimate", "method", "k", "n_points"], dropna=False).noise_reduction_db.mean()
    # An update knows nothing of what it is scored on but by the paths that it reads.
    finest = "converged, finest grid"
    assert means["true paths", finest, 6, 32_768] > means["8192", finest, 6, 32_768]
    assert means["8192", "converged", 6, 8192] > means["8192", "wmmse", 3, 32_768]
    assert means["8192", "prime-log", 1, 8192] > means["8192", "prime-log", 0].item()
    # The same ears, filters and true paths as the run's own rows, whose judge is the time domain.
    scored = read_rows(folder / "out")
    scored = scored[(scored.method == "prime-log") & (scored.k == 1) & (scored.profile == "fast")]
    ears = rows[(rows.estimate == "8192") & (rows.method == "prime-log") & (rows.k == 1) & (rows.n_points == 8192)]
    both = scored.merge(ears, on=["listener", "ear"], suffixes=("", "_spectral"))
    assert len(both) == len(scored)
    assert both.noise_reduction_db_spectral.to_numpy() == pytest.approx(both.noise_reduction_db.to_numpy(), abs=0.5)
    assert "converged" in capsys.readouterr().out


@pytest.mark.parametrize("study", [ceiling_study, correction_study, limit_study])
def test_a_study_of_what_the_run_is_not_of_is_one_clear_line(finished, tmp_path, capsys, study):
    folder, _ = finished

    def message(run, *options):
        with pytest.raises(SystemExit) as ended:
            study.main(["--run", str(run), "--store", str(folder / "store"), *options])
        assert ended.value.code == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    assert str(tmp_path / "nowhere") in message(tmp_path / "nowhere")
    assert "--split: found [99], expected some of those finished" in message(folder / "out", "--split", "99")
    shutil.copytree(folder / "out", tmp_path / "out")
    settings, starts = read_record(folder / "out" / "run.json")
    for option, key in (("--data", "data_fingerprint"), ("--noise", "noise_fingerprint")):
        RunFolder(tmp_path / "out").write_record(settings | {key: "another"}, starts)
        error = message(tmp_path / "out")
        assert f"{option}: found data of fingerprint {settings[key]}, expected the run's own, another" in error


@pytest.fixture(scope="module")
def packed(finished):
    """The quick run as one file."""
    folder, _ = finished
    assert packed_run.main(["pack", str(folder / "out"), str(folder / "run.json.xz")]) == 0
    return folder / "run.json.xz"


def test_a_default_that_cannot_be_made_is_one_clear_line(finished, tmp_path, capsys):
    folder, _ = finished
    nowhere = tmp_path / "nowhere"
    for run in (nowhere, folder / "out"):
        asked = [
            "--data",
            str(nowhere),
            "--noise",
            str(nowhere),
            "--run",
            str(run),
            "--store",
            str(tmp_path / "store"),
        ]
        assert publish_default.main(asked) == 2
        error = capsys.readouterr().err
        assert str(nowhere) in error
        assert error.count("\n") == 1
    assert not (tmp_path / "store").exists()


def test_a_packed_run_gives_the_same_report(finished, packed, undrawn, tmp_path, capsys):
    folder, _ = finished
    assert packed.stat().st_size < 40_000  # 116 rows of 60 columns
    assert str(folder) not in packed_run.read_packed(packed).model_dump_json()  # nor where that lay
    assert report([str(packed), str(tmp_path / "unpacked")]) == 0
    printed = capsys.readouterr().out
    expected = (folder / "out" / "tables.md").read_text().splitlines()
    found = (tmp_path / "unpacked" / "tables.md").read_text().splitlines()
    assert [line for line in found if "a page for each listener" not in line] == expected
    pd.testing.assert_frame_equal(read_rows(tmp_path / "unpacked"), read_rows(folder / "out"), check_like=True)
    assert report([str(packed)]) == 0
    assert capsys.readouterr().out == printed
    # What has been unpacked is a run like any other.
    assert packed_run.main(["pack", str(tmp_path / "unpacked"), str(tmp_path / "again.json.xz")]) == 0
    assert (tmp_path / "again.json.xz").read_bytes() == packed.read_bytes()


def test_a_run_goes_on_from_a_packed_one(finished, packed, undrawn, tmp_path, capsys):
    """On a machine that has neither the folder nor the models: only what was not finished is done."""
    folder, _ = finished
    more = ["--updates", UPDATES, "--methods", "standard,prime-log,wmmse_fast", "--from", str(packed)]
    assert main(command(tmp_path, *more)) == 0
    printed = capsys.readouterr().out
    assert "11 of 13 pieces of work were finished before" in printed
    assert "1 models of finished pieces are not in" in printed
    assert not (tmp_path / "store").exists()
    rows, before = read_rows(tmp_path / "out"), read_rows(folder / "out")
    assert len(rows) == len(before) + 4
    assert set(rows.method) - set(before.method) == {"wmmse_fast"}
    _, starts = read_record(tmp_path / "out" / "run.json")
    assert starts[:1] == packed_run.read_packed(packed).starts[:1]
    assert starts[0]["environment"] == read_record(folder / "out" / "run.json")[1][0]["environment"]
    assert starts[-1]["options"]["packed"] == str(packed)
    with np.load(tmp_path / "out" / "paths.npz") as arrays:
        assert {name.split("/")[2] for name in arrays.files} == {"primary", "secondary", "wmmse"}
    # With the models at hand they are checked and used.
    assert main([*QUICK, "--store", str(folder / "store"), "--out", str(tmp_path / "out"), *more]) == 0
    printed = capsys.readouterr().out
    assert "13 of 13 pieces of work were finished before" in printed
    assert "models of finished pieces" not in printed
    with np.load(tmp_path / "out" / "paths.npz") as arrays:
        assert any(name.endswith("/prime-log") for name in arrays.files)


def test_another_model_of_the_same_name_is_refused_before_any_work(finished, tmp_path, capsys):
    """By a run that goes on, and by a study."""
    folder, _ = finished
    shutil.copytree(folder / "out", tmp_path / "out")
    name = "simulated-prime-log-split00-seed0"
    ModelStore(tmp_path / "store").publish(name, ModelStore(folder / "store").load(name))
    expected = f"expected {ModelStore(folder / 'store').resolve(name).digest}"
    assert main(command(tmp_path, "--updates", UPDATES, "--methods", "prime-log,wmmse_fast")) == 2
    printed = capsys.readouterr()
    assert f"model {name}@1: found sha256:" in printed.err
    assert expected in printed.err
    assert str(tmp_path / "store") in printed.err
    assert "prime-log/split00-seed0.csv" in printed.err
    assert printed.err.count("\n") == 1
    assert "rows;" not in printed.out
    with pytest.raises(SystemExit) as ended:
        ceiling_study.main(["--run", str(tmp_path / "out"), "--store", str(tmp_path / "store")])
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err


def test_a_control_whose_generator_is_missing_is_refused_before_any_work(finished, tmp_path, capsys):
    """A packed run's rows suffice for all but what is made of its models."""
    folder, _ = finished
    shutil.copytree(folder / "out", tmp_path / "trained")
    run = RunFolder(tmp_path / "trained")
    own = run.rows(["prime-log/split00-seed0"]).assign(method="prime", checkpoint="simulated-prime-split00-seed0@1")
    run.write_rows("prime/split00-seed0", own)
    packed_run.pack(tmp_path / "trained", tmp_path / "file")
    more = ["--updates", UPDATES, "--methods", "wmmse_fast,prime_shuffled_phase", "--from", str(tmp_path / "file")]
    assert main(command(tmp_path, *more)) == 2
    printed = capsys.readouterr()
    assert "model simulated-prime-split00-seed0@1: found no such model in" in printed.err
    assert "out/rows/prime/split00-seed0.csv and start without --from" in printed.err
    assert "rows;" not in printed.out


def test_a_packed_run_of_other_settings_is_refused(packed, tmp_path, capsys):
    assert main(command(tmp_path, "--updates", "21", "--from", str(packed))) == 2
    message = capsys.readouterr().err
    assert "run.json.xz: holds a run with other settings" in message
    assert f"updates: found {UPDATES}, asked for 21" in message
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["run.lock"]
    RunFolder.open(tmp_path / "other", {"window": 4096}, {})
    assert packed_run.main(["unpack", str(packed), str(tmp_path / "other")]) == 2
    assert "other: holds a run with other settings" in capsys.readouterr().err
    assert not (tmp_path / "other" / "rows").exists()


def test_unpacking_adds_what_a_folder_lacks_and_keeps_what_it_has(tmp_path):
    run = RunFolder.open(tmp_path / "run", {"window": 4096}, {"commit": "first"})
    row = {"method": "wmmse", "listener": "a", "noise_reduction_db": 20.12349, "band_25_db": 1.26}
    run.finish("wmmse/a", [row])
    run.finish("prime/split00-seed0", [{"split": 0, "listener": "a", "profile": None, "control_rms": 0.0123456}])
    packed_run.pack(tmp_path / "run", tmp_path / "file")
    other = RunFolder.open(tmp_path / "other", {"window": 4096}, {"commit": "second"})
    other.finish("wmmse/a", [row | {"noise_reduction_db": 7.0}])
    packed_run.unpack(tmp_path / "file", tmp_path / "other")
    assert other.rows(["wmmse/a"]).noise_reduction_db.tolist() == [7.0]
    pd.testing.assert_frame_equal(other.rows(["prime/split00-seed0"]), run.rows(["prime/split00-seed0"]))
    assert read_record(tmp_path / "other" / "run.json")[1] == [{"commit": "second"}]
    packed_run.unpack(tmp_path / "file", tmp_path / "new")
    assert RunFolder(tmp_path / "new").rows(["wmmse/a"]).iloc[0].noise_reduction_db == 20.123
    assert RunFolder(tmp_path / "new").rows(["wmmse/a"]).iloc[0].band_25_db == 1.3
    assert RunFolder(tmp_path / "new").rows(["prime/split00-seed0"]).iloc[0].control_rms == 0.01235


def test_unpacking_a_smaller_run_keeps_the_splits_that_are_there(tmp_path):
    """And so does a later command that asks for fewer splits: an untrained design stays in all of them."""
    large = RunFolder.open(tmp_path / "large", {}, {})
    for listener in "abc":
        large.finish(f"wmmse/{listener}", [{"method": "wmmse", "listener": listener}])
    both = {0: ("a", "b"), 1: ("b", "c")}
    expected = large.collect(both)
    small = RunFolder.open(tmp_path / "small", {}, {})
    for listener in "ab":
        small.finish(f"wmmse/{listener}", [{"method": "wmmse", "listener": listener}])
    small.collect({0: ("a", "b")})
    packed_run.pack(tmp_path / "small", tmp_path / "file")
    packed_run.unpack(tmp_path / "file", tmp_path / "large")
    assert large.held_out() == both
    pd.testing.assert_frame_equal(large.collect({0: ("a", "b")}), expected)


def test_what_is_no_packed_run_is_one_clear_line(tmp_path, capsys):
    good = {"settings": {}, "starts": [], "held_out": {}, "core_times": None}

    def holding(method="wmmse", **columns):
        return lzma.compress(json.dumps(good | {"rows": {method: columns}}).encode())

    for content, message in (
        (b"not xz", "cannot be read as a packed run"),
        (lzma.compress(b"{}"), "cannot be read as a packed run"),
        (holding("..", piece=["x"], k=[0]), "found the piece '../x', expected METHOD/PIECE"),
        (holding(piece=[None, "a"], k=[0, 0]), "found the piece 'wmmse/None', expected METHOD/PIECE"),
        (holding(piece=["a", "b"], k=[0]), "wmmse: found 1 values of 'k' in 2 rows"),
        (holding(k=[0]), "wmmse: found no column 'piece' with rows in it"),
        (holding(piece=["a"], band_25_db=["loud"]), "wmmse: found text in 'band_25_db', expected numbers"),
        (lzma.compress(json.dumps(good | {"rows": {}}).encode()), "found no rows"),
    ):
        (tmp_path / "file").write_bytes(content)
        assert packed_run.main(["unpack", str(tmp_path / "file"), str(tmp_path / "run")]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        assert not (tmp_path / "run").exists()
    assert report([str(tmp_path / "file")]) == 2
    assert packed_run.main(["pack", str(tmp_path / "nowhere"), str(tmp_path / "file")]) == 2
    RunFolder.open(tmp_path / "empty", {}, {})
    capsys.readouterr()
    assert packed_run.main(["pack", str(tmp_path / "empty"), str(tmp_path / "file")]) == 2
    assert "found no finished piece" in capsys.readouterr().err


def test_another_setting_in_the_same_folder_is_refused(finished, capsys):
    folder, _ = finished
    assert main(command(folder, "--updates", "21")) == 2
    message = capsys.readouterr().err
    assert "holds a run with other settings" in message
    assert f"updates: found {UPDATES}, asked for 21" in message


KILLED = f"""
import sys
from training import run_splits, trainer

trainer.STATE_EVERY_UPDATES = {STATE_EVERY_UPDATES}
sys.exit(run_splits.main(sys.argv[1:]))
"""


def test_a_killed_run_goes_on_and_ends_as_an_unbroken_one(finished, undrawn, tmp_path, capsys):
    """SIGKILL after the first state; the second start goes on from there and finishes."""
    arguments = command(tmp_path, "--updates", UPDATES, "--methods", "wmmse,prime-log")
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
    assert "2 of 3 pieces of work were finished before" in printed
    assert f"goes on from update {STATE_EVERY_UPDATES}" in printed
    assert not state.exists()
    unbroken, _ = finished
    found, expected = (read_rows(each / "out").drop(columns="digest") for each in (tmp_path, unbroken))
    expected = expected[expected.method.isin(["wmmse", "prime-log"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, expected, check_like=True)  # columns stand as their first rows came


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dataset", "pandar"], "found no folder"),
        (["--dataset", "pandar", "--data", "/nonexistent"], "/nonexistent"),
        (["--dataset", "simulated", "--noise", "/nonexistent"], "/nonexistent"),
        (["--dataset", "simulated", "--split", "3", "--splits", "2"], "found 3, expected 0 to 1"),
        (["--dataset", "simulated", "--support", "23"], "found n_support = 23"),
        (["--dataset", "simulated", "--methods", "wmmse,primo"], "found 'primo', expected some of standard"),
        (["--dataset", "simulated", "--methods", ","], "--methods: found none in ','"),
        (["--dataset", "simulated", "--window", "7"], "window"),
        (["--dataset", "simulated", "--window", "4097"], "window: found 4097"),
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
    assert "found no CUDA device" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert main([*QUICK, "--store", str(tmp_path / "store"), "--out", str(tmp_path / "file" / "out")]) == 2
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_means_are_taken_within_listeners_first():
    """Two ears of one listener weigh as much as one ear of another."""
    rows = pd.DataFrame(
        {
            "method": "m",
            "k": 0,
            "split": [0, 0, 0, 1],
            "seed": 0,
            "listener": ["a", "a", "b", "a"],
            "noise_reduction_db": [10.0, 20.0, 30.0, 40.0],
        }
    )
    means = split_means(rows, ["noise_reduction_db"])
    assert means.noise_reduction_db.tolist() == [22.5, 40.0]


def test_a_run_folder_refuses_other_settings_and_keeps_its_record(tmp_path):
    RunFolder.open(tmp_path, {"window": 4096}, {})
    with pytest.raises(RunError, match="window: found 4096, asked for 8192"):
        RunFolder.open(tmp_path, {"window": 8192}, {})
    assert json.loads((tmp_path / "run.json").read_text()) == {"settings": {"window": 4096}, "starts": [{}]}
    recipe = {"layout": {"width": 64}, "training": {"n_updates": 20, "schedule": "constant"}}
    other = {"layout": {"width": 64}, "training": {"n_updates": 30}}
    RunFolder.open(tmp_path / "nested", {"generators": {"prime": recipe}}, {})
    with pytest.raises(RunError) as caught:
        RunFolder.open(tmp_path / "nested", {"generators": {"prime": other, "new": recipe}}, {})
    assert str(caught.value) == (
        f"{tmp_path / 'nested'}: holds a run with other settings (generators.new: found None, asked for a table; "
        "generators.prime.training.n_updates: found 20, asked for 30; "
        "generators.prime.training.schedule: found 'constant', asked for None); choose another"
    )
    RunFolder.open(tmp_path, {"window": 4096}, {"commit": "later"})
    assert read_record(tmp_path / "run.json") == ({"window": 4096}, [{}, {"commit": "later"}])
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunError, match=r"run\.json: cannot be read"):
        RunFolder.open(tmp_path, {"window": 4096}, {})


def test_all_that_is_finished_is_reported_whatever_the_last_command_asked_for(tmp_path):
    """An untrained design enters each split whose held-out listeners it has all designed for, and no other."""
    folder = RunFolder.open(tmp_path, {}, {})
    for listener in "abc":
        folder.finish(f"wmmse/{listener}", [{"method": "wmmse", "listener": listener}])
    folder.finish("fomaml/split01", [{"method": "fomaml", "listener": "a", "split": 1}])
    rows = folder.collect({0: ("a", "b"), 1: ("a", "c"), 2: ("c", "d")})
    found = sorted(rows[["method", "split", "listener"]].itertuples(index=False, name=None))
    assert found == [
        ("fomaml", 1, "a"),
        ("wmmse", 0, "a"), ("wmmse", 0, "b"), ("wmmse", 1, "a"), ("wmmse", 1, "c"),
    ]  # fmt: skip
    assert pd.read_csv(tmp_path / "cases.csv").shape == (5, len(rows.columns))


def test_a_second_run_in_a_folder_is_refused_while_one_is_under_way(tmp_path, capsys):
    out = tmp_path / "out"
    with under_way(out):
        assert main(command(tmp_path)) == 2
        assert capsys.readouterr().err == (
            f"run_splits: {out}: found a run under way in it, expected none; wait for its end, or stop it\n"
        )
        assert not (out / "run.json").exists()
    with under_way(out):
        pass


def test_an_unfinished_split_is_no_report(tmp_path):
    folder = RunFolder.open(tmp_path, {}, {})
    folder.finish("wmmse/a", [{"method": "wmmse", "listener": "a"}])
    with pytest.raises(RunError, match="found no method that is finished for a whole split"):
        folder.collect({0: ("a", "b")})


def test_a_torn_row_file_is_named(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(RunError, match=r"rows\.csv: cannot be read"):
        read_rows_of_piece(file)


@pytest.mark.measured
def test_altering_the_true_paths_alone_leaves_the_filter_alone(measured_data):
    """On measured ears: other true paths, the same taps bit for bit; other estimates, other taps; other scores."""
    from dataclasses import replace

    from synthesis.generator import Generator, GeneratorConfig
    from synthesis.synthesizer import Synthesizer
    from training.datasets.noise import read_noise
    from training.datasets.pandar import read_pandar
    from training.methods import GeneratorDesign
    from training.protocol import Refined, score_method
    from training.scoring import TimeDomainScore

    dataset = read_pandar(measured_data)
    noise = read_noise(measured_data / "noise")
    measurements = Measurements.calibrate(
        replace(dataset, pairs=dataset.pairs[:2]), noise, window=8192, conditions="original"
    )
    generator = Generator(GeneratorConfig.prime_log()).eval()
    torch.nn.init.normal_(generator.head[-1].weight, std=0.1)
    synthesizer = Synthesizer(generator, measurements.reference_psd.float(), torch.zeros(2, 31))
    seen: list[AcousticPaths] = []

    class Spied(GeneratorDesign):
        def design(self, paths):
            seen.append(paths)
            return super().design(paths)

    def rows_of(measurements):
        refined = (Refined("fast", (1,)),)
        method = Spied("prime-log", synthesizer)
        return score_method(measurements, TimeDomainScore(noise), method, refined, [0, 1], {})[2:]

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
