"""What the figures owe to the calibration: its window, regularisation, probe noises and measurement noise.

    python -m training.calibration_study --data DIR --noise DIR --out OUT [--store DIR --models NAME ...]

Every setting calibrates the original measurements and every method designs from those estimates; the settings
nearest to the paper's figures, and the two standard ones, calibrate the modified secondary paths too. A filter
is scored by the reference spectrum on the true paths, which agrees with the time-domain score within 0.1 dB in
the mean. A trained generator is scored on listeners outside its support alone.

OUT/calibrations/SETTING/CONDITIONS.pt    estimates
OUT/rows/SETTING/CONDITIONS/SOURCE.csv    rows of the untrained methods, or of one model
OUT/rows.csv                              all of them
OUT/denoised/..., OUT/denoised.csv        with --denoise, the same from denoised secondary estimates
OUT/report.md, OUT/calibration_*.png      from the rows alone

Each of these files is written whole: a killed study goes on, and more models can be added to a finished one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
from torch import Tensor

mpl.use("Agg")
import matplotlib.pyplot as plt

from model_store.checkpoint import Checkpoint
from model_store.errors import ModelStoreError
from model_store.store import DEFAULT_ROOT, ModelStore
from synthesis.gauss_newton import FAST, PAPER, PROFILES, RefinementProfile, refine, suited_profile
from synthesis.noise_reduction import predict
from synthesis.octave_bands import WIDE_BANDS
from synthesis.path_estimation import REGULARISATION, PathEstimate
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import DEFAULT_MAX_GAIN_DB
from training.baselines import ProjectedRatio, RatioBase, Wmmse
from training.calibration import simulate_calibration
from training.datasets import open_dataset
from training.datasets.noise import NoiseSet, read_noise, reference_psd, simulated_noise, white_noise
from training.datasets.path_pairs import DatasetError, PathDataset, PathPair
from training.datasets.splits import make_splits
from training.datasets.variants import secondary_variants
from training.denoising import DecayPrior
from training.measurements import VARIANT_SEED
from training.report import design_name
from training.report.tables import markdown
from training.run_folder import RunError, RunFolder, environment, write_atomically, write_rows

Row = dict[str, Any]

WINDOWS = (2048, 4096, 8192, 16_384, 32_768)
REGULARISATIONS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
SNRS_DB = (40.0, 30.0, 20.0, 10.0)
STANDARD_WINDOWS = (4096, 8192)
ALL_PROBES = tuple(range(8))
PROBE_SUBSETS = (
    *((i,) for i in ALL_PROBES),
    *((i, i + 4) for i in range(4)),
    *(tuple(range(i, 8, 2)) for i in range(2)),
    *(tuple(j for j in ALL_PROBES if j % 4 != i) for i in range(4)),
)
"""Each probe alone, four pairs, two halves, and all but one pair."""
BETWEEN_WINDOWS = (5120, 6144)
"""Where the full-band base falls through the paper's figure."""
OTHER_PROBES = ("simulated", "white")
"""Probe noises that no model was trained with: the simulated environments, and eight draws of white noise."""

EARS_AT_ONCE = 8
N_UPDATES = (1, 2, 3)

PAPER_FIGURES = {"ratio_base_full_band": 10.09, "projected_ratio": 7.09, "wmmse": 21.72}
"""NR in dB, mean over the original and three modified conditions."""
PAPER_ORIGINAL_BASE = 10.686

UNTRAINED = ("ratio_base_full_band", "ratio_base_held_band", "projected_ratio", "wmmse")
SCORES = ("noise_reduction_db", "amplification_db", "wide_amplification_db", "control_rms")


@dataclass(frozen=True)
class Setting:
    """One way to calibrate. probe_noise: `recordings`, or one of OTHER_PROBES; probes: which of its eight."""

    window: int = 8192
    regularisation: float = REGULARISATION
    probes: tuple[int, ...] = ALL_PROBES
    snr_db: float | None = None
    probe_noise: str = "recordings"

    @property
    def name(self) -> str:
        """A word that names the setting and its files."""
        snr = "none" if self.snr_db is None else f"{self.snr_db:g}"
        probes = "".join(map(str, self.probes))
        return f"window{self.window}_reg{self.regularisation:.0e}_{self.probe_noise}{probes}_snr-{snr}"

    @property
    def columns(self) -> Row:
        """The setting as columns of a row."""
        return {"setting": self.name, **asdict(self), "probes": "".join(map(str, self.probes))}


