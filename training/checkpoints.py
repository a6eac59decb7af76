"""From a trained generator to a checkpoint in the store, and back from a run's rows to that very checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from model_store.checkpoint import Checkpoint
from model_store.errors import UnknownModel
from model_store.golden import GoldenCase
from model_store.manifest import Manifest
from synthesis.backends.reference import model_parameters
from synthesis.generator import Generator
from training.evaluation import Row
from training.measurements import Measurements
from training.methods import GENERATORS, GeneratorSetup
from training.report import COLUMNS, as_design, design_name, split_means
from training.report.by_recording import BROAD_BAND
from training.report.designs import own_profile
from training.run_data import RunData
from training.run_folder import RunError
from training.tasks import Task


def make_checkpoint(
    data: RunData,
    measurements: Measurements,
    setup: GeneratorSetup,
    generator: Generator,
    support: tuple[str, ...],
    split: int | None,
    seed: int,
) -> Checkpoint:
    """A checkpoint without scores. Its golden case is the first support ear."""
    dataset = data.dataset
    parameters = model_parameters(
        generator,
        measurements.reference_psd,
        measurements.support_uncertainty(support),
        measurements.path_prior(support),
    )
    first = measurements.indices(support)[0]
    estimates = measurements.estimates
    question = (estimates.primary[first], estimates.secondary[first], estimates.coherence[first])
    golden = GoldenCase.make(parameters, *(each.numpy() for each in question))
    manifest = Manifest(
        dataset=dataset.name,
        split=split,
        seed=seed,
        support=support,
        training=data.configuration(setup).model_dump(mode="json"),
        data_fingerprint=dataset.fingerprint,
        support_traits=measurements.support_statistics(support),
        licence=dataset.licence,
        attribution=dataset.attribution,
    )
    return Checkpoint(manifest, parameters, golden)


def mean_figures(*rows: pd.DataFrame | list[Row]) -> dict[str, dict[str, float]]:
    """Means on the original measurements, for a manifest: of every start, of a generator's updates in its own
    profile, and of WMMSE with three updates in the paper's. Of several probes: broad-band ones without noise."""
    joined = pd.concat([pd.DataFrame(each) for each in rows], ignore_index=True)
    if "probe" in joined:
        joined = joined[joined.probe.isin(BROAD_BAND) & joined.snr_db.isna()]
    own_updates = joined.method.isin(GENERATORS) & (joined.profile == joined.method.map(own_profile))
    compared = (joined.method == "wmmse") & (joined.k == 3) & (joined.profile == "paper")
    chosen = joined[(joined.condition == "original") & ((joined.k == 0) | own_updates | compared)].assign(split=0)
    return {
        design_name(*as_design(key)): {str(name): round(float(value), 4) for name, value in mean.items()}
        for key, mean in split_means(chosen, list(COLUMNS)).iterrows()
    }


def model_name(data: RunData, method: str, split: int, seed: int) -> str:
    """The name that a generator is published under."""
    protocol = "" if data.options.protocol == "by-person" else f"-{data.options.protocol}"
    return f"{data.dataset.name}{protocol}-{method}-split{split:02d}-seed{seed}"


def model_reference(data: RunData, task: Task) -> str:
    """The store reference of a finished generator of this run.

    Raises RunError where it is not finished, or where the store does not hold the very model that its rows are of:
    another one of that name must not be scored in its place.
    """
    rows = data.folder.rows([task.name])
    if rows.empty:
        raise RunError(f"{data.options.out}: {task.name} is not finished; finish the run first")
    reference, expected = str(rows.checkpoint.iloc[0]), rows.digest.iloc[0]
    try:
        found = data.store.resolve(reference).digest
    except UnknownModel:
        found = "no such model"
    if found != expected:
        raise RunError(
            f"model {reference}: {data.store.root} holds {found}, the rows are of {expected}; name the store that "
            f"holds it, or delete {data.folder.rows_file(task.name)} and start without --from to train it anew"
        )
    return reference


def load_model(data: RunData, task: Task) -> Checkpoint:
    """The checkpoint that a finished generator's rows are of; RunError as for `model_reference`."""
    return data.store.load(model_reference(data, task))


def has_model(data: RunData, task: Task) -> bool:
    """Whether a generator is finished and the store holds the very model that its rows are of."""
    try:
        model_reference(data, task)
    except RunError:
        return False
    return True


def verify_models(data: RunData, tasks: Sequence[Task], *, may_lack_models: bool) -> None:
    """Check that the models of finished tasks are in the store, whole.

    may_lack_models: a packed run's models may be missing, except those that an unfinished task is made of.
    """
    needed = {task.generator for task in tasks if not data.folder.is_finished(task.name)}
    missing = []
    for task in tasks:
        if task.method in GENERATORS and data.folder.is_finished(task.name):
            if may_lack_models and task not in needed and not has_model(data, task):
                missing.append(task)
            else:
                data.store.verify(model_reference(data, task))
    if missing:
        print(
            f"{len(missing)} models of finished tasks are not in {data.store.root}: their rows count, but core "
            "times and listener pages leave them out",
            flush=True,
        )
