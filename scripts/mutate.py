"""Put single faults into the numerical code, one at a time, and see whether the tests beside it notice.

A fault is made in a copy of the tree, and the tests of its row are run there. Results are written after every fault,
so that a run that was stopped goes on where it was: `python scripts/mutate.py`; `--again survived` repeats those that
were not caught, `--only NUMBER ...` runs some.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
NEEDED = 36
TIME_LIMIT_S = 900
PYTEST = (sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider")
COPIED = (
    *("synthesis", "measurement", "hardware", "model_store", "service", "training", "cli", "prime_anc_client"),
    *("benchmarks", "workbench", "tests", "scripts", "deploy", "docs", "examples", "studies"),
)
CORE = "synthesis/backends/cpu/core/"
# Only the machine's level, which is all that tests run.
BUILD = (
    "from synthesis.backends.cpu import build, library;"
    "build.LEVELS = {build.machine(): [library.level()]}; build.compile_core()"
)


class Fault(NamedTuple):
    """A text of a file, which occurs there once, and what takes its place."""

    file: str
    text: str
    replacement: str
    tests: tuple[str, ...]


SYNTHESIS = "tests/synthesis"
TESTS_OF_CORE = ("tests/synthesis/backends/cpu", SYNTHESIS)


def _of(folder: str, file: str, rows: list[tuple[str, str]], *tests: str) -> list[Fault]:
    return [Fault(folder + file, text, replacement, tests) for text, replacement in rows]


FAULTS = [
    *_of(
        "synthesis/", "bands.py",
        [("NR_BANDS = tuple(range(17, 38))", "NR_BANDS = tuple(range(17, 37))")],
        "tests/synthesis/test_bands.py", SYNTHESIS,
    ),
    *_of(
        "synthesis/", "predict.py",
        [("DOUBT, ALIGNED = 3.0, 0.5", "DOUBT, ALIGNED = 0.5, 0.5"),
         ("residual + 2 * (_MISSING * cross).real", "residual + (_MISSING * cross).real"),
         ("(10 ** (2.0 / 20) * gain) ** 2", "(10 ** (2.0 / 10) * gain) ** 2"),
         ("[[10 ** (1 / 20)], [10 ** (-1 / 20)]]", "[[10 ** (1 / 10)], [10 ** (-1 / 10)]]")],
        "tests/synthesis/test_predict.py", SYNTHESIS,
    ),
    *_of(
        "synthesis/", "loop.py",
        [("np.where(is_upward, -1, 1)", "np.where(is_upward, 1, 1)"),
         ("-20 * math.log10(max(gain", "-10 * math.log10(max(gain"),
         ("secondary) / (1 + spectrum", "secondary) / (1 - spectrum")],
        "tests/synthesis/test_loop.py", SYNTHESIS,
    ),
    *_of(
        "synthesis/", "objective.py",
        [("(2 * xp.log(mean_amplitude)", "(xp.log(mean_amplitude)"),
         ("risk = largest + xp.log(total / n_bands)", "risk = largest + xp.log(total)")],
        "tests/synthesis/test_objective.py", SYNTHESIS,
    ),
    *_of(
        "synthesis/", "tap_objective.py",
        [("weight * paths.secondary.conj() * residual", "weight * paths.secondary * residual"),
         ("torch.as_tensor(10 ** (max_gain_db / 20)", "torch.as_tensor(10 ** (max_gain_db / 10)")],
        "tests/synthesis/test_update.py", SYNTHESIS,
    ),
    *_of(
        "synthesis/", "step_plane.py",
        [("(x * self._square[0] - 2 * self._cross[0])", "(x * self._square[0] - self._cross[0])")],
        "tests/synthesis/test_update.py", SYNTHESIS,
    ),
    *_of(
        "synthesis/", "toeplitz.py",
        [("self._forward * forward - self._backward", "self._forward * forward + self._backward")],
        "tests/synthesis/test_toeplitz.py", SYNTHESIS,
    ),
    *_of(
        "synthesis/", "posing.py",
        [("np.exp(-2j * np.pi * problem", "np.exp(2j * np.pi * problem")],
        "tests/synthesis/test_latency.py", SYNTHESIS,
    ),
    *_of(
        "synthesis/", "plausibility.py",
        [("MIN_LEVEL_DB = 3.5", "MIN_LEVEL_DB = 5.25")],
        "tests/synthesis/test_plausibility.py", SYNTHESIS,
    ),
    *_of(
        "synthesis/", "support_statistics.py",
        [("spectrum[first:last] * phasor[first:last]", "spectrum[first:last] * phasor[first:last].conj()")],
        "tests/synthesis/test_support_statistics.py", SYNTHESIS,
    ),
    *_of(
        "synthesis/", "expected_error.py",
        [("return primary / scale, secondary * scale", "return primary, secondary * scale"),
         ("return whole, whole - 1", "return whole, whole")],
        "tests/synthesis/test_expected_error.py", "tests/synthesis",
    ),
    *_of(
        "synthesis/start/", "fir_wiener.py",
        [("matched = weight * xp.conj(secondary) * primary", "matched = weight * secondary * primary")],
        "tests/synthesis/start", SYNTHESIS,
    ),
    *_of(
        CORE, "tap_objective.h",
        [("(x * c->square[0][b] - 2 * c->cross[0][b])", "(x * c->square[0][b] - c->cross[0][b])")],
        *TESTS_OF_CORE,
    ),
    *_of(
        CORE, "objective.h",
        [("share[t] * sqrt(found) / amplitude[b]", "share[t] * found / amplitude[b]")],
        *TESTS_OF_CORE,
    ),
    *_of(
        CORE, "wiener.h",
        [("share * (w * (x * b - y * a))", "share * (w * (x * b + y * a))"),
         ("b < NR_FIRST + NR_COUNT; b++)", "b < NR_FIRST + NR_COUNT - 1; b++)")],
        *TESTS_OF_CORE,
    ),
    *_of(
        CORE, "ceiling.h",
        [("splat8(1))) * 0.5f);", "splat8(1))) * 1.0f);")],
        *TESTS_OF_CORE,
    ),
    *_of(
        CORE, "predict.h",
        [("store8(s->fourth + k, w * (re * yi - im * yr));", "store8(s->fourth + k, w * (re * yi + im * yr));")],
        *TESTS_OF_CORE,
    ),
    *_of(
        CORE, "unknown.h",
        [("log2(n_samples > 1 ? n_samples : 1) - 7", "log2(n_samples > 1 ? n_samples : 1) - 6")],
        *TESTS_OF_CORE,
    ),
    *_of(
        "measurement/", "posterior.py",
        [("item) ** -DECAY_POWER", "item) ** DECAY_POWER")],
        "tests/measurement/test_posterior.py", "tests/measurement",
    ),
    *_of(
        CORE, "features.h",
        [("store8(c[RATIO_IM] + k, b * x - a * y);", "store8(c[RATIO_IM] + k, b * x + a * y);")],
        *TESTS_OF_CORE,
    ),
    *_of(
        "measurement/", "estimate.py",
        [("reference.conj() * error", "reference * error"),
         ("state.transfer) / state.gain for", "state.transfer) * state.gain for")],
        "tests/measurement/test_estimate.py", "tests/measurement",
    ),
    *_of(
        "measurement/", "verify.py",
        [("gain = 10 ** (-found.gain_db / 20)", "gain = 10 ** (found.gain_db / 20)"),
         ("return 1.2816 * float(np.hypot", "return 1.9224 * float(np.hypot")],
        "tests/measurement/test_verify.py", "tests/measurement",
    ),
    *_of(
        "measurement/", "transfers.py",
        [("value = (silent.value - state.value) / gain", "value = (silent.value - state.value) * gain"),
         (".clip(min=(1 - COMMON) * own) / gain**2", ".clip(min=(1 - COMMON) * own) / gain**4")],
        "tests/measurement/test_posterior.py", "tests/measurement",
    ),
    *_of(
        "measurement/files/", "units.py",
        [("np.asarray(10 ** (values / 20))", "np.asarray(10 ** (values / 10))")],
        "tests/measurement/files",
    ),
    *_of(
        "hardware/", "fixed_point.py",
        [("max(-top - 1, min(", "max(-top, min("),
         ("- 10 * np.log10(12)", "- 20 * np.log10(12)")],
        "tests/hardware/test_fixed_point.py", "tests/hardware",
    ),
    *_of(
        "hardware/", "residual_power.py",
        [("primary * secondary.conj()", "primary * secondary")],
        "tests/hardware/test_residual_power.py", "tests/hardware",
    ),
    *_of(
        "hardware/", "short_fir.py",
        [("to_lags(whole).real - symbol[0].real", "to_lags(whole).real"),
         ("int(sample_rate_hz / 2 / BIN_HZ) + 1", "int(sample_rate_hz / 2 / BIN_HZ)")],
        "tests/hardware/test_short_fir.py", "tests/hardware",
    ),
]  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run what is left of the table; 0 where enough faults are caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "mutations.json", help="results, by fault")
    parser.add_argument("--again", choices=("survived", "timed out", "caught"), help="repeat these")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of faults, from 0")
    chosen = parser.parse_args(arguments)
    results: dict[str, str] = json.loads(chosen.results.read_text()) if chosen.results.exists() else {}
    numbers = range(len(FAULTS)) if chosen.only is None else chosen.only
    check_table()
    began, left = time.monotonic(), [n for n in numbers if results.get(name_of(FAULTS[n])) in (None, chosen.again)]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        copy_tree(copy)
        if left:
            check_sound({test for number in left for test in FAULTS[number].tests}, copy)
        for done, number in enumerate(left, 1):
            fault = FAULTS[number]
            results[name_of(fault)] = outcome = try_fault(fault, copy)
            chosen.results.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
            minutes_left = (time.monotonic() - began) / done * (len(left) - done) / 60
            print(
                f"{done}/{len(left)}, {minutes_left:.0f} min left: {outcome}: {number} {name_of(fault)}", flush=True
            )
    counts = Counter(results.get(name_of(fault), "not run") for fault in FAULTS)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()), f"of {len(FAULTS)}")
    return 0 if counts["caught"] >= NEEDED else 1


def name_of(fault: Fault) -> str:
    """Return the key of a result."""
    return f"{fault.file}: {fault.text} -> {fault.replacement}"


def check_table() -> None:
    """Check that all texts occur once in their files, and all tests exist; raises SystemExit with the exceptions."""
    wrong = [name_of(fault) for fault in FAULTS if (ROOT / fault.file).read_text("utf-8").count(fault.text) != 1]
    wrong += [test for fault in FAULTS for test in fault.tests if not (ROOT / test).exists()]
    if wrong:
        raise SystemExit("mutate: not found once:\n" + "\n".join(wrong))


def check_sound(tests: set[str], copy: Path) -> None:
    """Raise SystemExit unless the tests pass without a fault, or none of them would show anything."""
    folders = sorted(test for test in tests if not any(test.startswith(f"{other}/") for other in tests))
    if run([*PYTEST, *folders], copy, 4 * TIME_LIMIT_S):
        raise SystemExit(f"mutate: without a fault too, a test fails or takes too long in {', '.join(folders)}")
    print("the tests pass without a fault", flush=True)


def copy_tree(copy: Path) -> None:
    """Copy the packages and their tests, with the compiled core."""
    copy.mkdir()
    for folder in COPIED:
        if (ROOT / folder).is_dir():
            shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (
        *ROOT.glob("*.toml"),
        *ROOT.glob("*.txt"),
        *ROOT.glob("*.py"),
        *ROOT.glob("*.md"),
        ROOT / "Makefile",
    ):
        shutil.copy(file, copy)
    compileall.compile_dir(copy, quiet=1)  # runs write none: one of the same second might belong to another fault


def try_fault(fault: Fault, copy: Path) -> str:
    """Return `caught`, `survived` or `timed out`; the copy is as it was afterwards."""
    file = copy / fault.file
    sound = file.read_text("utf-8")
    file.write_text(sound.replace(fault.text, fault.replacement), "utf-8")
    try:
        if fault.file.startswith(CORE) and run([sys.executable, "-c", BUILD], copy):
            return "caught"
        # In turn, the nearest first: folders repeat what comes before them, which costs little beside the rest.
        for test in fault.tests:
            status = run([*PYTEST, test], copy)
            if status is None:
                return "timed out"
            if status:
                return "caught"
        return "survived"
    finally:
        file.write_text(sound, "utf-8")
        if fault.file.startswith(CORE):
            for compiled in (ROOT / CORE).parent.glob("*.so"):
                shutil.copy(compiled, file.parents[1])


def run(command: list[str], folder: Path, limit_s: float = TIME_LIMIT_S) -> int | None:
    """Return the exit status of a command, without cases from the field; None where it takes too long."""
    environment = {name: value for name, value in os.environ.items() if name != "PRIME_CASES"}
    environment |= {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None


if __name__ == "__main__":
    raise SystemExit(main())
