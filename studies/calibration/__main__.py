"""What the figures owe to the calibration: `python -m studies.calibration --data DIR --noise DIR --out OUT`.

Every setting (window, regularisation, probes, measurement noise, denoising) calibrates the original ears, and every
method designs from those estimates; a trained generator (`--models`) on listeners outside its support alone.

OUT/rows/SETTING/SOURCE.csv    rows of the untrained methods, or of one model
OUT/rows.csv, report.md     all rows, and what is made of them

Rows are written whole: the same command resumes a study that was stopped, and models can be added later.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from measurement.denoise import denoised, noise_lags
from model_store.checkpoint import Checkpoint
from model_store.errors import ModelStoreError
from model_store.store import DEFAULT_ROOT, ModelStore
from studies.calibration.report import write_report
from studies.calibration.settings import STANDARD_WINDOWS, Setting, all_settings
from studies.scoring import spectral_scores
from synthesis.backends.reference import build_synthesizer
from synthesis.paths import AcousticPaths
from training.baselines import RatioBase, Start, Wmmse
from training.datasets import open_dataset
from training.datasets.noise import NoiseSet, read_noise, reference_psd, simulated_noise, white_noise
from training.datasets.path_pairs import DatasetError, PathDataset
from training.evaluation import Method, Updates, designs
from training.methods import GeneratorDesign
from training.run_folder import RunError, RunFolder, write_atomically, write_rows
from training.simulated_calibration import PathEstimate, simulate_calibration


def methods_of(checkpoint: Checkpoint | None, psd: Tensor) -> Iterator[tuple[Method, tuple[Updates, ...]]]:
    """The untrained designs, or a model's, each with the updates that follow it."""
    if checkpoint is not None:
        synthesizer = build_synthesizer(checkpoint.parameters)
        kind = synthesizer.generator.config.kind
        profile = "paper" if kind == "prime" else "fast"
        yield GeneratorDesign(kind, synthesizer), (Updates(profile, (1, 2, 3)),)
        return
    yield RatioBase("full_band"), (Updates("paper", (4,)),)
    yield RatioBase("held_band"), (Updates("fast", (1, 3)),)
    yield Start("projected_ratio"), ()
    yield Wmmse(psd), (Updates("fast", (1, 3)), Updates("paper", (3,)))


def estimates(setting: Setting, dataset: PathDataset, noise: NoiseSet) -> PathEstimate:
    """The setting's calibration of every original ear."""
    found = simulate_calibration(
        dataset.pairs,
        probe_noise(setting.probe_noise, noise),
        window=setting.window,
        regularisation=setting.regularisation,
        probes=setting.probes,
        snr_db=setting.snr_db,
        primary_taps=dataset.primary_taps,
        secondary_taps=setting.window if setting.is_denoised else dataset.secondary_taps,
    )
    if setting.is_denoised:
        whole = found.secondary.numpy()
        kept = denoised(whole[..., : dataset.secondary_taps], noise_lags(whole))
        found = replace(found, secondary=torch.from_numpy(kept))
    return found


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


@torch.no_grad()
def rows(
    setting: Setting, found: PathEstimate, dataset: PathDataset, psd: Tensor, checkpoint: Checkpoint | None
) -> Iterator[dict[str, object]]:
    """A row for each design and ear outside the model's support."""
    support = checkpoint.manifest.support if checkpoint else ()
    indices = [i for i, pair in enumerate(dataset.pairs) if pair.listener not in support]
    pairs = [dataset.pairs[i] for i in indices]
    paths = AcousticPaths.from_impulse_responses(found.primary[indices], found.secondary[indices])
    longest = max(max(pair.primary.size, pair.secondary.size) for pair in pairs)
    primary, secondary = (
        torch.from_numpy(np.stack([np.pad(each, (0, longest - each.size)) for each in responses]))
        for responses in ([pair.primary for pair in pairs], [pair.secondary for pair in pairs])
    )
    truth = AcousticPaths.from_impulse_responses(primary, secondary)
    for method, updates in methods_of(checkpoint, psd.float()):
        for design in designs(method, paths.to(torch.float32), setting.window, psd.float(), updates):
            labels = {"method": method.name, "k": design.n_updates, "profile": design.profile}
            for pair, score in zip(pairs, spectral_scores(truth, design.taps, psd), strict=True):
                yield {**setting.columns, **labels, "listener": pair.listener, "ear": pair.ear, **score}


def load_models(store: ModelStore, names: Sequence[str], dataset: PathDataset) -> list[Checkpoint]:
    """The named models; RunError for one of other data or without held-out listeners."""
    checkpoints = [store.load(name) for name in names]
    for each in (checkpoint.manifest for checkpoint in checkpoints):
        if each.data_fingerprint.removeprefix("sha256:") != dataset.fingerprint.removeprefix("sha256:"):
            raise RunError(f"{each.name}: was trained on other data; name a model of this {dataset.name}")
        if set(dataset.listeners) <= set(each.support):
            raise RunError(f"{each.name}: has every listener in support; name a split's model")
    return checkpoints


def run(options: argparse.Namespace) -> str:
    """Calibrate, design and score every setting; report."""
    dataset, noise = open_dataset(options.dataset, options.data), read_noise(options.noise)
    checkpoints = load_models(ModelStore(options.store), options.models, dataset)
    fingerprints = {"data_fingerprint": dataset.fingerprint, "noise_fingerprint": noise.fingerprint}
    RunFolder.open(options.out, {"study": "calibration", **fingerprints}, {})
    psd = torch.from_numpy(reference_psd(noise))
    settings = [Setting(window) for window in STANDARD_WINDOWS] if options.quick else all_settings()
    for number, setting in enumerate(settings, 1):
        found = None
        for checkpoint in (None, *checkpoints):
            manifest = checkpoint.manifest if checkpoint else None
            source = f"{manifest.name}@{manifest.version}" if manifest else "untrained"
            file = options.out / "rows" / setting.name / f"{source}.csv"
            if not file.exists():
                found = found or estimates(setting, dataset, noise)
                write_rows(file, pd.DataFrame(rows(setting, found, dataset, psd, checkpoint)).assign(source=source))
        print(f"{number} of {len(settings)}: {setting.name}", flush=True)
    files = sorted((options.out / "rows").glob("*/*.csv"))
    table = pd.concat([pd.read_csv(file, dtype={"probes": str}) for file in files], ignore_index=True)
    write_atomically(options.out / "rows.csv", table.to_csv(index=False))
    return write_report(options.out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; returns the exit status. A mistake in the request is one line on standard error and status 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--dataset", choices=("pandar", "simulated"), default="pandar")
    add("--data", type=Path, help="folder of the data set (simulated: none)")
    add("--noise", type=Path, required=True, help="folder of 48-kHz noises")
    add("--out", type=Path, required=True, help="folder of the study")
    add("--store", type=Path, default=DEFAULT_ROOT, help="where the models are published")
    add("--models", nargs="*", default=[], metavar="NAME", help="trained generators: NAME or NAME@VERSION")
    add("--quick", action="store_true", help="the two standard settings alone")
    options = parser.parse_args(arguments)
    try:
        print(run(options))
    except (DatasetError, ModelStoreError, RunError, OSError) as error:
        print(f"studies.calibration: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
