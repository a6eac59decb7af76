"""Designs that the core must survive, ordinary and hostile ones in one sequence.

`python -m tests.core.hostile LIBRARY N` runs N of them with a core that was compiled elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from model_store.store import DEFAULT_ROOT, ModelStore
from prime_anc.core import library
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS, N_TAPS
from prime_anc.method.design import design_all, predict_all
from prime_anc.method.gain_curve import GainCurve
from prime_anc.method.loops.controller import Controller
from prime_anc.method.loops.sections import Sections
from prime_anc.method.methods import METHODS
from prime_anc.method.profiles import PROFILES
from prime_anc.method.types import DesignOptions, Fallback, Model, Paths, Problem

Draw = Callable[[np.random.Generator, int], np.ndarray]


def _decaying(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.standard_normal(n) * np.exp(-np.arange(n) / rng.uniform(5, 200))


def _nyquist(rng: np.random.Generator, n: int) -> np.ndarray:
    return (-1.0) ** np.arange(n) * rng.choice([1, -1, 1e-3])


def _impulse(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.eye(1, n, rng.integers(n))[0]


SHAPES: tuple[Draw, ...] = (
    _decaying,
    _decaying,  # twice as often
    _nyquist,
    _impulse,
    lambda rng, n: np.ones(n),
    lambda rng, n: np.cos(np.arange(n) * rng.uniform(0, np.pi)),
    lambda rng, n: rng.standard_normal(n),
)
LENGTHS = (1, 2, 7, 200, 1000, 2048, 4097, 8192, DESIGN_N_FFT - 1, DESIGN_N_FFT)
LEVELS = (1.0, 1.0, 1.0, 1.0, 1e-18, 1e18, 3e38)
UNUSABLE = (0.0, np.nan, np.inf)
CEILINGS = (30.0, 30.0, -20.0, -3.0, 6.0, 60.0, 300.0, GainCurve([50, 1000, 8000], [20, -20, 6]))
TONE = ((-1.0) ** np.arange(DESIGN_N_FFT)).astype(np.float32)
# Paths of which a filter under a low ceiling is not finite in float32.
TONES = TONE, -TONE


def _path(rng: np.random.Generator, level: float) -> np.ndarray:
    found = SHAPES[rng.integers(len(SHAPES))](rng, int(rng.choice(LENGTHS))) * level
    if rng.random() < 0.02:
        found *= rng.choice(UNUSABLE)
    if rng.random() < 0.2:
        return np.fft.rfft(found, DESIGN_N_FFT).astype(np.complex64)
    return found.astype(np.float32)


def _pair(rng: np.random.Generator, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Any two paths, or two that nearly cancel."""
    primary = _path(rng, level)
    if rng.random() < 0.3:
        return primary, -primary * np.float32(rng.choice([1, 1 + 1e-6, 0.5]))
    return primary, _path(rng, level * rng.choice([1, 1, 1, 1e-3, 1e4]))


def _psd(rng: np.random.Generator) -> np.ndarray | None:
    kind = rng.integers(6)
    if kind > 2:
        return None
    values = (np.ones(N_BINS), rng.random(N_BINS), np.eye(1, N_BINS, N_BINS - 1)[0])[kind]
    return (values * rng.choice([1.0, 1e-30, 1e30])).astype(np.float32)


def _controller(rng: np.random.Generator) -> Controller:
    """Sections that may close a stable loop, and may be refused."""
    gain, pole = 10.0 ** rng.uniform(-6, 0), 1 - 10.0 ** rng.uniform(-6, 0)
    return Controller(Sections(np.array([[gain * (1 - pole), 0, 0, 1, -pole, 0]]), 48_000.0), rng.random() / 1e3)


def corpus(seed: int, n: int) -> Iterator[tuple[Problem, DesignOptions, Fallback | None]]:
    """`n` designs over paths, lengths, levels, methods, profiles, conditions and ceilings."""
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        for _ in range(n):
            n_others = int(rng.choice([0] * 12 + [1, 2, 15]))
            level = rng.choice(LEVELS)
            others = tuple(Paths(*_pair(rng, level)) for _ in range(n_others))
            coherence, uncertainty = None, None
            if rng.random() < 0.3:
                coherence = rng.random(N_BINS).astype(np.float32)
            elif rng.random() < 0.3:
                uncertainty = rng.random((2, 31)).astype(np.float32)
            ceiling = CEILINGS[rng.integers(len(CEILINGS))]
            ear = Problem(
                (Paths(*_pair(rng, level), coherence, uncertainty=uncertainty), *others),
                _psd(rng),
                max_gain_db=ceiling,
            )
            if rng.random() < 0.1:
                ear = Problem((Paths(*TONES),), max_gain_db=-20.0)
            if not n_others and rng.random() < 0.3:
                ear = replace(ear, controller=_controller(rng))
            method, profile = METHODS[rng.integers(len(METHODS))], list(PROFILES)[rng.integers(len(PROFILES))]
            fallback = Fallback() if rng.random() < 0.3 else None
            yield ear, DesignOptions(method, int(rng.integers(4)), profile), fallback


def main(compiled: Path, n: int) -> None:
    """Design, predict and evaluate with the core in that file, whatever comes out."""
    library._compiled = lambda level: compiled
    model = Model.on("cpu", ModelStore(DEFAULT_ROOT).load("bose-qc20").parameters)
    for ear, options, fallback in corpus(1, n):
        design_all([ear], options, model, fallback)
        taps = [np.ones(N_TAPS, np.float32)]
        predict_all([ear], taps, model)
        predict_all([ear], taps, model, is_true=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
