"""The calibration study: its settings, its rows on disk, and its report against means computed anew."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from model_store.checkpoint import Checkpoint, GoldenCase
from model_store.manifest import Manifest
from model_store.store import ModelStore
from synthesis.gauss_newton import FAST, FINE, RefinementProfile, refine
from synthesis.generator import Generator, GeneratorConfig
from synthesis.noise_reduction import predict
from synthesis.paths import AcousticPaths
from synthesis.wiener import design_wmmse
from training.baselines import Wmmse
from training.calibration import simulate_calibration
from training.calibration_study import __main__ as command
from training.calibration_study import designs, settings, study, tables
from training.calibration_study.report import write_report
from training.calibration_study.rows import read_study
from training.calibration_study.settings import Setting
from training.calibration_study.study import Study
from training.datasets.noise import NoiseSet, reference_psd, simulated_noise
from training.datasets.path_pairs import PathDataset
from training.datasets.simulated import simulate_listeners
from training.protocol import Refined, designed
from training.run_folder import RunError, RunFolder


@pytest.fixture(scope="module")
def dataset() -> PathDataset:
    return simulate_listeners(2)


@pytest.fixture(scope="module")
def noise() -> NoiseSet:
    return simulated_noise()


@pytest.fixture
def small(dataset: PathDataset, noise: NoiseSet, tmp_path: Path) -> Study:
    psd = torch.from_numpy(reference_psd(noise)).float()
    return Study(dataset, noise, psd, RunFolder.open(tmp_path / "out", {}, {}))


def checkpoint(dataset: PathDataset, small: Study, support: tuple[str, ...], fingerprint: str = "") -> Checkpoint:
    """An untrained generator, stored as if it had been trained on `support`."""
    generator = Generator(GeneratorConfig.prime_log(n_channels=8)).eval()
    estimate = small.estimates(Setting(4096), "original")
    uncertainty = torch.full((2, 31), 1e-3)
    golden = GoldenCase.make(
        generator,
        small.reference_psd,
        uncertainty,
        estimate.primary[0],
        estimate.secondary[0],
        estimate.coherence[0],
    )
    manifest = Manifest(
        dataset=dataset.name,
        split=0,
        seed=0,
        support=support,
        training={"window": 4096},
        data_fingerprint=fingerprint or dataset.fingerprint,
        licence="none",
        attribution="nobody",
    )
    return Checkpoint(manifest, generator, small.reference_psd, uncertainty, golden)


def test_settings_differ_by_name_and_the_standard_ones_come_first() -> None:
    found = [*settings.all_settings(), *settings.paper_search()]
    names = [each.name for each in found]
    assert len(set(names)) == len(names)
    assert found[:2] == settings.standards()
    assert {each for group in settings.GROUPS.values() for each in group} <= set(found)
    assert all(len(set(each.probes)) == len(each.probes) for each in found)
    assert {len(each.probes) for each in found} == {1, 2, 4, 6, 8}


def test_rows_score_the_setting_s_own_estimates_on_the_true_paths(small: Study) -> None:
    setting = Setting(4096, regularisation=1e-4, probes=(1, 4), snr_db=20.0)
    rows = small.score(setting, "original", None)
    estimate = simulate_calibration(
        small.dataset.pairs, small.noise, window=4096, regularisation=1e-4, probes=(1, 4), snr_db=20.0
    )
    paths = AcousticPaths.from_impulse_responses(estimate.primary.float(), estimate.secondary.float())
    taps = design_wmmse(paths, small.reference_psd)
    truth = study.true_paths(small.dataset.pairs)
    figures = predict(truth, taps, small.reference_psd, uncertainty=torch.zeros(31))
    own = rows[(rows.method == "wmmse") & (rows.k == 0)]
    assert list(own.listener + own.ear) == [pair.listener + pair.ear for pair in small.dataset.pairs]
    # The rows' digits; everything else is the same arithmetic.
    np.testing.assert_allclose(own.noise_reduction_db, figures.mean_noise_reduction_db.numpy(), atol=1e-4)
    assert set(rows.setting) == {setting.name}
    designs = rows.drop_duplicates(["method", "k", "profile"])
    assert len(rows) == len(designs) * len(small.dataset.pairs)


@pytest.mark.parametrize(("window", "profile"), [(8192, FAST), (16_384, FINE)])
def test_fast_updates_follow_the_window(window: int, profile: RefinementProfile, small: Study) -> None:
    estimate = small.estimates(Setting(window), "original")
    paths = AcousticPaths.from_impulse_responses(estimate.primary, estimate.secondary)
    psd = small.reference_psd
    expected = refine(paths, design_wmmse(paths, psd), psd, n_updates=2, profile=profile).taps
    for name, k, label, taps in designs.untrained_designs(paths, window, psd):
        if (name, k, label) == ("wmmse", 2, "fast"):
            assert torch.equal(taps, expected)
    start = Wmmse(psd)
    *_, last = designed(start, paths, window, psd, [Refined("fast", (2,))])
    # Two single updates here, one call of two there.
    assert torch.allclose(last.taps, expected, atol=1e-5)
    assert (last.n_updates, last.profile) == (2, "fast")


def test_a_finished_setting_is_read_and_not_made_again(small: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    first = small.score(Setting(2048), "original", None)
    monkeypatch.setattr(study, "simulate_calibration", lambda *_, **__: pytest.fail("calibrated again"))
    pd.testing.assert_frame_equal(small.score(Setting(2048), "original", None), first)
    # Rows that a kill has lost come back from the estimates alone.
    next((small.folder.folder / "rows").glob("*/*/*.csv")).unlink()
    pd.testing.assert_frame_equal(small.score(Setting(2048), "original", None), first)


def test_a_model_is_scored_on_listeners_outside_its_support_alone(dataset: PathDataset, small: Study) -> None:
    support = dataset.listeners[:1]
    rows = small.score(Setting(4096), "original", checkpoint(dataset, small, support))
    assert set(rows.listener) == set(dataset.listeners) - set(support)
    assert set(rows.k) == {0, 1, 2, 3}
    assert set(rows.method) == {"prime-log"}
    assert set(rows.training_window) == {4096}


def test_models_of_other_data_or_with_nobody_held_out_are_refused(
    dataset: PathDataset, small: Study, tmp_path: Path
) -> None:
    store = ModelStore(tmp_path / "store", include_bundled=False)
    store.publish("other", checkpoint(dataset, small, dataset.listeners[:1], "0" * 64))
    store.publish("everybody", checkpoint(dataset, small, dataset.listeners))
    store.publish("fine", checkpoint(dataset, small, dataset.listeners[:1]))
    with pytest.raises(RunError, match="other: found a model of other data"):
        study.load_models(store, ["other"], dataset)
    with pytest.raises(RunError, match="everybody: found every listener in support"):
        study.load_models(store, ["everybody"], dataset)
    assert len(study.load_models(store, ["fine"], dataset)) == 1


def test_other_probes_are_no_recordings(noise: NoiseSet) -> None:
    recordings = replace(noise, names=tuple(f"recording_{i}" for i in range(10)))
    assert study.probe_noise("recordings", recordings) is recordings
    white = study.probe_noise("white", recordings)
    assert white.signals.shape[0] == white.n_recordings == 8
    correlation = np.corrcoef(white.signals) - np.eye(8)
    assert np.abs(correlation).max() < 0.01  # eight draws; their correlation is about 1 / sqrt(576000)


def made_up_rows() -> pd.DataFrame:
    """Two settings, two persons with a different number of ears, the paper's three methods and one model."""
    ears = [("a", "left"), ("a", "right"), ("b", "left")]
    levels = {"ratio_base_full_band": 10.0, "projected_ratio": 7.0, "wmmse": 21.0}
    rows = []
    for setting, offset in ((Setting(4096), 0.0), (Setting(8192), 2.0)):
        for place, (listener, ear) in enumerate(ears):
            base = {
                **setting.columns,
                "listener": listener,
                "ear": ear,
                "condition": "original",
                "k": 0,
                "profile": "",
                "amplification_db": 0.1,
                "wide_amplification_db": 0.1,
                "control_rms": 0.1,
            }
            for method, level in levels.items():
                scored = {"method": method, "noise_reduction_db": level + offset + place}
                rows.append({**base, "source": "untrained", "training_window": np.nan, **scored})
            scored = {"method": "prime-log", "noise_reduction_db": 20.0 + 1.5 * offset + place}
            if listener == "b":
                rows.append({**base, "source": "model@1", "training_window": 4096, **scored})
    return pd.DataFrame(rows)


