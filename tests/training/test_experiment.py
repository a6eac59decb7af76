"""The real command, for a few updates on simulated listeners: rows, tables, published models, resumption."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from model_store.store import ModelStore
from prime_anc.method.design import design
from prime_anc.method.types import DesignOptions, Model, Problem
from tests.training.conftest import QUICK, command
from training import data as data_module
from training import trainer
from training.baselines.output_controls import OUTPUT_CONTROLS
from training.config import Configuration
from training.data import Data, open_data
from training.experiment import Task, list_tasks, run_task, score_method, support_of
from training.methods import (
    GROUPS,
    METHODS,
    Designed,
    Served,
    chosen_methods,
    measured_paths,
    resolved_profile,
    timed,
)
from training.rows import RunFolder, by_split, read_rows
from training.run_splits import main, parse
from training.scoring import TimeDomainScore


def test_run_writes_rows_tables_and_record(finished):
    out, printed = finished.folder / "out", finished.printed
    rows = by_split(read_rows(out))
    assert set(rows.method) == {"ratio_base_held_band", "wmmse", "prime-log"}
    chosen = rows[rows.method == "prime-log"]
    assert set(zip(chosen.k, chosen.profile, strict=True)) == {
        (0, ""), *((k, profile) for k in (1, 2, 3) for profile in ("paper", "fast")),
    }  # fmt: skip
    # Both ears of two listeners; each design's start and its updates in both profiles.
    assert len(rows) == 4 * ((1 + 4 + 4) + 2 * (1 + 3 + 3))
    assert set(rows.paths) == {"estimated"}
    assert "SIMULATED" in printed
    assert "prime-log + GN(3)" in printed
    assert (out / "tables.md").read_text().strip() in printed
    assert len([picture for picture in out.glob("*.png") if picture.stat().st_size > 10_000]) == 2
    record = json.loads((out / "run.json").read_text())
    assert record["settings"]["simulated"]
    (start,) = record["starts"]
    assert set(rows.commit) == {start["environment"]["commit"]}
    assert set(rows.device) == {start["environment"]["device"]}


def test_published_model_makes_scored_filters(finished):
    """Loaded again, it repeats a row's prediction from the same estimates; its manifest has the rows' means."""
    store, rows = ModelStore(finished.folder / "store", include_bundled=False), read_rows(finished.folder / "out")
    chosen = rows[(rows.method == "prime-log") & (rows.k == 1) & (rows.profile == "fast")]
    reference = chosen.checkpoint.iloc[0]
    manifest = store.manifest(reference)
    assert not set(manifest.support) & set(rows.listener)
    expected = chosen.groupby("listener").noise_reduction_db.mean().mean()
    held_out = manifest.scores.held_out["prime-log + GN(1)"]["noise_reduction_db"]
    assert held_out == pytest.approx(expected, abs=1e-3)  # the rows' digits
    assert set(chosen.digest) == {store.resolve(reference).digest}
    measurements = open_data(parse(command(finished.folder))).everybody.support
    row = chosen.iloc[0]
    index = [(pair.listener, pair.ear) for pair in measurements.pairs].index((row.listener, row.ear))
    model = Model.on("cpu", store.load(reference).parameters)
    problem = Problem((measured_paths(measurements, index),))
    made = design(problem, DesignOptions("prime", 1), model)
    assert made.prediction.mean_noise_reduction_db == pytest.approx(row.predicted_noise_reduction_db, abs=0.05)


def test_other_settings_in_folder_are_rejected(finished, capsys):
    assert main(command(finished.folder, "--updates", "21")) == 2
    assert "updates: found 12, requested 21" in capsys.readouterr().err


@pytest.mark.usefixtures("no_figures")
def test_interrupted_run_resumes_from_state(finished, tmp_path, capsys, monkeypatch):
    """The second start goes on from the first state and ends as an unbroken run."""
    monkeypatch.setattr(trainer, "STATE_EVERY_UPDATES", 5)
    arguments, step = command(tmp_path, "--methods", "wmmse,prime-log"), trainer.Trainer.train_step

    def interrupted_step(self):
        if self.update == 7:
            raise KeyboardInterrupt
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "train_step", interrupted_step)
        assert main(arguments) == 130
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "2 of 3 tasks were already finished" in printed
    assert "continues from update 5" in printed
    assert not (tmp_path / "out" / "state" / "prime-log" / "split00-seed0.pt").exists()
    assert [item.version for item in ModelStore(tmp_path / "store", include_bundled=False).list()] == [1]
    varying = ["digest", "commit", "core_ms", "device"]
    found, expected = (read_rows(item / "out").drop(columns=varying) for item in (tmp_path, finished.folder))
    expected = expected[expected.method.isin(["wmmse", "prime-log"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, expected, check_like=True)


def test_pickled_task_gives_same_rows(finished, tmp_path):
    """Joblib and Ray send tasks to other processes."""
    given = parse(command(tmp_path))
    data = open_data(given)
    (task, *_) = list_tasks(data, ("wmmse",), data.splits)
    work, *arguments = pickle.loads(pickle.dumps((run_task, given, task)))
    work(*arguments)
    found, expected = (RunFolder(folder / "out").read([task.name]) for folder in (tmp_path, finished.folder))
    assert found.noise_reduction_db.tolist() == expected.noise_reduction_db.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dataset", "pandar"], "no folder is given"),
        (["--dataset", "simulated", "--split", "3", "--splits", "2"], "3 does not exist; use 0 to 1"),
        (["--dataset", "simulated", "--methods", "wmmse,primo"], "'primo' does not exist; use some of standard"),
        (
            ["--dataset", "simulated", "--calibration", "prior", "--methods", "weighted_fxlms"],
            "weighted_fxlms: only by person",
        ),
    ],
)
def test_mistaken_request_is_one_line(tmp_path, capsys, options, message):
    assert main([*options, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_file_fills_options_that_command_line_lacks(tmp_path):
    (tmp_path / "options.toml").write_text('dataset = "simulated"\nupdates = 3\nseeds = 2')
    configuration = parse(["--config", str(tmp_path / "options.toml"), "--out", str(tmp_path), "--seeds", "4"])
    assert (configuration.updates, configuration.seeds) == (3, 4)


def test_methods_keep_order_and_bring_generator():
    assert chosen_methods("wmmse, ratio_base_full_band,wmmse") == ("ratio_base_full_band", "wmmse")
    assert chosen_methods("all") == tuple(METHODS)
    assert chosen_methods("prime_shuffled_phase") == ("prime", "prime_shuffled_phase")
    assert not set(GROUPS) & set(METHODS)


def test_tasks_of_untrained_methods_are_listeners(tmp_path):
    """A listener's rows serve every split, and its predictions know everybody else."""
    data = Data(Configuration.load({"dataset": "simulated", "out": tmp_path, "quick": True, "splits": 2}))
    tasks = list_tasks(data, ("wmmse", "wmmse_shared", "prime-log"), data.splits)
    assert [task.name for task in tasks[-3:-1]] == ["wmmse_shared/split01", "prime-log/split00-seed0"]
    listeners = [task.listener for task in tasks if task.method == "wmmse"]
    assert sorted(listeners) == sorted({name for split in data.splits for name in data.queries(split)})
    assert listeners[0] not in support_of(data, tasks[0]).listeners


