"""Contenders of `core`: backends, and SciPy's Toeplitz solver."""

from __future__ import annotations

from time import perf_counter

import numpy as np
from scipy.linalg import solve_toeplitz

from benchmarks.ears import Ears, taps_of
from benchmarks.timing import Times
from prime_anc.method.conventions import CORE_STAGES
from prime_anc.method.design import design_all
from prime_anc.method.types import DesignOptions, Float32, Model, ModelParameters

N_TAPS, N_FFT = 2048, 32_768


def core_ms(times: Times) -> float:
    """Return the time from resident spectra to the filter."""
    return sum(times.get(stage, 0.0) for stage in CORE_STAGES)


class BackendDesigner:
    """A backend as the service calls it, arrays in and out, without socket and queue."""

    def __init__(self, model: Model, ears: Ears, n_updates: int, batch: int = 1) -> None:
        self.model, self._ears, self._batch = model, ears, batch
        self._options = DesignOptions(n_updates=n_updates)

    def __call__(self, number: int) -> Times:
        """Return the stages of round `number`, including `core` and `total` (the whole call)."""
        inputs = self._ears.batch(number, self._batch)
        began = perf_counter()
        designs = design_all(inputs, self._options, self.model)
        total = 1e3 * (perf_counter() - began)
        taps_of(designs)
        times = dict(designs[0].times_ms)  # type: ignore[union-attr]
        return times | {"core": core_ms(times), "total": total}

    def all_taps(self) -> list[Float32]:
        """Design the filters of all ears, in batches of the timed size."""
        found: list[Float32] = []
        for first in range(0, len(self._ears), self._batch):
            found += taps_of(design_all(self._ears.batch(first, self._batch), self._options, self.model))
        return found[: len(self._ears)]


class ToeplitzSolver:
    """The WMMSE equations by `scipy.linalg.solve_toeplitz` in float64: Levinson's recursion, O(n_taps^2).

    Timed is the solution alone. The equations are those of a filter without whitening: the autocorrelation of s * x and
    its correlation with p * x, with 1e-4 of white noise added.
    """

    def __init__(self, ears: Ears) -> None:
        primary, secondary = (np.fft.rfft(pair, N_FFT) for pair in ears.pairs[0])
        self._column = np.fft.irfft(np.abs(secondary) ** 2, N_FFT)[:N_TAPS]
        self._column[0] *= 1 + 1e-4
        self._rhs = np.fft.irfft(secondary.conj() * primary, N_FFT)[:N_TAPS]

    def __call__(self, number: int) -> Times:
        """Return the time of the solution as `core`."""
        began = perf_counter()
        solve_toeplitz(self._column, self._rhs)
        return {"core": 1e3 * (perf_counter() - began)}


def untrained(parameters: ModelParameters, kind: str) -> ModelParameters:
    """Return the model with a generator of another layout at initial weights, for its times, not its filters."""
    from dataclasses import replace

    import torch

    from prime_anc.method.start.features import GeneratorConfig
    from prime_anc.method.start.generator import Generator

    config = getattr(GeneratorConfig, kind)()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        state = Generator(config).state_dict()
    return replace(parameters, config=config, weights={name: item.numpy() for name, item in state.items()})