def test_the_distance_is_the_rms_of_the_differences_of_person_means() -> None:
    table = tables.paper_distance(made_up_rows(), tables.PAPER_FIGURES)
    # Person a's ears stand 0 and 1 above the level, person b's 2: the mean over persons is 1.25.
    found = np.array([10.0, 7.0, 21.0]) + 1.25
    expected = np.sqrt(np.mean((found - [10.09, 7.09, 21.72]) ** 2))
    assert table.loc[Setting(4096).name, "distance"] == pytest.approx(expected)
    assert list(table.index) == [Setting(4096).name, Setting(8192).name]
    assert tables.nearest(made_up_rows(), 1) == [Setting(4096).name]


def test_a_generator_is_compared_with_wmmse_on_its_own_held_out_ears() -> None:
    over = tables.against_wmmse(made_up_rows()).set_index("setting")
    assert over.loc[Setting(4096).name, "over_wmmse_db"] == pytest.approx(20.0 - 21.0)
    assert over.loc[Setting(8192).name, "over_wmmse_db"] == pytest.approx(23.0 - 23.0)
    assert over.loc[Setting(4096).name, "change"] == 0
    assert over.loc[Setting(8192).name, "change"] == pytest.approx(1.0)
    assert over.loc[Setting(8192).name, "own_change"] == pytest.approx(3.0)
    assert over.loc[Setting(8192).name, "wmmse_change"] == pytest.approx(2.0)
    worst = tables.worst_table(over.reset_index(), {Setting(w).name: str(w) for w in settings.STANDARD_WINDOWS})
    assert list(worst.setting) == ["4096", "8192"]  # the one that loses most first
    assert list(worst.change) == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize("by", settings.DENOISERS)
