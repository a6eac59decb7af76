"""`python -m benchmarks adaptive`: samples per second of FxLMS and FxNLMS, and how long an ear takes them.

Their loops are compiled, sample by sample, and run on one core whatever the machine. They adapt on the true paths.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from benchmarks import ears as ears_module
from benchmarks import machine, results
from benchmarks.ears import Ears
from benchmarks.results import Row
from synthesis.conventions import SAMPLE_RATE_HZ
from synthesis.paths import AcousticPaths
from training.baselines.adaptive import FxLms, FxNlms, Schedule

QUICK = Schedule(interval_s=0.5, cap_s=1.0)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's own."""
    machine.add_options(parser)
    ears_module.add_options(parser)
    parser.add_argument("--ears", type=int, default=4, help="how many ears adapt")
    parser.add_argument("--quick", action="store_true", help="one second of one ear: to see that it runs")


def run(options: argparse.Namespace) -> None:
    """Adapt ear after ear, write adaptive.json."""
    described = machine.describe(machine.prepare(options))
    ears = ears_module.chosen(options)
    rows = []
    for place in range(1 if options.quick else min(options.ears, len(ears))):
        for method in (FxLms(), FxNlms()):
            if options.quick:
                method = replace(method, schedule=QUICK)
            row = adapt(method, ears, place)
            print(
                f"{row['method']}, {row['ear']}: {row['samples_per_s']:.0f} samples/s, {row['adapted_s']:.0f} s of "
                f"signal, {row['noise_reduction_db']:.1f} dB, ended by {row['stopped']}",
                flush=True,
            )
            rows.append(row)
    results.write(options.out, "adaptive", described, {"quick": options.quick}, rows, data=ears.data)


def adapt(method: FxLms, ears: Ears, place: int) -> Row:
    """One ear's account. times_real_time: seconds of signal a second of computing adapts to, validations apart."""
    one = AcousticPaths(ears.true.primary[place : place + 1], ears.true.secondary[place : place + 1])
    _, (account,) = method.adapt(one)
    found: Row = results.rounded(
        {
            "method": method.name,
            "ear": ears.names[place],
            "samples_per_s": account.samples_per_s,
            "times_real_time": account.samples_per_s / SAMPLE_RATE_HZ,
            "adapted_s": account.adapted_s,
            "noise_reduction_db": max(account.noise_reduction_db),
            "stopped": account.stopped,
            "n_divergences": account.n_divergences,
        }
    )
    return found
