"""`python -m benchmarks core` in a tiny form: every designer, its stages, its quality."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.designers import (
    AdafiltDesigner,
    PaperDesigner,
    ServiceDesigner,
    ToeplitzSolver,
    resident,
    untrained,
)
from benchmarks.ears import Ears
from model_store.store import ModelStore
from service.designs import Recipe
from service.engine.resident import ResidentModel
from service.formats.answers import CORE_STAGES
from synthesis.generator import GeneratorConfig
from synthesis.wiener import design_wmmse
from tests.synthesis.cases import relative_error

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model() -> ResidentModel:
    return resident(ModelStore(), "default", CPU)


def test_the_service_s_designer_gives_its_stages(model: ResidentModel, ears: Ears) -> None:
    taps, times = ServiceDesigner(model, ears, Recipe(n_updates=1))([1, 0])
    assert set(times) == {"decode", *CORE_STAGES, "predict", "encode", "total"}
    assert sum(times.values()) - times["total"] <= times["total"]
    (alone,), _ = ServiceDesigner(model, ears, Recipe(n_updates=1))([1])
    assert relative_error(taps[:1], alone[None]) < 1e-3  # float32, batches add up in another order


def test_without_the_net_a_weak_filter_is_the_generator_s_own(ears: Ears) -> None:
    """An untrained generator's is predicted to do little: with the net WMMSE's takes its place and its time."""
    weak = untrained(ModelStore(), "default", GeneratorConfig.prime(), CPU)
    places = list(range(len(ears)))
    (caught, _), (own, times) = (ServiceDesigner(weak, ears, Recipe(), net=net)(places) for net in (True, False))
    wmmse, _ = ServiceDesigner(weak, ears, Recipe(None, "wmmse"))(places)
    replaced = [place for place in places if torch.equal(caught[place], wmmse[place])]
    assert replaced
    assert all(not torch.equal(own[place], wmmse[place]) for place in places)
    assert set(times) == {"decode", *CORE_STAGES, "predict", "encode", "total"}
    better, worse = (ears.quality(replaced, each[replaced])["noise_reduction_db"] for each in (caught, own))
    assert better > worse + 1


def test_the_paper_s_updates_start_from_the_service_s_filter(model: ResidentModel, ears: Ears) -> None:
    start = ServiceDesigner(model, ears, Recipe())
    places = list(range(len(ears)))
    unrefined, _ = start(places)
    same, times = PaperDesigner(start, ears, 0, CPU, captured=False)(places)
    assert torch.equal(same, unrefined)
    assert {"path_ratio", "generate", "reconstruct", "refine"} <= set(times)
    refined, _ = PaperDesigner(start, ears, 1, CPU, captured=False)(places)
    gained = ears.quality(places, refined)["noise_reduction_db"] - ears.quality(places, same)["noise_reduction_db"]
    assert gained > 0.1


@pytest.mark.cuda
def test_a_captured_refinement_is_the_eager_one(ears: Ears) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    device = torch.device("cuda")
    start = ServiceDesigner(resident(ModelStore(), "default", device), ears, Recipe())
    eager, _ = PaperDesigner(start, ears, 1, device, captured=False)([0])
    captured, _ = PaperDesigner(start, ears, 1, device, captured=True)([0])
    assert relative_error(captured, eager) < 1e-4


def test_the_solver_is_the_library_s_wmmse(ears: Ears) -> None:
    taps, times = ToeplitzSolver(ears)([0, 2])
    expected = design_wmmse(ears.estimated, ears.reference_psd)[[0, 2]]
    assert relative_error(taps, expected) < 1e-9
    assert times["solve"] < times["core"]


def test_adafilt_s_filter_cancels(ears: Ears) -> None:
    pytest.importorskip("adafilt")
    taps, times = AdafiltDesigner(ears)([0, 1])
    assert set(times) == {"core"}
    # Measured: 9 dB on simulated ears; with the sign the wrong way round it would be louder.
    assert ears.quality([0, 1], taps)["noise_reduction_db"] > 3


def test_the_command_writes_every_designer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            ["core", "--quick", "--threads", "1", "--device", "cpu", "--batches", "1", "2", "--out", str(tmp_path)]
        )
        == 0
    )
    found = json.loads((tmp_path / "core.json").read_text())
    assert {"created", "commit", "device", "torch", "quiet"} <= set(found["machine"])
    assert found["data"]["measured"] is False
    assert "SIMULATED" in capsys.readouterr().err
    rows = {(row["designer"], row["batch"]): row for row in found["rows"]}
    alone = {name for name, batch in rows if batch == 1}
    assert {"k=0", "k=1", "k=3", "solve_toeplitz", "paper's refinement, eager, k=3"} <= alone
    assert {name for name, batch in rows if batch == 2} == {name for name in alone if "generator" not in name}
    for (name, _), row in rows.items():
        assert 0 < row["core_ms"]["p50"] <= row["core_ms"]["p99"]
        assert row["core_over_yardstick"] > 0
        assert row["quality"]["n_ears"] == found["data"]["n_ears"]
        low = 3 if name == "adafilt" or "untrained" in name else 15
        assert low < row["quality"]["noise_reduction_db"] < 60, name
        assert 0 <= row["quality"]["amplification_db"] < 3, name
    for k in (0, 1, 3):
        assert set(rows[f"k={k}", 1]["stages_ms"]) >= {"decode", *CORE_STAGES, "predict", "encode"}
    refined, plain = (rows[f"k={k}", 1]["quality"]["noise_reduction_db"] for k in (3, 0))
    assert refined > plain
    by_itself = {(row["designer"], row["batch"]): row for row in found["alone"]}
    assert set(by_itself) == {(name, n) for name in ("k=0", "k=1", "k=3", "solve_toeplitz") for n in (1, 2)}
    for ratio in found["yardstick_over_solver"]:
        for how, timed in (("in_turns", rows), ("alone", by_itself)):
            own, solver = (timed[name, ratio["batch"]] for name in ("k=1", "solve_toeplitz"))
            expected = own["core_ms"]["p50"] / solver["stages_ms"]["solve"]["p50"]
            assert ratio[how] == pytest.approx(expected, rel=1e-3)
    step = found["gauss_newton_step"]
    assert 0 < step["service_residual"] < 1
    assert step["equal_residual_reached"] == (step["equal_residual"] <= step["service_residual"])


def test_a_mistake_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["core", "--data", str(tmp_path / "nowhere"), "--threads", "1"]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("benchmarks core: ")
    assert "nowhere" in error