def test_denoised_rows_leave_the_support_out_and_are_compared_ear_by_ear(
    dataset: PathDataset, small: Study, by: str
) -> None:
    setting, support = Setting(4096, snr_db=10.0), dataset.listeners[:1]
    model = checkpoint(dataset, small, support)
    plain = pd.concat([small.score(setting, "original", each) for each in (None, model)], ignore_index=True)
    source = f"{model.manifest.name}@{model.manifest.version}"
    denoised = pd.concat(
        [
            small.score_denoised(setting, by, support, "split00", None),
            small.score_denoised(setting, by, support, source, model),
        ],
        ignore_index=True,
    )
    assert set(denoised.listener) == set(dataset.listeners) - set(support)
    gains = tables.denoising_gains(plain, denoised).set_index(["method", "k", "profile"]).gain_db
    assert gains.notna().all()
    assert set(gains.index.get_level_values("method")) == {*designs.UNTRAINED, "prime-log"}
    for method in ("wmmse", "prime-log"):
        own, before = (
            table[(table.method == method) & (table.k == 0) & table.listener.isin(dataset.listeners[1:])]
            for table in (denoised, plain)
        )
        expected = own.noise_reduction_db.mean() - before.noise_reduction_db.mean()
        assert gains[method, 0, ""] == pytest.approx(expected)
    # A simulated listener's path is as short as a measured one's: noise 10 dB below the signal is worth removing.
    assert gains["wmmse", 0, ""] > 0


def test_the_command_runs_and_reports_from_its_rows(
    tmp_path: Path, dataset: PathDataset, noise: NoiseSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "open_dataset", lambda *_: dataset)
    monkeypatch.setattr(command, "read_noise", lambda *_: noise)
    out = tmp_path / "out"
    arguments = ["--dataset", "simulated", "--noise", "unread", "--out", str(out), "--quick", "--nearest", "1"]
    assert command.main(arguments) == 0
    rows = read_study(out)
    assert set(rows.condition) == {"original", "gain_delay", "tilt", "tail"}
    assert set(rows.probes) == {"01234567"}
    text = (out / "report.md").read_text()
    wmmse = rows[(rows.method == "wmmse") & (rows.k == 0) & (rows.window == 8192) & (rows.condition == "original")]
    assert f"{wmmse.groupby('listener').noise_reduction_db.mean().mean():.2f} / " in text
    assert (out / "calibration_paper.png").stat().st_size > 10_000
    assert (out / "calibration_sensitivity.png").stat().st_size > 10_000
    assert write_report(out) == text


def test_a_mistake_in_the_request_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--data", str(tmp_path), "--noise", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith("calibration_study: ")
