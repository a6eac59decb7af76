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
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch

from model_store.checkpoint import Checkpoint
from model_store.errors import ModelStoreError
from model_store.store import DEFAULT_ROOT, ModelStore
from training.calibration_study.report import write_report
from training.calibration_study.rows import collect, read_table
from training.calibration_study.settings import DENOISED, DENOISERS, Setting, all_settings, paper_search, standards
from training.calibration_study.study import Study, load_models, model_reference
from training.calibration_study.tables import nearest
from training.datasets import open_dataset
from training.datasets.noise import read_noise, reference_psd
from training.datasets.path_pairs import DatasetError
from training.datasets.splits import make_splits
from training.run_folder import RunError, RunFolder, environment, write_atomically


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
    sources: list[tuple[tuple[str, ...], str, Checkpoint | None]] = [
        *((split.support, f"split{split.index:02d}", None) for split in splits),
        *((each.manifest.support, model_reference(each), each) for each in checkpoints),
    ]
    for by in DENOISERS:
        for setting in DENOISED:
            for support, source, checkpoint in sources:
                study.score_denoised(setting, by, support, source, checkpoint)
            print(f"denoised by {by}: {setting.name}", flush=True)
    folder = study.folder.folder
    rows = pd.concat(
        [read_table(file) for file in sorted((folder / "denoised").glob("*/*/*.csv"))], ignore_index=True
    )
    write_atomically(folder / "denoised.csv", rows.to_csv(index=False))


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
