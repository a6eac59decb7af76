"""What few listeners teach to others: sides that share nobody, and trainings that go on from each other."""

import pytest

from training import sharing_study
from training.datasets.noise import simulated_noise
from training.datasets.simulated import simulate_listeners
from training.measurements import Measurements


@pytest.fixture(scope="module")
def measurements():
    return Measurements.calibrate(simulate_listeners(3, 0), simulated_noise(0), window=8192, conditions="original")


def test_each_side_is_scored_apart_and_longer_trainings_go_on(measurements, tmp_path):
    names = ["wmmse_shared", "e2e_cfg_tokens", "e2e_cfg"]
    in_steps = list(sharing_study.study(measurements, names, [1], [1, 2], 0, tmp_path / "one"))
    at_once = list(sharing_study.study(measurements, names, [1], [2], 0, tmp_path / "other"))
    assert [(row["method"], row["n_updates"], row["side"]) for row in in_steps] == [
        (method, n_updates, side)
        for method, n_updates in (
            ("wmmse_shared", 0),
            ("e2e_cfg_tokens", 1),
            ("e2e_cfg_tokens", 2),
            ("e2e_cfg", 1),
            ("e2e_cfg", 2),
        )
        for side in ("support", "held out")
    ]
    # One filter for two ears of one listener suits them better than those of two others.
    assert in_steps[0]["noise_reduction_db"] > in_steps[1]["noise_reduction_db"] + 1
    for stepped, straight in zip(in_steps[-2:], at_once[-2:], strict=True):
        assert stepped["noise_reduction_db"] == pytest.approx(straight["noise_reduction_db"], abs=1e-6)


def test_a_learned_phase_is_also_scored_as_if_it_were_none(measurements, tmp_path):
    rows = list(sharing_study.study(measurements, ["skip_mp_phase"], [1], [3], 0, tmp_path))
    assert [(row["method"], row["side"]) for row in rows] == [
        (method, side)
        for method in ("skip_mp_phase", "skip_mp_phase, phase zero")
        for side in ("support", "held out")
    ]
    with_phase, without = rows[0]["noise_reduction_db"], rows[2]["noise_reduction_db"]
    assert with_phase != without  # three updates have moved the phase, by little
    assert with_phase == pytest.approx(without, abs=0.5)
