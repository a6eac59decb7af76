"""Train and score a generator on splits of a path data set: the story of a run, top to bottom.

    python training/run_splits.py --dataset pandar --data DIR --noise DIR --generator prime-log
        --splits 10 --seeds 3 --store DIR --out DIR

Started again with the same options after a kill, it goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import torch
from pydantic import ValidationError

from model_store.checkpoint import Checkpoint, GoldenCase
from model_store.errors import ModelStoreError
from model_store.manifest import Manifest, Scores
from model_store.store import DEFAULT_ROOT, ModelStore
from synthesis.generator import Generator
from training.config import GeneratorKind, TrainingConfig, generator_config, load_config
from training.datasets import open_dataset
from training.datasets.noise import NoiseSet, read_noise, simulated_noise
from training.datasets.path_pairs import DatasetError, PathDataset
from training.datasets.splits import Split, make_splits
from training.measurements import Measurements
from training.objective import FrequencyDomainObjective, Objective, TimeDomainObjective
from training.protocol import Row, baseline_designs, generator_designs, score_designs
from training.report import COLUMNS, as_design, design_name, split_means, write_report
from training.run_folder import RunError, RunFolder, environment
from training.scoring import TimeDomainScore
from training.trainer import Progress, Trainer

SPLIT_SEED = 0
QUICK_UPDATES = {"prime": 12, "prime-log": 120}
QUICK_QUERIES = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; returns the exit status. A mistake in the request is one line on standard error and status 2."""
    options = parse(arguments)
    try:
        run(options)
    except (DatasetError, ModelStoreError, RunError, OSError) as error:
        print(f"run_splits: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("run_splits: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    except ValidationError as error:
        for each in error.errors():
            name = ".".join(map(str, each["loc"]))
            print(f"run_splits: {name}: found {each['input']!r}, {each['msg']}", file=sys.stderr)
        return 2
    return 0


def run(options: argparse.Namespace) -> None:
    """Data -> splits -> calibration -> for each model: train, score, publish -> tables."""
    device = choose_device(options.device)
    config = configuration(options)
    dataset = open_dataset(options.dataset, options.data)
    noise = read_noise(options.noise) if options.noise else simulated_noise()
    splits = make_splits(dataset.listeners, options.splits, options.support, SPLIT_SEED, dataset.name)
    chosen = splits if options.split is None else [each for each in splits if each.index == options.split]
    if not chosen:
        raise RunError(f"--split: found {options.split}, expected 0 to {options.splits - 1}")
    store = ModelStore(options.store)
    asked = {name: value if value is None else str(value) for name, value in vars(options).items()}
    record = {"options": asked, "environment": environment(device)}
    folder = RunFolder.open(options.out, settings(options, config, dataset, noise), record)
    announce(dataset, noise, splits, chosen, options, device)

    measurements = Measurements.calibrate(dataset, noise, window=config.window, conditions=config.conditions)
    score = TimeDomainScore(noise)
    score_baselines(folder, measurements, score, options.quick, splits)
    models = [(split, seed) for split in chosen for seed in range(options.seeds)]
    started, n_trained = time.monotonic(), 0
    for number, (split, seed) in enumerate(models):
        name = f"{dataset.name}-{options.generator}-split{split.index:02d}-seed{seed}"
        if reference := folder.finished(name):
            store.verify(reference)
            print(f"{name}: finished before, published as {reference}", flush=True)
            continue
        generator = train(
            config,
            options.generator,
            measurements,
            split.support,
            mixture_seed=split.index,
            seed=seed,
            device=device,
            state_file=folder.state_file(name),
            name=name,
        )
        candidate = checkpoint(generator, measurements, config, support=split.support, split=split.index, seed=seed)
        queries = split.query[:QUICK_QUERIES] if options.quick else split.query
        rows = score_candidate(candidate, measurements, score, queries, split, seed)
        candidate.manifest = candidate.manifest.model_copy(
            update={"scores": Scores(held_out=figures(pd.DataFrame(rows), folder.baselines(), queries))}
        )
        published = store.publish(name, candidate)
        reference = f"{published.name}@{published.version}"
        for row in rows:
            row |= {"checkpoint": reference, "digest": published.digest}
        folder.finish(name, reference, published.digest, rows)
        n_trained += 1
        left = (time.monotonic() - started) / n_trained * (len(models) - number - 1)
        print(
            f"{name}: published as {reference}; {number + 1} of {len(models)} models, {_minutes(left)} left",
            flush=True,
        )
    folder.collect(splits)
    print(write_report(folder.folder))


def choose_device(name: str) -> torch.device:
    """`auto`, `cpu` or `cuda` -> a device; RunError where the one asked for is not there."""
    if name == "cuda" and not torch.cuda.is_available():
        raise RunError("--device: found no CUDA device that torch can use, expected one (or cpu, or auto)")
    return torch.device("cuda" if torch.cuda.is_available() and name != "cpu" else "cpu")


def configuration(options: argparse.Namespace) -> TrainingConfig:
    """The generator's configuration with the command line's changes."""
    n_updates = options.updates or (QUICK_UPDATES[options.generator] if options.quick else None)
    return load_config(
        options.generator,
        n_updates=n_updates,
        window=options.window,
        conditions=options.conditions or ("original" if options.quick else None),
        interpolation=False if options.no_interpolation else None,
    )


def settings(
    options: argparse.Namespace, config: TrainingConfig, dataset: PathDataset, noise: NoiseSet
) -> dict[str, object]:
    """What decides the results of a split and seed; not which of them are run, nor where."""
    return {
        "dataset": dataset.name,
        "data_fingerprint": dataset.fingerprint,
        "simulated": dataset.is_simulated,
        "noise_fingerprint": noise.fingerprint,
        "simulated_noise": noise.is_simulated,
        "generator": generator_config(options.generator, dataset.n_fft).to_dict(),
        "training": config.model_dump(),
        "support": options.support,
        "quick": options.quick,
    }


def score_baselines(
    folder: RunFolder, measurements: Measurements, score: TimeDomainScore, quick: bool, splits: list[Split]
) -> None:
    """Score the untrained designs once on every pair; the splits only choose among these rows."""
    if folder.baselines() is not None:
        return
    listeners = (
        {name for split in splits for name in split.query[:QUICK_QUERIES]}
        if quick
        else set(measurements.dataset.listeners)
    )
    indices = measurements.indices(tuple(listeners))
    print(f"untrained designs: scoring {len(indices)} pairs", flush=True)
    designs = baseline_designs(measurements.reference_psd.float())
    folder.write_baselines(score_designs(measurements, score, designs, indices, {}))


def train(
    config: TrainingConfig,
    kind: GeneratorKind,
    measurements: Measurements,
    support: tuple[str, ...],
    *,
    mixture_seed: int,
    seed: int,
    device: torch.device,
    state_file: Path,
    name: str,
) -> Generator:
    """One model, from its last state if it has one."""
    objective: Objective = (
        TimeDomainObjective(config.objective, measurements.noise, device)
        if config.objective.domain == "time"
        else FrequencyDomainObjective(config.objective, measurements.reference_psd.float().to(device))
    )
    trainer = Trainer(
        config,
        generator_config(kind, measurements.dataset.n_fft),
        measurements.training_set(support, config, device, seed=mixture_seed),
        objective,
        seed=seed,
        device=device,
        state_file=state_file,
    )
    if trainer.update:
        print(f"{name}: goes on from update {trainer.update}", flush=True)
    return trainer.train(_progress_line(name)).cpu()


def checkpoint(
    generator: Generator,
    measurements: Measurements,
    config: TrainingConfig,
    *,
    support: tuple[str, ...],
    split: int | None,
    seed: int,
) -> Checkpoint:
    """What will be published, its scores still missing. The golden question is the first support ear's."""
    dataset = measurements.dataset
    psd, uncertainty = measurements.reference_psd.float(), measurements.support_uncertainty(support).float()
    first = measurements.indices(support)[0]
    estimates = measurements.estimates
    golden = GoldenCase.make(
        generator,
        psd,
        uncertainty,
        estimates.primary[first],
        estimates.secondary[first],
        estimates.coherence[first],
    )
    manifest = Manifest(
        dataset=dataset.name,
        split=split,
        seed=seed,
        support=support,
        training=config.model_dump(mode="json"),
        data_fingerprint=dataset.fingerprint,
        licence=dataset.licence,
        attribution=dataset.attribution,
    )
    return Checkpoint(manifest, generator, psd, uncertainty, golden)


def score_candidate(
    candidate: Checkpoint,
    measurements: Measurements,
    score: TimeDomainScore,
    queries: tuple[str, ...],
    split: Split,
    seed: int,
) -> list[Row]:
    """Rows of the float32 synthesizer that the service would run, on the held-out listeners."""
    return score_designs(
        measurements,
        score,
        generator_designs(candidate.synthesizer()),
        measurements.indices(queries),
        {"split": split.index, "seed": seed},
        candidate.band_uncertainty,
    )


def announce(
    dataset: PathDataset,
    noise: NoiseSet,
    splits: list[Split],
    chosen: list[Split],
    options: argparse.Namespace,
    device: torch.device,
) -> None:
    """Say what is about to run, on what."""
    for what, simulated in (("paths", dataset.is_simulated), ("noises", noise.is_simulated)):
        if simulated:
            print(f"SIMULATED {what}: the figures below are not of measured ears", flush=True)
    print(
        f"{dataset.name}: {len(dataset.listeners)} listeners, {len(dataset.pairs)} ears; "
        f"{len(splits[0].support)} in support, {len(splits[0].query)} held out; "
        f"{len(chosen)} of {len(splits)} splits, {options.seeds} seeds, generator {options.generator}, {device}",
        flush=True,
    )


def figures(
    own: pd.DataFrame, baselines: pd.DataFrame | None, queries: tuple[str, ...]
) -> dict[str, dict[str, float]]:
    """Held-out means per design for the manifest: the model at k = 0 to 3 beside the untrained designs."""
    compared = [own] if baselines is None else [baselines[baselines.listener.isin(queries)], own]
    table = pd.concat(compared, ignore_index=True).assign(split=0)
    means = split_means(table[table.condition == "original"], list(COLUMNS))
    return {
        design_name(*as_design(key)): {str(name): round(float(value), 4) for name, value in mean.items()}
        for key, mean in means.iterrows()
    }


def _progress_line(name: str) -> Callable[[Progress], None]:
    def show(progress: Progress) -> None:
        print(
            f"{name}: {progress.update}/{progress.n_updates} updates, loss {progress.loss:.2f}, "
            f"{progress.updates_per_s:.1f} updates/s, {_minutes(progress.seconds_left)} left",
            flush=True,
        )

    return show


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--dataset", choices=("pandar", "ten-path", "simulated"), required=True)
    add("--data", type=Path, help="folder of the data set; any level of the PANDAR database")
    add("--noise", type=Path, help="folder of 48-kHz noises, or DEMAND; without it, simulated noises")
    add("--generator", choices=("prime", "prime-log"), default="prime-log")
    add("--splits", type=_positive, default=10)
    add("--seeds", type=_positive, default=3)
    add("--updates", type=_positive, help="training updates of each model (default: the generator's recipe)")
    add("--store", type=Path, default=DEFAULT_ROOT, help="where checkpoints are published")
    add("--out", type=Path, required=True, help="folder of this run's rows, tables and figures")
    add("--support", type=_positive, help="listeners in support (default: the paper's number or share)")
    add("--split", type=int, help="run only this split, counted from 0")
    add("--window", type=_positive, help="samples of the calibration's window")
    add("--conditions", choices=("original", "all"), help="all: with the three secondary-path variants")
    add("--no-interpolation", action="store_true", help="train without paired mixtures")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add("--quick", action="store_true", help="a few updates, two held-out listeners: a check in two minutes")
    options = parser.parse_args(arguments)
    if options.quick:
        options.splits, options.seeds = min(options.splits, 1), 1
    return options


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"found {value}, expected 1 or more")
    return value


if __name__ == "__main__":
    sys.exit(main())
