"""Try to make the stability of loops wrong: `python -m studies.stability --out FILE [--data DIR] [--words]`.

Random plants of measured ears, with random gains, delays, leaks and resonances, and random chips. Each controller that
is designed runs in time at the chip's rate, in its number format: on all its plants at all levels, then at random gains
on further random plants. Nothing called stable may grow, nothing called unstable decay. With `--words`, signals are
rounded as well: fixed point runs on all its plants, sample by sample, also much louder. Finished rows are kept.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Hashable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.signal import fftconvolve, firwin, lfilter, sosfilt

from model_store.store import BUNDLED_ROOT, ModelStore
from prime_anc.hardware.hybrid import HybridDesign, design_hybrid
from prime_anc.hardware.plants import GAINS_DB
from prime_anc.hardware.running import ONSET, Machine, run_in_loop
from prime_anc.method.controller import Controller, is_quiet_beyond, judge
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS, SAMPLE_RATE_HZ
from prime_anc.method.types import DesignOptions, Model, Paths, Problem
from prime_anc.options import ControllerFields
from training.data import open_dataset

RATES = (1, 1, 1, 2, 4, 8, 16)  # over 48 kHz
FORMATS = ("float32", "float64", "q1.31", "q5.27")
N_PLANT = 1024  # samples of a plant at 48 kHz
DURATION_S = 0.8
# A loop this close to the limit grows or decays too slowly to tell.
CRITICAL_DB, CRITICAL_GAIN_DB = 30.0, 0.01
N_LOWPASS = 8  # zero crossings of the resampling filter on either side
LOUD = 1e9
# Level over the largest that rounding may leave of a response that has decayed.
ROUNDED = 1e-12
# Loops at other gains per design.
N_OTHERS = 12
# In words: a kick that no stable loop saturates by, what may stay as round-off, as a share of the peak and in units of
# the output, and how far in dB the level of a loop that saturates may fall.
KICK, WORDS_S, LEFT, LEFT_UNITS, STEADY_DB = 2.0**-6, 0.6, 1e-3, 16, 1.0


def simulated(plant: np.ndarray, controller: Controller) -> float:
    """Compute the impulse response of the closed loop, and return its level's growth in dB at the end.

    With h, the impulse response of S K, the error microphone hears g = 1 / (1 + h) as a power series: g[n] follows
    from the samples before it. Newton's iteration doubles the number of known samples.

    Parameters
    ----------
    plant
        Impulse response at the chip's rate; the first sample is zero.
    controller
        Its delay is a whole number of samples.
    """
    rate = controller.sections.sample_rate_hz
    n_samples = int(DURATION_S * rate)
    late = np.zeros(n_samples)
    delayed = np.concatenate((np.zeros(round(controller.latency_s * rate)), plant))[:n_samples]
    late[: len(delayed)] = delayed
    loop = sosfilt(controller.sections.rows, late)
    loop[0] += 1
    closed = np.ones(1)
    while len(closed) < n_samples:
        n = min(2 * len(closed), n_samples)
        missing = -fftconvolve(loop[:n], closed)[:n]
        missing[0] += 2
        closed = fftconvolve(closed, missing)[:n]
        if not np.abs(closed).max() < LOUD:
            return np.inf
    return growth(closed, ROUNDED)


def growth(response: np.ndarray, least: float) -> float:
    """Compute a level's growth in dB at the end; -inf if that is below the share `least` of the largest sample."""
    size, n = np.abs(response), len(response)
    first, second = (size[int(a * n) : int(b * n)].max() for a, b in ((0.4, 0.7), (0.7, 1.0)))
    return 20 * float(np.log10(second / first)) if second > least * size.max() else -np.inf


