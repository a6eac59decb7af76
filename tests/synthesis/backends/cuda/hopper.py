"""Compiles the kernels for sm_90 with the compiler and assembler in Triton's package: no GPU needed.

    python -m tests.synthesis.backends.cuda.hopper [KERNEL ...]

prints the figures of each kernel, by default of all, which takes some minutes.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from synthesis.generator_config import GeneratorConfig

KERNELS = "synthesis.backends.cuda.kernels"
GRID = {"N_BINS": 4097, "BLOCK": 1024, "STRIDE": 4, "TAPS": 2048, "HALF": 4096}
SIZES: dict[str, dict[str, int | bool]] = {
    "toeplitz": GRID | {"N_ITERATIONS": 4},
    "fir_wiener": GRID | {"POINTS": 128},
    "features": GRID | {"WIDTH": 1024},
    "gauss_newton": GRID | {"POINTS": 4096, "PARTS": 1, "COLUMNS": 16, "N_COLUMNS": 9, "BEGIN": False},
    "generator": {},
}
TYPES = {
    "n_points": "i32",
    **dict.fromkeys(("tolerance", "eps", "bound"), "fp32"),
    **dict.fromkeys(("count", "lower", "edges", "stopped", "n_applied", "dilations"), "*i32"),
}
"""Of the arguments that are not `*fp32`."""


def compiled(names: tuple[str, ...], triton_folder: str | None = None) -> dict[str, dict[str, Any]]:
    """By name: barriers, registers per program, bytes of stack per thread and of shared memory, and the arguments
    for which Triton would compile another variant if they were aligned or had another value.

    In another process, because Triton interprets in this one. triton_folder: where another version is installed.
    """
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    path = [*([triton_folder] if triton_folder else []), *sys.path]
    environment["PYTHONPATH"] = os.pathsep.join(each for each in path if each)
    command = [sys.executable, "-m", __name__, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {each["kernel"]: each for each in map(json.loads, done.stdout.splitlines())}


def main(names: list[str]) -> None:
    """Print a line of JSON for each kernel."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    for module_name, sizes in SIZES.items():
        module = importlib.import_module(f"{KERNELS}.{module_name}")
        if module_name == "generator":
            sizes = module.sizes(GeneratorConfig.prime_log())
        for name, n_warps in module.N_WARPS.items():
            if names and name not in names:
                continue
            kernel = getattr(module, name)
            signature = {
                each: "constexpr" if each in sizes else TYPES.get(each, "*fp32") for each in kernel.arg_names
            }
            source = ASTSource(kernel, signature, {key: value for key, value in sizes.items() if key in signature})
            made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": n_warps})
            with TemporaryDirectory() as folder:
                file = Path(folder) / "kernel.cubin"
                file.write_bytes(made.asm["cubin"])
                usage = subprocess.run(
                    [tool, "-res-usage", file], capture_output=True, text=True, check=True
                ).stdout
            registers, stack = (re.search(rf"{what}:(\d+)", usage) for what in ("REG", "STACK"))
            assert registers is not None
            assert stack is not None
            found = {
                "kernel": name,
                "triton": triton.__version__,
                "barriers": len(re.findall(r"bar\.sync", made.asm["ptx"])),
                "registers": int(registers[1]) * 32 * n_warps,
                "stack": int(stack[1]),
                "shared": made.metadata.shared,
                "variants": [
                    each.name
                    for each in kernel.params
                    if not (each.is_constexpr or each.do_not_specialize or each.do_not_specialize_on_alignment)
                    and signature[each.name] != "fp32"
                ],
            }
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