def all_settings() -> list[Setting]:
    """Window by regularisation; and, around each standard window, probes and SNR one at a time."""
    settings = [Setting(window, regularisation) for window in WINDOWS for regularisation in REGULARISATIONS]
    settings += [Setting(probes=probes) for probes in PROBE_SUBSETS]
    for window in STANDARD_WINDOWS:
        settings += [Setting(window, snr_db=snr_db) for snr_db in SNRS_DB]
        settings += [Setting(window, probe_noise=noise) for noise in OTHER_PROBES]
    return sorted(settings, key=lambda each: each not in standards())  # the standard ones first


def paper_search() -> list[Setting]:
    """More settings between the standard windows, for the untrained methods' figures alone."""
    settings = [Setting(window, regularisation) for window in BETWEEN_WINDOWS for regularisation in (1e-4, 1e-3)]
    return settings + [
        Setting(window, snr_db=snr) for window in BETWEEN_WINDOWS for snr in (None, 40.0, 30.0, 25.0)
    ]


def standards() -> list[Setting]:
    """The two windows in use, all else by default."""
    return [Setting(window) for window in STANDARD_WINDOWS]


@dataclass(frozen=True)
class Study:
    """What every setting shares: the true paths, the noises, the reference spectrum and the folder of results."""

    dataset: PathDataset
    noise: NoiseSet
    reference_psd: Tensor
    folder: RunFolder

    def pairs(self, conditions: str) -> tuple[PathPair, ...]:
        """The `original` or the `modified` pairs."""
        if conditions == "original":
            return self.dataset.pairs
        return tuple(each for pair in self.dataset.pairs for each in secondary_variants(pair, VARIANT_SEED))

    def estimates(self, setting: Setting, conditions: str) -> PathEstimate:
        """The setting's calibration, float32, simulated once and then read."""
        file = self.folder.folder / "calibrations" / setting.name / f"{conditions}.pt"
        if not file.exists():
            found = simulate_calibration(
                self.pairs(conditions),
                probe_noise(setting.probe_noise, self.noise),
                window=setting.window,
                regularisation=setting.regularisation,
                probes=setting.probes,
                snr_db=setting.snr_db,
                primary_taps=self.dataset.primary_taps,
                secondary_taps=self.dataset.secondary_taps,
            )
            beside = _with_folder(file).with_suffix(".partial")
            torch.save([found.primary.float(), found.secondary.float(), found.coherence.float()], beside)
            beside.replace(file)
        return PathEstimate(*torch.load(file, weights_only=True))

    def score(self, setting: Setting, conditions: str, checkpoint: Checkpoint | None) -> pd.DataFrame:
        """Rows of the untrained methods, or of a model on the listeners outside its support; made at most once."""
        source: str = "untrained"
        support: tuple[str, ...] = ()
        if checkpoint is not None:
            source, support = _reference(checkpoint), checkpoint.manifest.support
        file = self.folder.folder / "rows" / setting.name / conditions / f"{source}.csv"
        if not file.exists():
            estimates = self.estimates(setting, conditions)
            rows = self._rows(self.pairs(conditions), estimates, setting.window, support, checkpoint)
            write_rows(file, pd.DataFrame([{**setting.columns, "source": source, **row} for row in rows]))
        return _read(file)

    def score_denoised(
        self, setting: Setting, support: tuple[str, ...], source: str, checkpoint: Checkpoint | None
    ) -> pd.DataFrame:
        """Rows on the original pairs outside a support, secondary estimates denoised by what that teaches."""
        file = self.folder.folder / "denoised" / setting.name / f"{source}.csv"
        if not file.exists():
            pairs, estimates = self.pairs("original"), self.estimates(setting, "original")
            n_taps = self.dataset.secondary_taps
            taught = [pair.secondary[:n_taps] for pair in pairs if pair.listener in support]
            prior = DecayPrior.fit(torch.from_numpy(np.stack(taught)))
            estimates = replace(estimates, secondary=prior.denoise(estimates.secondary))
            rows = self._rows(pairs, estimates, setting.window, support, checkpoint)
            write_rows(file, pd.DataFrame([{**setting.columns, "source": source, **row} for row in rows]))
        return _read(file)

    @torch.no_grad()
    def _rows(
        self,
        pairs: tuple[PathPair, ...],
        estimates: PathEstimate,
        window: int,
        support: tuple[str, ...],
        checkpoint: Checkpoint | None,
    ) -> Iterator[Row]:
        """Rows of the untrained methods or of a model, on the pairs of listeners outside the support."""
        indices = [i for i, pair in enumerate(pairs) if pair.listener not in support]
        trained_at = training_window(checkpoint)
        for start in range(0, len(indices), EARS_AT_ONCE):
            chunk = indices[start : start + EARS_AT_ONCE]
            paths = AcousticPaths.from_impulse_responses(estimates.primary[chunk], estimates.secondary[chunk])
            designs = (
                untrained_designs(paths, window, self.reference_psd)
                if checkpoint is None
                else trained_designs(paths, window, checkpoint)
            )
            for method, n_updates, profile, taps in designs:
                design = {"training_window": trained_at, "method": method, "k": n_updates, "profile": profile}
                yield from ({**design, **score} for score in self._scores([pairs[i] for i in chunk], taps))

    def _scores(self, pairs: list[PathPair], taps: Tensor) -> Iterator[Row]:
        truth = true_paths(pairs)
        figures = predict(truth, taps, self.reference_psd, uncertainty=torch.zeros(len(WIDE_BANDS)))
        for place, pair in enumerate(pairs):
            yield {
                "listener": pair.listener,
                "ear": pair.ear,
                "condition": pair.condition,
                "noise_reduction_db": figures.mean_noise_reduction_db[place].item(),
                "amplification_db": figures.amplification_db[place].item(),
                "wide_amplification_db": figures.wide_amplification_db[place].item(),
                "control_rms": figures.control_rms[place].item(),
            }