def growth_in_words(plant: np.ndarray, found: HybridDesign) -> float:
    """Run a loop in fixed point after a kick, and return its level's growth in dB at the end.

    Parameters
    ----------
    plant
        Impulse response at the chip's rate, without what precedes its onset.
    found
        With a controller in fixed point.
    """
    assert found.quantised is not None
    assert found.scaling is not None
    controller, quantised = found.controller, found.quantised
    rate = controller.sections.sample_rate_hz
    coefficients = {"form": "sos", "sample_rate": rate, "number_format": str(quantised.format)}
    coefficients |= {"words": quantised.words, "shift": quantised.shift, "scaling": asdict(found.scaling)}
    late = np.concatenate((np.zeros(round(controller.latency_s * rate)), plant))
    kick = np.zeros(int(WORDS_S * rate))
    kick[0] = KICK
    (outputs,) = run_in_loop([Machine(coefficients)], [kick], [[late]])
    unit = 2.0 ** (found.scaling.headroom_bits + 1 - quantised.format.n_bits)
    return growth(outputs, max(LEFT, LEFT_UNITS * unit / np.abs(outputs).max())) + STEADY_DB


def in_words(seed: int, found: HybridDesign, plants: Sequence[np.ndarray]) -> list[dict[Hashable, Any]]:
    """Run a controller in fixed point on its plants, and on one of them much louder: one row each."""
    if found.quantised is None:
        return []
    rate, rows = found.controller.sections.sample_rate_hz, []
    for gain, plant in [*((1.0, plant) for plant in plants), (4.0, plants[0]), (16.0, plants[0])]:
        begun = gain * plant * (np.cumsum(np.abs(plant) > ONSET * np.abs(plant).max()) > 0)
        loop, growth_db = judge(found.controller, at_bins(begun, rate)), growth_in_words(begun, found)
        row: dict[Hashable, Any] = {"seed": seed, "rate": rate, "format": str(found.quantised.format), "gain": gain}
        row |= {"stable": loop.stable, "sensitivity_db": loop.max_sensitivity_db, "growth_db": growth_db}
        # A loop near the limit takes longer to decay.
        row["judged"] = loop.max_sensitivity_db < CRITICAL_DB / 2
        rows.append(row | {"wrong": row["judged"] and (growth_db < 0) != loop.stable})
    return rows


def random_plants(secondary: np.ndarray, rate: float, random: np.random.Generator) -> list[np.ndarray]:
    """Change an ear's response, and sample it at the chip's rate: one to four plants."""
    up, plants = round(rate / SAMPLE_RATE_HZ), []
    ear = secondary[:N_PLANT] * np.hanning(2 * N_PLANT)[N_PLANT:]
    for _ in range(random.integers(1, 5)):
        plant = 10 ** (random.uniform(-9, 9) / 20) * ear
        if random.random() < 0.4:  # a leak
            pole = np.exp(-2 * np.pi * random.uniform(20, 400) / SAMPLE_RATE_HZ)
            plant = lfilter([(1 + pole) / 2, -(1 + pole) / 2], [1, -pole], plant)
        if random.random() < 0.4:
            plant = sosfilt(resonance(random), plant)
        plant = np.concatenate((np.zeros(random.integers(1, 4)), plant))
        if up > 1:
            spread = np.zeros(up * len(plant))
            spread[::up] = plant
            plant = np.convolve(spread, up * firwin(2 * N_LOWPASS * up + 1, 0.9 / up))
        plants.append(plant)
    return plants


def resonance(random: np.random.Generator) -> np.ndarray:
    """Draw a peak or notch of up to 10 dB with a quality of up to 10, [1, 6]."""
    omega, gain = (
        2 * np.pi * np.exp(random.uniform(np.log(50), np.log(8000))) / SAMPLE_RATE_HZ,
        10 ** random.uniform(-0.25, 0.25),
    )
    alpha = np.sin(omega) / (2 * random.uniform(0.5, 10))
    numerator, denominator = ([1 + alpha * g, -2 * np.cos(omega), 1 - alpha * g] for g in (gain, 1 / gain))
    row: np.ndarray = np.array([*numerator, *denominator])[None] / denominator[0]
    return row


def at_bins(plant: np.ndarray, rate: float) -> np.ndarray:
    """Evaluate a response at the chip's rate on the design grid, complex64 [16385]."""
    spectrum = np.fft.rfft(plant, DESIGN_N_FFT * round(rate / SAMPLE_RATE_HZ))[:N_BINS]
    return spectrum.astype(np.complex64)


