"""What is designed from each setting's estimates: the untrained methods and the generators, alone and refined."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from model_store.checkpoint import Checkpoint
from synthesis.gauss_newton import FAST, PAPER, PROFILES, RefinementProfile, refine, suited_profile
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import DEFAULT_MAX_GAIN_DB
from training.baselines import ProjectedRatio, RatioBase, Wmmse

UNTRAINED = ("ratio_base_full_band", "ratio_base_held_band", "projected_ratio", "wmmse")


N_UPDATES = (1, 2, 3)


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


def training_window(checkpoint: Checkpoint | None) -> int | None:
    """Samples of the calibration window that a model was trained at; None for what needs no training."""
    return None if checkpoint is None else int(str(checkpoint.manifest.training["window"]))