def test_updates_by_torch_are_cores(measurements, tmp_path):
    """A method outside the service gets the same updates as the service's."""
    data = Data(Configuration.load({"dataset": "simulated", "out": tmp_path, "quick": True}))
    support = support_of(data, Task("fir_wiener", listener=data.dataset.listeners[0]))
    served = METHODS["fir_wiener"].fit(support)
    start, *_ = served.filters(support.measurements, 0, ())

    class Given:
        def design(self, paths):
            return type("Filter", (), {"taps": start.taps[None]})

    updates = (("paper", 1), ("paper", 3))
    chosen, core = (
        list(item.filters(support.measurements, 0, updates))
        for item in (Designed(Given(), torch.device("cpu")), served)
    )
    for one, other in zip(chosen, core, strict=True):
        assert (one.k, one.profile) == (other.k, other.profile)
        assert torch.linalg.norm(one.taps - other.taps) < 2e-3 * torch.linalg.norm(other.taps)


def test_scores_see_true_paths_and_designs_do_not(measurements, tmp_path):
    """Other true paths: the same filter, another score. Other estimates: another filter."""
    data = Data(Configuration.load({"dataset": "simulated", "out": tmp_path, "quick": True}))
    support = support_of(data, Task("wmmse", listener=data.dataset.listeners[0]))
    designer, score = Served(support.untrained(), "wmmse"), TimeDomainScore(measurements.noise)

    def row(measured):
        listener = measured.dataset.listeners[:1]
        return next(iter(score_method(measured, score, "wmmse", designer, support, listener, {})))

    other_truth = tuple(replace(pair, primary=pair.primary[::-1].copy()) for pair in measurements.pairs)
    estimates = replace(measurements.estimates, secondary=1.1 * measurements.estimates.secondary)
    plain, truth = row(measurements), row(replace(measurements, pairs=other_truth))
    changed = row(replace(measurements, estimates=estimates))
    assert plain["control_rms"] == truth["control_rms"] != changed["control_rms"]
    assert plain["noise_reduction_db"] != truth["noise_reduction_db"]


