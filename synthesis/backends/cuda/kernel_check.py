"""Whether the Triton kernels work here: compiled, and compared with torch operators, in a separate process.

An illegal memory access leaves the CUDA context of its process unusable, so the first launch on an unknown driver
or compiler must not happen in the process that serves.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from synthesis.backends.base import ModelParameters
from synthesis.backends.cuda.buffers import BatchInputs, BatchOutputs
from synthesis.backends.cuda.stages import Stages
from synthesis.backends.reference import model_parameters
from synthesis.conventions import N_BINS
from synthesis.generator import Generator
from synthesis.generator_config import GeneratorConfig
from synthesis.profiles import FAST, FINE

TIME_LIMIT_S = 300
MAX_DIFFERENCE = {"filter": 2e-3, "taps": 4e-3, "objective": 1e-3}
"""Relative, from torch operators in float32, on well-conditioned paths."""


@cache
def unsupported_reason(device: torch.device, config: GeneratorConfig) -> str | None:
    """Why the kernels cannot be used on a device for a generator's layout; None where they can."""
    if find_spec("triton") is None:
        return "Triton is not installed; pip install prime-anc[gpu]"
    if device.type == "cpu":  # Triton's interpreter, for tests
        return None
    program, described = f"from {__name__} import main; main()", json.dumps(config.to_dict())
    command = [sys.executable, "-c", program, str(device), described]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"their check took longer than {TIME_LIMIT_S} s"
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines()
        return lines[-1] if lines else f"their check ended with status {done.returncode}"
    return None


def check(device: torch.device, config: GeneratorConfig) -> str | None:
    """Design for two ears with and without the kernels, in this process; returns what differs, or None."""
    parameters = example_parameters(config)
    found, expected = (_design(Stages(parameters, device, kernels=each)) for each in (True, False))
    for name, values in expected.items():
        difference = float((found[name] - values).norm() / values.norm())
        most = MAX_DIFFERENCE[name.split()[0]]
        if not difference < most:
            return (
                f"{name}: relative difference from torch operators {difference:.1e}, at most {most:g} is rounding"
            )
    return None


def example_parameters(config: GeneratorConfig) -> ModelParameters:
    """A generator that corrects, which an untrained one does not; the caller's random numbers stay as they are."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        generator = Generator(config)
        with torch.no_grad():
            generator.head[-1].get_parameter("weight").normal_(std=0.05)
    return model_parameters(generator, torch.full((N_BINS,), 1e-4), torch.full((2, 31), 0.1))


@torch.inference_mode()
def _design(stages: Stages) -> dict[str, Tensor]:
    """The generator's filter for delayed low-pass paths, and taps and J after one update of it in each profile."""
    device = stages.reference_psd.device
    inputs, outputs = BatchInputs(2, stages.reference_psd), BatchOutputs(2, device)
    bins = torch.linspace(0, torch.pi, N_BINS, dtype=torch.float64)
    for row, level in enumerate((1.0, 1.5)):
        inputs.primary[row] = torch.polar(1 / (level + bins), -30 * bins).to(device)
        inputs.secondary[row] = torch.polar(1 / (2 + level * bins), -10 * bins).to(device)
    found = {"filter": stages.initial_filter("prime", inputs)}
    for profile in (FAST.name, FINE.name):
        stages.begin_updates(profile, inputs, found["filter"].clone(), outputs)()
        found[f"taps after {profile}"] = outputs.taps.clone()
        found[f"objective after {profile}"] = outputs.history[:, 0, -2:].clone()
    return found


def main() -> None:
    """Arguments: the device and, optionally, the generator's configuration as JSON (default: `prime-log`)."""
    device, *given = sys.argv[1:]
    config = GeneratorConfig.from_dict(json.loads(given[0])) if given else GeneratorConfig.prime_log()
    sys.exit(check(torch.device(device), config))