def _reference(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.manifest.name}@{checkpoint.manifest.version}"


def _with_folder(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def training_window(checkpoint: Checkpoint | None) -> int | None:
    """Samples of the calibration window that a model was trained at; None for what needs no training."""
    return None if checkpoint is None else int(str(checkpoint.manifest.training["window"]))


def true_paths(pairs: Sequence[PathPair]) -> AcousticPaths:
    """The whole true responses on the design grid, float32."""
    longest = max(max(pair.primary.size, pair.secondary.size) for pair in pairs)

    def stacked(responses: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.stack([np.pad(each, (0, longest - each.size)) for each in responses])).float()

    return AcousticPaths.from_impulse_responses(
        stacked([pair.primary for pair in pairs]), stacked([pair.secondary for pair in pairs])
    )


@lru_cache(maxsize=8)
def probe_noise(kind: str, recordings: NoiseSet) -> NoiseSet:
    """The noises that probe: the recordings themselves, simulated environments, or eight draws of white noise."""
    if kind == "recordings":
        return recordings
    if kind == "simulated":
        return simulated_noise()
    n = recordings.n_recordings
    signals = np.stack([white_noise(seed) for seed in range(1, n + 1)])
    return replace(recordings, names=tuple(f"white_{i}" for i in range(n)), signals=signals, is_simulated=True)


Designed = tuple[str, int, str, Tensor]
"""Method, number of updates, profile, taps [batch, 2048]. `fast` stands for `fine` too where the calibration's
window asks for that."""


def untrained_designs(paths: AcousticPaths, window: int, psd: Tensor) -> Iterator[Designed]:
    """Ratio bases, projected ratio and WMMSE, alone and refined."""
    full, held, wmmse = RatioBase("full_band"), RatioBase("held_band"), Wmmse(psd)
    starts = {each.name: each.design(paths).taps for each in (full, held, ProjectedRatio(), wmmse)}
    for name, taps in starts.items():
        yield name, 0, "", taps

    def refined(name: str, n_updates: int, profile: RefinementProfile) -> Designed:
        suited = PROFILES[suited_profile(profile.name, window)]
        taps = refine(paths, starts[name], psd, n_updates=n_updates, profile=suited).taps
        return name, n_updates, profile.name, taps

    yield refined(full.name, 4, PAPER)
    yield refined(wmmse.name, 3, PAPER)
    for name in (held.name, wmmse.name):
        for n_updates in N_UPDATES:
            yield refined(name, n_updates, FAST)


def trained_designs(paths: AcousticPaths, window: int, checkpoint: Checkpoint) -> Iterator[Designed]:
    """A generator, alone and refined: `prime` as the paper refines it, `prime-log` under this project's ceiling."""
    synthesizer = checkpoint.synthesizer()
    is_paper = synthesizer.generator.config.kind == "prime"
    profile, max_gain_db = (PAPER, None) if is_paper else (FAST, DEFAULT_MAX_GAIN_DB)
    suited = PROFILES[suited_profile(profile.name, window)]
    start = synthesizer.initial_filter(paths, max_gain_db=max_gain_db)
    yield model_method(checkpoint), 0, "", start
    for n_updates in N_UPDATES:
        refinement = refine(
            paths, start, synthesizer.reference_psd, n_updates=n_updates, profile=suited, max_gain_db=max_gain_db
        )
        yield model_method(checkpoint), n_updates, profile.name, refinement.taps


def model_method(checkpoint: Checkpoint) -> str:
    """`prime`, `prime-log`, or `prime-log_minimum_phase` for its earlier realisation."""
    config = checkpoint.generator.config
    bends = config.kind == "prime-log" and config.realisation == "minimum_phase"
    return "prime-log_minimum_phase" if bends else config.kind


# ----- the study ----------------------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> str:
    """Score every setting on the originals, the nearest to the paper on all conditions, and report."""
    dataset = open_dataset(options.dataset, options.data)
    noise = read_noise(options.noise)
    checkpoints = load_models(ModelStore(options.store), options.models, dataset)
    sources = {"data_fingerprint": dataset.fingerprint, "noise_fingerprint": noise.fingerprint}
    record = {"environment": environment(torch.device("cpu"))}
    folder = RunFolder.open(options.out, {"study": "calibration", **sources}, record)
    study = Study(dataset, noise, torch.from_numpy(reference_psd(noise)).float(), folder)
    settings = standards() if options.quick else all_settings()
    _score_all(study, settings, "original", checkpoints)
    searched = [] if options.quick else paper_search()
    _score_all(study, searched, "original", [])
    names = nearest(collect(options.out), options.nearest)
    near = [each for each in [*settings, *searched] if each.name in names]
    _score_all(study, list(dict.fromkeys([*standards(), *near])), "modified", [])
    collect(options.out)
    if options.denoise:
        _score_denoised(study, options.denoise, checkpoints)
    return write_report(options.out)


def load_models(store: ModelStore, names: Sequence[str], dataset: PathDataset) -> list[Checkpoint]:
    """The named models; RunError for one that was trained on other data, where no listener is known held out."""
    checkpoints = [store.load(name) for name in names]
    for each in checkpoints:
        found = each.manifest
        if found.data_fingerprint.removeprefix("sha256:") != dataset.fingerprint.removeprefix("sha256:"):
            raise RunError(
                f"{found.name}: found a model of other data, expected one trained on this {dataset.name}"
            )
        if set(dataset.listeners) <= set(found.support):
            raise RunError(f"{found.name}: found every listener in support, expected some held out")
    return checkpoints


def _score_all(study: Study, settings: list[Setting], conditions: str, checkpoints: list[Checkpoint]) -> None:
    for number, setting in enumerate(settings, 1):
        base = study.score(setting, conditions, None)
        for checkpoint in checkpoints:
            study.score(setting, conditions, checkpoint)
        alone = base[(base.method == "wmmse") & (base.k == 0)].noise_reduction_db.mean()
        print(f"{conditions} {number}/{len(settings)} {setting.name}: WMMSE {alone:.2f} dB", flush=True)


def _score_denoised(study: Study, n_splits: int, checkpoints: list[Checkpoint]) -> None:
    """Rows from denoised estimates into OUT/denoised.csv."""
    splits = make_splits(study.dataset.listeners, n_splits, dataset=study.dataset.name)
    for setting in DENOISED:
        for split in splits:
            study.score_denoised(setting, split.support, f"split{split.index:02d}", None)
        for each in checkpoints:
            study.score_denoised(setting, each.manifest.support, _reference(each), each)
        print(f"denoised {setting.name}", flush=True)
    folder = study.folder.folder
    rows = pd.concat([_read(file) for file in sorted((folder / "denoised").glob("*/*.csv"))], ignore_index=True)
    write_atomically(folder / "denoised.csv", rows.to_csv(index=False))


def collect(folder: Path) -> pd.DataFrame:
    """Join all finished rows into OUT/rows.csv."""
    files = sorted((folder / "rows").glob("*/*/*.csv"))
    rows = pd.concat([_read(file) for file in files], ignore_index=True)
    write_atomically(folder / "rows.csv", rows.to_csv(index=False))
    return rows


# ----- the report: from the rows alone -------------------------------------------------------------------------


def read_study(folder: Path) -> pd.DataFrame:
    """OUT/rows.csv."""
    return _read(folder / "rows.csv")


def _read(file: Path) -> pd.DataFrame:
    """Rows of one table file; the probes stay a word, 01 is not 1."""
    return pd.read_csv(file, dtype={"probes": str, "profile": str}, keep_default_na=False, na_values=[""])


def person_means(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Means of the scores: over ears and conditions within a person, then over persons."""
    persons = rows.groupby([*by, "listener"], sort=False, dropna=False)[list(SCORES)].mean()
    return persons.groupby(level=by, sort=False, dropna=False).mean()


def paper_distance(rows: pd.DataFrame, figures: dict[str, float]) -> pd.DataFrame:
    """Per setting: NR of the paper's three untrained methods, and the RMS of the differences from `figures`."""
    unrefined = rows[(rows.source == "untrained") & (rows.k == 0) & rows.method.isin(figures)]
    means = person_means(unrefined, ["setting", "method"])["noise_reduction_db"].unstack()[list(figures)]
    return means.assign(distance=np.sqrt(((means - pd.Series(figures)) ** 2).mean(axis=1))).sort_values("distance")


def nearest(rows: pd.DataFrame, count: int) -> list[str]:
    """Settings nearest to the paper on the originals: the base's own figure there, the others' over conditions."""
    figures = {**PAPER_FIGURES, "ratio_base_full_band": PAPER_ORIGINAL_BASE}
    return list(paper_distance(rows[rows.condition == "original"], figures).index[:count])


def all_conditions(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the settings that were calibrated under modified conditions too."""
    modified = set(rows[rows.condition != "original"].setting)
    return rows[rows.setting.isin(modified)]


def against_wmmse(rows: pd.DataFrame) -> pd.DataFrame:
    """Per model, setting and k: NR over that of WMMSE at the same estimates and on the same ears, in dB.

    `change` is that difference less the same model's at its own training window, all else standard; of it,
    `own_change` is the model's NR and `wmmse_change` WMMSE's.
    """
    originals = rows[rows.condition == "original"]
    ears = ["setting", "listener", "ear"]
    wmmse = originals[(originals.method == "wmmse") & (originals.k == 0)].set_index(ears).noise_reduction_db
    own = originals[originals.source != "untrained"].join(wmmse.rename("wmmse_db"), on=ears)
    by = ["method", "k", "source", "training_window", "setting"]
    figures = ["noise_reduction_db", "wmmse_db"]
    persons = own.groupby([*by, "listener"], sort=False)[figures].mean()
    table = persons.groupby(level=by, sort=False).mean().reset_index()
    at_home = table.setting == [Setting(int(window)).name for window in table.training_window]
    home = table[at_home].set_index(["source", "k"])[figures].add_suffix("_home")
    table = table.join(home, on=["source", "k"])
    return table.assign(
        over_wmmse_db=table.noise_reduction_db - table.wmmse_db,
        own_change=table.noise_reduction_db - table.noise_reduction_db_home,
        wmmse_change=table.wmmse_db - table.wmmse_db_home,
        change=lambda each: each.own_change - each.wmmse_change,
    )


def worst_table(over: pd.DataFrame, labels: dict[str, str], count: int = 16) -> pd.DataFrame:
    """The settings where generators lose most against WMMSE at k = 0, by `change`: over models, in dB."""
    grouped = over[over.k == 0].groupby(["method", "setting"], sort=False)
    table = grouped.agg(
        models=("source", "nunique"),
        change=("change", "mean"),
        least=("change", "min"),
        most=("change", "max"),
        own_change=("own_change", "mean"),
        wmmse_change=("wmmse_change", "mean"),
    )
    table = table.sort_values("change").groupby(level="method", sort=False).head(count).reset_index()
    return table.assign(setting=[labels[name] for name in table.setting])


def design_means(rows: pd.DataFrame) -> pd.DataFrame:
    """NR and AMP on the originals per setting and design; trained ones: persons, then the mean over models."""
    chosen = rows[rows.condition == "original"]
    by = ["setting", "source", "method", "k", "profile"]
    chosen = chosen.assign(profile=chosen.profile.fillna(""))
    per_model = person_means(chosen, by).reset_index()
    means = per_model.groupby(["setting", "method", "k", "profile"], sort=False)[list(SCORES)].mean().reset_index()
    means["design"] = [_title(*each) for each in zip(means.method, means.k, means.profile, strict=True)]
    return means


def _title(method: str, k: int, profile: str) -> str:
    return design_name(method, k, profile).replace("_", " ")


def figure_table(means: pd.DataFrame, settings: list[Setting]) -> pd.DataFrame:
    """`NR / AMP` of the designs (columns) at some settings (rows)."""
    cells = [
        f"{nr:.2f} / {amp:.3f}" for nr, amp in zip(means.noise_reduction_db, means.amplification_db, strict=True)
    ]
    return _by_setting(means.assign(cell=cells), settings)


def _by_setting(cells: pd.DataFrame, settings: list[Setting]) -> pd.DataFrame:
    """The column `cell`, a column a design and a row a setting that has any."""
    table = cells.pivot(index="setting", columns="design", values="cell")[list(dict.fromkeys(cells.design))]
    present = [each for each in settings if each.name in table.index]
    table = table.loc[[each.name for each in present]].reset_index(drop=True)
    table.insert(0, "window, change", [_label(each) for each in present])
    return table.fillna("")


def _label(setting: Setting) -> str:
    """What sets a setting apart from the standard one of its window."""
    parts = [f"{setting.window}"]
    if setting.regularisation != REGULARISATION:
        parts.append(f"regularisation {setting.regularisation:.0e}")
    if setting.probe_noise != "recordings":
        parts.append(f"{setting.probe_noise} probes")
    if setting.probes != ALL_PROBES:
        parts.append("probes " + " ".join(map(str, setting.probes)))
    if setting.snr_db is not None:
        parts.append(f"SNR {setting.snr_db:g} dB")
    return ", ".join(parts)


GROUPS = {
    "Window": [Setting(window) for window in WINDOWS],
    "Regularisation, window 4096": [Setting(4096, regularisation) for regularisation in REGULARISATIONS],
    "Regularisation, window 8192": [Setting(8192, regularisation) for regularisation in REGULARISATIONS],
    "Probe noises": [Setting(), *(Setting(probes=probes) for probes in PROBE_SUBSETS)],
    "Probe noises of another kind": [
        Setting(window, probe_noise=noise) for window in STANDARD_WINDOWS for noise in ("recordings", *OTHER_PROBES)
    ],
    "Measurement noise": [
        Setting(window, snr_db=snr_db) for window in STANDARD_WINDOWS for snr_db in (None, *SNRS_DB)
    ],
}


DENOISED = [Setting(window, snr_db=snr_db) for window in STANDARD_WINDOWS for snr_db in (None, 30.0, 20.0, 10.0)]


def denoising_gains(rows: pd.DataFrame, denoised: pd.DataFrame) -> pd.DataFrame:
    """NR from denoised less NR from plain estimates, per setting and design: persons, then splits or models.

    Untrained designs are compared on the persons outside the split's support, trained ones on those of the model.
    """
    ears = ["setting", "method", "k", "profile", "listener", "ear"]
    plain = rows[rows.condition == "original"].fillna({"profile": ""})
    denoised = denoised.fillna({"profile": ""})
    of_model = denoised.source.isin(plain.source)
    parts = [
        (denoised[~of_model], plain[plain.source == "untrained"], ears),
        (denoised[of_model], plain[plain.source != "untrained"], [*ears, "source"]),
    ]
    by = ["setting", "method", "k", "profile", "source"]
    gains = []
    for own, reference, on in parts:
        joined = own.join(reference.set_index(on).noise_reduction_db.rename("plain_db"), on=on)
        joined = joined.assign(gain_db=joined.noise_reduction_db - joined.plain_db)
        gains.append(joined.groupby([*by, "listener"], sort=False).gain_db.mean())
    per_source = pd.concat(gains).groupby(level=by, sort=False).mean()
    return per_source.groupby(level=by[:-1], sort=False).mean().reset_index()


def _denoising_table(gains: pd.DataFrame) -> str:
    gains = gains.assign(
        design=[_title(*each) for each in zip(gains.method, gains.k, gains.profile, strict=True)],
        cell=[f"{gain:+.2f}" for gain in gains.gain_db],
    )
    return markdown(_by_setting(gains, DENOISED))


def write_report(folder: Path) -> str:
    """Write report.md and the figures beside the rows; return the report."""
    rows = read_study(folder)
    labels = {each.name: _label(each) for each in [*all_settings(), *paper_search()]}
    means = design_means(rows)
    untrained = means[means.method.isin(UNTRAINED)]
    trained = means[~means.method.isin(UNTRAINED)]
    over = against_wmmse(rows) if len(trained) else None
    parts = ["# Calibration study", NOTE, "## Nearest to the paper", *_paper_parts(rows, labels)]
    if over is not None:
        parts += ["## Where k = 0 loses most against WMMSE", WORST_NOTE, markdown(worst_table(over, labels))]
    for title, settings in GROUPS.items():
        varied = {each.name for each in settings if title == "Window" or each not in standards()}
        if varied & set(means.setting):
            parts += [f"## {title}", markdown(figure_table(untrained, settings))]
            if over is not None:
                counts = over.groupby("method", sort=False).source.nunique()
                parts += ["Trained: " + ", ".join(f"{name}, {n} models" for name, n in counts.items()) + "."]
                parts += [
                    markdown(figure_table(trained, settings)),
                    OVER_NOTE,
                    markdown(over_table(over, settings)),
                ]
    if (folder / "denoised.csv").exists():
        gains = denoising_gains(rows, _read(folder / "denoised.csv"))
        parts += ["## Denoised secondary estimates", DENOISED_NOTE, _denoising_table(gains)]
    text = "\n\n".join(parts) + "\n"
    write_atomically(folder / "report.md", text)
    plot_paper(rows, folder / "calibration_paper.png")
    plot_sensitivity(means, folder / "calibration_sensitivity.png")
    if over is not None:
        plot_generators(over, folder / "calibration_generators.png")
    return text


NOTE = (
    "NR / AMP in dB, mean over persons, predicted by the reference spectrum on the true paths (within 0.1 dB of "
    "the time-domain score in the mean); originals unless said otherwise. Trained generators: persons outside "
    "their support, mean over models. Window in samples; regularisation over the largest bin of the reference "
    "autospectrum, 1e-6 unless said otherwise; all eight probes and no measurement noise unless said otherwise."
)


DENOISED_NOTE = "Change of NR in dB where the support's decays have denoised the secondary estimates:"
WORST_NOTE = (
    "Change of NR(k = 0) - NR(WMMSE), same estimates and ears, from the model's own training window with all else "
    "standard: mean, least and most over models; then what of it is the generator's NR, and what WMMSE's."
)
OVER_NOTE = (
    "Their NR over WMMSE's at the same estimates, dB (in brackets: less the same difference at the model's own "
    "training window, all else standard):"
)


def _paper_parts(rows: pd.DataFrame, labels: dict[str, str]) -> Iterator[str]:
    figures = {**PAPER_FIGURES, "ratio_base_full_band": PAPER_ORIGINAL_BASE}
    both = {
        "Originals (base: the paper's figure there; the others: its means over conditions)": (
            paper_distance(rows[rows.condition == "original"], figures).head(12)
        ),
        "All four conditions": paper_distance(all_conditions(rows), PAPER_FIGURES),
    }
    for title, table in both.items():
        aim = figures if title.startswith("Originals") else PAPER_FIGURES
        yield (
            f"{title}. Distance: RMS of the three differences from "
            f"{' / '.join(f'{value:g}' for value in aim.values())} dB."
        )
        named = table.reset_index()
        named["setting"] = [labels[name] for name in named.setting]
        yield markdown(named)


def over_table(over: pd.DataFrame, settings: list[Setting]) -> pd.DataFrame:
    """Mean over models per design: difference from WMMSE, with its change from the standard setting."""
    means = over.groupby(["setting", "method", "k"], sort=False)[["over_wmmse_db", "change"]].mean().reset_index()
    means["design"] = [design_name(m, k) for m, k in zip(means.method, means.k, strict=True)]
    means["cell"] = [f"{o:+.2f} ({c:+.2f})" for o, c in zip(means.over_wmmse_db, means.change, strict=True)]
    return _by_setting(means, settings)


def plot_paper(rows: pd.DataFrame, file: Path) -> None:
    """NR of the paper's three untrained methods over the regularisation, a line a window, and the paper's."""
    figures = {**PAPER_FIGURES, "ratio_base_full_band": PAPER_ORIGINAL_BASE}
    found = paper_distance(rows[rows.condition == "original"], figures)
    figure, panels = plt.subplots(1, len(figures), figsize=(11, 3.8), layout="constrained")
    for axes, (method, aim) in zip(panels, figures.items(), strict=True):
        for window in WINDOWS:
            names = {r: Setting(window, r).name for r in REGULARISATIONS}
            points = {r: found.loc[name, method] for r, name in names.items() if name in found.index}
            axes.semilogx(list(points), list(points.values()), "o-", ms=3, label=str(window))
        axes.axhline(aim, color="k", ls="--", lw=0.8)
        axes.set(title=f"{method.replace('_', ' ')} (paper {aim:g})", xlabel="regularisation")
    panels[0].set_ylabel("NR on originals (dB)")
    panels[0].legend(title="window", fontsize=7)
    figure.savefig(file, dpi=130)
    plt.close(figure)


SHOWN = (
    ("ratio_base_full_band", 0),
    ("ratio_base_held_band", 0),
    ("projected_ratio", 0),
    ("wmmse", 0),
    ("wmmse", 3),
    ("prime", 0),
    ("prime-log", 0),
    ("prime-log", 1),
    ("prime-log_minimum_phase", 0),
    ("prime-log_minimum_phase", 1),
)


def plot_sensitivity(means: pd.DataFrame, file: Path) -> None:
    """NR of the methods along each group of settings; a gap where the window changes."""
    groups = {title: group for title, group in GROUPS.items() if title != "Regularisation, window 4096"}
    figure, panels = plt.subplots(2, 3, figsize=(13, 8), layout="constrained")
    for axes, (title, group) in zip(panels.flat, groups.items(), strict=False):
        settings = [each for each in group if each.name in set(means.setting)]
        blocks = [settings] if title == "Window" else _blocks(settings)
        for number, (method, k) in enumerate(SHOWN):
            own = means[(means.method == method) & (means.k == k) & (means.profile != "paper")]
            values = own.set_index("setting").noise_reduction_db
            place = 0
            for block in blocks if len(own) else ():
                places, place = range(place, place + len(block)), place + len(block)
                label = _title(method, k, "fast") if block is blocks[0] else None
                block_values = values.reindex([each.name for each in block])
                axes.plot(places, block_values, "o-", ms=3, lw=1.2, color=f"C{number}", label=label)
        axes.set(title=title, xticks=range(len(settings)), ylabel="NR (dB)")
        axes.set_xticklabels([_tick(each, title) for each in settings], rotation=60, ha="right", fontsize=7)
    handles, names = panels.flat[0].get_legend_handles_labels()
    panels.flat[-1].axis("off")
    panels.flat[-1].legend(handles, names, loc="center")
    figure.savefig(file, dpi=130)
    plt.close(figure)


def _blocks(settings: list[Setting]) -> list[list[Setting]]:
    """Settings of one window after those of another."""
    windows = dict.fromkeys(each.window for each in settings)
    return [[each for each in settings if each.window == window] for window in windows]


def _tick(setting: Setting, title: str) -> str:
    """What sets a setting apart from its neighbours in a group."""
    if title.startswith("Regularisation"):
        return f"{setting.regularisation:.0e}"
    if title == "Probe noises":
        return "all" if setting.probes == ALL_PROBES else " ".join(map(str, setting.probes))
    if title == "Probe noises of another kind":
        return f"{setting.window}, {setting.probe_noise}"
    if title == "Measurement noise":
        return f"{setting.window}, " + ("none" if setting.snr_db is None else f"{setting.snr_db:g} dB")
    return str(setting.window)


def plot_generators(over: pd.DataFrame, file: Path) -> None:
    """The change of NR over WMMSE from the standard setting at k = 0: a panel a generator, a bar a setting."""
    means = over[over.k == 0].groupby(["method", "setting"], sort=False).change.mean()
    settings = list(dict.fromkeys(each for group in GROUPS.values() for each in group))
    settings = [each for each in settings if each.name in set(over.setting)]
    methods = list(dict.fromkeys(over.method))
    figure, panels = plt.subplots(
        1,
        len(methods),
        figsize=(2 + 4 * len(methods), 0.21 * len(settings) + 1.2),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axes, method in zip(panels[0], methods, strict=True):
        axes.barh(range(len(settings)), means[method].reindex([each.name for each in settings]), 0.7)
        axes.axvline(-0.3, color="k", ls="--", lw=0.8)
        axes.axvline(0, color="k", lw=0.8)
        axes.set(title=method.replace("_", " "), yticks=range(len(settings)), ylim=(len(settings) - 0.4, -0.6))
        axes.set_yticklabels([_label(each) for each in settings], fontsize=7)
    figure.supxlabel("change of NR(k = 0) - NR(WMMSE) from the model's own standard setting (dB)", fontsize=9)
    figure.savefig(file, dpi=130)
    plt.close(figure)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--dataset", choices=("pandar", "simulated"), default="pandar")
    add("--data", type=Path, help="folder of the data set (simulated: none)")
    add("--noise", type=Path, required=True, help="folder of 48-kHz noises")
    add("--out", type=Path, required=True, help="folder of the study")
    add("--store", type=Path, default=DEFAULT_ROOT, help="where the models are published")
    add("--models", nargs="*", default=[], metavar="NAME", help="trained generators: NAME or NAME@VERSION")
    add("--nearest", type=int, default=8, help="settings near the paper's to calibrate under all conditions")
    add("--denoise", type=int, default=0, metavar="SPLITS", help="also design from denoised secondary estimates")
    add("--quick", action="store_true", help="the two standard settings alone")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; returns the exit status. A mistake in the request is one line on standard error and status 2."""
    options = parse(arguments)
    try:
        print(run(options))
    except (DatasetError, ModelStoreError, RunError, OSError) as error:
        print(f"calibration_study: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("calibration_study: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