def test_every_untrained_method_scores_listener(tmp_path, monkeypatch):
    """One ear of one listener; the long ones in few steps."""
    monkeypatch.setattr("training.baselines.iterative_fir.N_STEPS", 8)
    monkeypatch.setattr("training.baselines.adaptive.VALIDATION_SAMPLES", 48_000)
    data = Data(Configuration.load({"dataset": "simulated", "out": tmp_path, "quick": True}))
    measurements = data.everybody.support
    one = replace(measurements, pairs=measurements.pairs[:1], estimates=measurements.estimates.at([0]))
    listener = one.pairs[0].listener
    slow = {"fxlms", "fxnlms", "weighted_fxlms"}  # tested by themselves
    for name in set(GROUPS["untrained"]) - slow:
        support = support_of(data, Task(name, listener=listener))
        rows = list(
            score_method(one, data.everybody.score, name, METHODS[name].fit(support), support, (listener,), {})
        )
        assert len(rows) == 1 + len(METHODS[name].updates), name
        assert np.isfinite([row["noise_reduction_db"] for row in rows]).all(), name


@pytest.mark.usefixtures("no_figures")
def test_protocol_by_recording_holds_out_both(monkeypatch, tmp_path, capsys):
    """White, pink, recordings together and alone, an airplane: of each, two ears and four designs."""
    for name, value in (("SNRS_DB", (None,)), ("N_SYNTHETIC", 1), ("QUICK_QUERIES", 1)):
        monkeypatch.setattr(data_module, name, value)
    options = "--protocol", "by-recording", "--methods", "prime-log", "--updates", "2", "--calibration", "paper"
    assert main(command(tmp_path, *options)) == 0
    assert "probe pool" in capsys.readouterr().out
    rows = read_rows(tmp_path / "out")
    assert not set(rows.listener) & set(rows.support.iloc[0].split())
    assert not set(rows.probe) & set(rows.support_recordings.iloc[0].split())
    assert (rows.probe.nunique(), len(rows)) == (5, 2 * 5 * 4)
    (version,) = ModelStore(tmp_path / "store", include_bundled=False).list()
    assert version.name == "simulated-by-recording-prime-log-split00-seed0"


@pytest.mark.usefixtures("no_figures")
def test_every_trained_method_scores_split(tmp_path, monkeypatch, capsys):
    """In one update and one of a kind; methods made of the standard generator find it trained."""
    monkeypatch.setattr(data_module, "QUICK_QUERIES", 1)
    alike = {*OUTPUT_CONTROLS[1:], "wmmse_shared", "prime_no_interpolation", "prime-log"}
    chosen = {*GROUPS["fitted"], *GROUPS["generators"]}
    assert chosen == set(METHODS) - set(GROUPS["untrained"])
    chosen -= {*alike, "prime-log_no_interpolation"}
    options = *QUICK, "--out", str(tmp_path), "--methods", ",".join(chosen), "--updates", "1", "--support", "1"
    assert main(options) == 0
    rows = read_rows(tmp_path)
    assert set(rows.method) == chosen
    assert np.isfinite(rows.noise_reduction_db).all()
    assert capsys.readouterr().out.count(": trains with") == len(chosen & set(GROUPS["generators"])) == 1


def test_time_and_profile_are_chosen(monkeypatch):
    """The median of three calls, unless one is long; long windows are refined with `fine`."""
    monkeypatch.setattr("training.methods.N_CALLS", 3)
    times_ms = iter([5.0, 1.0, 2.0, 4000.0])
    call = lambda: (torch.zeros(1), next(times_ms))  # noqa: E731
    assert [timed(call)[1], timed(call)[1]] == [2.0, 4000.0]
    assert [resolved_profile("fast", n) for n in (1, 8192, 8193)] == ["fast", "fast", "fine"]
    assert resolved_profile("paper", 65_536) == "paper"
