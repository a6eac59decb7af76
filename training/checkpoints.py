"""Make checkpoints for the model store from trained generators."""

from __future__ import annotations

import pandas as pd

from model_store.checkpoint import Checkpoint
from model_store.golden import GoldenCase
from model_store.manifest import Manifest, Scores
from training.config import Configuration
from training.methods import METHODS, SupportSet
from training.rows import BROAD_BAND, COLUMNS, as_design, default_profile, split_means
from training.wearing import wearing_of


def make_checkpoint(support: SupportSet, method: str, split: int | None, scores: Scores) -> Checkpoint:
    """Make a checkpoint of a support's trained generator; its golden case is the first support ear.

    Parameters
    ----------
    support, method
        Whose generator, trained now where it does not exist.
    split
        Index of the split; None for a model of all listeners.
    scores
        Table for the manifest.
    """
    recipe, data, measurements = METHODS[method].recipe, support.data, support.measurements
    assert recipe is not None
    parameters = support.parameters(support.generator(method), with_prior=True)
    first = measurements.indices(support.listeners)[0]
    estimates = measurements.estimates
    question = (estimates.primary[first], estimates.secondary[first], estimates.coherence[first])
    manifest = Manifest(
        dataset=data.dataset.name,
        split=split,
        seed=support.seed,
        support=support.listeners,
        training=recipe.training(data.configuration).model_dump(mode="json"),
        data_fingerprint=data.dataset.fingerprint,
        support_traits=measurements.support_statistics(support.listeners),
        wearing=wearing_of(data.configuration.data, data.dataset, support.listeners),
        scores=scores,
        licence=data.dataset.licence,
        attribution=data.dataset.attribution,
    )
    return Checkpoint(manifest, parameters, GoldenCase.make(parameters, *(item.numpy() for item in question)))


def mean_figures(*parts: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Average the figures on original measurements for a manifest, by design.

    Designs are starts, a generator's updates in its default profile, and WMMSE with three updates of `paper`; of
    several probes, broad-band ones without noise.
    """
    rows = pd.concat(parts, ignore_index=True)
    if "probe" in rows:
        rows = rows[rows.probe.isin(BROAD_BAND) & rows.snr_db.isna()]
    is_generator = rows.method.map(lambda name: METHODS[name].recipe is not None)
    default_updates = is_generator & (rows.profile == rows.method.map(default_profile))
    compared = (rows.method == "wmmse") & (rows.k == 3) & (rows.profile == "paper")
    chosen = rows[(rows.condition == "original") & ((rows.k == 0) | default_updates | compared)].assign(split=0)
    return {
        as_design(key).name: {str(name): round(float(value), 4) for name, value in mean.items()}
        for key, mean in split_means(chosen, list(COLUMNS)).iterrows()
    }


def model_name(configuration: Configuration, method: str, split: int, seed: int) -> str:
    """Return the name under which a generator is published."""
    protocol = "" if configuration.protocol == "by-person" else f"-{configuration.protocol}"
    return f"{configuration.dataset}{protocol}-{method}-split{split:02d}-seed{seed}"
