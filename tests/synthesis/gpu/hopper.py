"""Kernels as machine code for Hopper, by the compiler and assembler that Triton brings along: no GPU needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

COMPILE = """
import importlib, json, re, subprocess, sys
from collections import Counter
from pathlib import Path
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

module, sizes, types, folder = importlib.import_module(sys.argv[1]), *map(json.loads, sys.argv[2:4]), sys.argv[4]
tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
found = {}
for name, n_warps in module.N_WARPS.items():
    kernel = getattr(module, name)
    signature = {each: "constexpr" if each in sizes else types.get(each, "*fp32") for each in kernel.arg_names}
    source = ASTSource(kernel, signature, {key: value for key, value in sizes.items() if key in signature})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": n_warps})
    file = Path(folder) / f"{name}.cubin"
    file.write_bytes(made.asm["cubin"])
    usage = subprocess.run([tool, "-res-usage", file], capture_output=True, text=True, check=True).stdout
    found[name] = {
        "exchanges": made.asm["ttgir"].count("ttg.convert_layout"),
        "registers": int(re.search(r"REG:(\\d+)", usage)[1]) * 32 * n_warps,
        "stack": int(re.search(r"STACK:(\\d+)", usage)[1]),
        "shared": made.metadata.shared,
        "loads": Counter(re.findall(r"ld\\.global(?:\\.(v\\d))?", made.asm["ptx"])),
        "variants": [
            each.name for each in kernel.params if not each.is_constexpr and not each.do_not_specialize
            and signature[each.name] != "fp32" and not each.do_not_specialize_on_alignment
        ],
    }
print(json.dumps(found))
"""


def compiled(
    module: str, sizes: dict[str, int | bool], types: dict[str, str], folder: Path
) -> dict[str, dict[str, Any]]:
    """Of each kernel of a module: converts of layout, registers and shared memory of a program, stack of a thread,
    loads by how many values they take, and the arguments that would ask for another variant.

    types: of arguments that are no `*fp32`.
    """
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, module, json.dumps(sizes), json.dumps(types), str(folder)],
        env=environment | {"TRITON_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    for name, each in found.items():
        assert each["variants"] == [], name
        assert each["registers"] <= 65_536, name
        assert each["shared"] <= 48 * 1024, name
    return found
