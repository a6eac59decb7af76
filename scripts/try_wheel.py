"""Try an installed package from outside the repository: the guide's commands, and the library on arrays.

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

LIBRARY = """
import sys
import prime_anc
import soundfile
off, on = (soundfile.read(name)[0].T.tolist() for name in ("off.wav", "on.wav"))
ear = prime_anc.calibrate(off, on, gain=0.35)
filt = prime_anc.design(ear, k=3)
print(ear, filt, prime_anc.export(filt, ear, "chip.h", sections=6, format="q1.23"), sep="\\n")
assert "torch" not in sys.modules
"""


def main() -> None:
    """Run the commands in an empty folder; the first that fails ends it."""
    program = Path(sys.executable).with_name("prime-anc")
    with tempfile.TemporaryDirectory() as folder:
        for command in COMMANDS:
            print(f"prime-anc {command}", flush=True)
            subprocess.run([program, *command.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([sys.executable, "-c", LIBRARY], cwd=folder, check=True)


if __name__ == "__main__":
    main()
