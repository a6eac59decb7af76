"""Try an installed package from outside the repository: the guide's commands, and a design over HTTP.

python -P scripts/try_wheel.py
"""

import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = (
    "example --seconds 4",
    "calibrate off.wav on.wav --gain 0.35 -o ear.json",
    "design ear.json -k 1 -o filter.json",
    "export filter.json ear.json --target pinebuds-pro --sections 2 -o chip.txt -o chip.json",
    "simulate listener.npz chip.json --seconds 4 -o quiet.wav -o running.wav",
    "verify chip.json ear.json --off quiet.wav --on running.wav",
    "report ear.json -k 0 -o report.html",
    "models",
)


def main() -> None:
    """Run the commands in an empty folder; the first that fails ends it."""
    program = Path(sys.executable).with_name("prime-anc")
    with tempfile.TemporaryDirectory() as folder:
        for command in COMMANDS:
            print(f"prime-anc {command}", flush=True)
            subprocess.run([program, *command.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