def one(
    seed: int, ears: Sequence[tuple[np.ndarray, np.ndarray]], model: Model, *, words: bool = False
) -> list[dict[Hashable, Any]]:
    """Design for one random problem, and run the loops: one row each."""
    random = np.random.default_rng(seed)
    rate = float(SAMPLE_RATE_HZ * random.choice(RATES))
    primary, secondary = ears[int(random.integers(len(ears)))]
    plants = random_plants(secondary, rate, random)
    late = round(rate * random.uniform(0, 60e-6))
    wanted = ControllerFields(
        n_sections=int(random.integers(1, 9)),
        sample_rate=rate,
        latency_us=1e6 * late / rate,
        number_format=str(random.choice(FORMATS)),
        max_sensitivity_db=float(random.uniform(3, 12)),
        min_gain_margin_db=float(random.uniform(1, 12)),
        min_phase_margin_deg=float(random.uniform(5, 45)),
    )
    spectra = [at_bins(plant, rate) for plant in plants]
    problem = Problem((Paths(primary.astype(np.float32), spectra[0]),))
    only = [Paths(np.ones(1, np.float32), spectrum) for spectrum in spectra[1:]]
    found = design_hybrid(
        problem, DesignOptions(n_updates=1), model, wanted, stability_only=only, lend_wearing=False
    )
    if words:
        return in_words(seed, found, plants)
    tried = [(10 ** (gain_db / 20), plant, True) for plant in plants for gain_db in GAINS_DB]
    for plant in (random_plants(secondary, rate, random) * N_OTHERS)[:N_OTHERS]:
        # Louder or quieter, or inverted.
        tried.append((random.choice([1, 1, 1, -1]) * 10 ** (random.uniform(-6, 24) / 20), plant, False))
    rows: list[dict[Hashable, Any]] = []
    for gain, plant, is_designed in tried:
        controller = replace(found.controller, sections=found.controller.sections.scaled(gain))
        spectrum = at_bins(plant, rate).astype(complex)
        loop, growth_db = judge(controller, spectrum), simulated(plant, controller)
        is_judged = is_quiet_beyond(controller, spectrum) and loop.max_sensitivity_db < CRITICAL_DB
        is_judged &= abs(loop.gain_margin_db) > CRITICAL_GAIN_DB
        row: dict[Hashable, Any] = {"seed": seed, "rate": rate, "format": wanted.number_format}
        row |= {"designed": is_designed, "gain": gain}
        row |= {"stable": loop.stable, "sensitivity_db": loop.max_sensitivity_db, "growth_db": growth_db}
        row["judged"] = is_designed or is_judged
        row["wrong"] = row["judged"] and ((growth_db < 0) != loop.stable or (is_designed and not loop.stable))
        rows.append(row)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the problems that the file lacks; the status is 1 if one was judged wrongly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="CSV file of the rows")
    parser.add_argument("--data", type=Path, help="any level of the PANDAR database (default: simulated ears)")
    parser.add_argument("--number", type=int, default=500, help="of designs; each has about 20 loops")
    parser.add_argument("--words", action="store_true", help="run in fixed point, with signals rounded")
    request = parser.parse_args(arguments)
    dataset = open_dataset("pandar" if request.data else "simulated", request.data)
    ears = [(pair.primary, pair.secondary) for pair in dataset.pairs]
    model = Model.on("cpu", ModelStore(BUNDLED_ROOT).load("bose-qc20").parameters)
    rows = pd.read_csv(request.out).to_dict("records") if request.out.exists() else []
    first = 1 + max((row["seed"] for row in rows), default=-1)
    for seed in range(first, request.number):
        rows += one(seed, ears, model, words=request.words)
        pd.DataFrame(rows).to_csv(request.out, index=False)
        print(seed, len(rows), "wrong:", {row["seed"] for row in rows if row["wrong"]} or "none", flush=True)
    table = pd.DataFrame(rows)
    table["grew"] = table.growth_db > 0
    print(table.groupby(["rate", "format"])[["stable", "grew", "judged", "wrong"]].sum().to_string())
    return int(table.wrong.any())


if __name__ == "__main__":
    sys.exit(main())
