"""Write the README's answers and its picture anew, from a running service: after a new default model, say.

    make serve, and in another terminal: .venv/bin/python scripts/refresh_readme.py --url http://127.0.0.1:8000

The commands are taken from the README itself; of each, the block that follows it is replaced by what it printed.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "images" / "noise_reduction.png"
README_URL = "http://127.0.0.1:8000"
UNSTABLE_HEADERS = ("date:", "connection:")


def main() -> None:
    """Run the README's curl, its Python and its example; replace their answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", default=README_URL)
    url = parser.parse_args().url.rstrip("/")
    text = README.read_text(encoding="utf-8")

    # Twice, so that the answer shown is not the first of a cold process.
    curl = found(r"^\$ (curl .*?)\n(?=\w+/)", text).replace(README_URL, url).replace("filter.f32", "/dev/null")
    headers = [output(["sh", "-c", curl]) for _ in range(2)][-1].replace("\r", "").strip().splitlines()
    shown = "\n".join(line for line in headers if not line.lower().startswith(UNSTABLE_HEADERS))
    text = replaced(r"(application/octet-stream'\n).*?(\n```)", shown, text)

    code = found(r"^```python\n(.*?)^```", text).replace(README_URL, url)
    text = replaced(r"(items\(\)\}\)\n```\n\n```\n).*?(\n```)", output([sys.executable, "-c", code]), text)

    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder) / PICTURE.name
        example = [sys.executable, str(ROOT / "examples" / "design_filter.py"), "--url", url]
        printed = output([*example, "--picture", str(drawn)])
        PICTURE.write_bytes(drawn.read_bytes())
    table = "\n".join(line for line in printed.splitlines() if not line.startswith("The picture"))
    text = replaced(r"(noise_reduction\.png\)\n\n```\n).*?(\n```)", table, text)
    README.write_text(text, encoding="utf-8")


def output(command: list[str]) -> str:
    """What a command prints; a failing one ends this program with what it said."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)[:200]}\nended with status {done.returncode}:\n{done.stderr}")
    return done.stdout.strip()


def found(pattern: str, text: str) -> str:
    """The first group of the one place in the README that looks like `pattern`."""
    match = re.search(pattern, text, re.DOTALL | re.MULTILINE)
    if match is None:
        sys.exit(f"README.md: found nothing that looks like {pattern!r}")
    return match[1]


def replaced(pattern: str, answer: str, text: str) -> str:
    """The README with what stands between the two groups of `pattern` replaced."""
    found(pattern, text)
    return re.sub(pattern, lambda match: match[1] + answer + match[2], text, count=1, flags=re.DOTALL)


if __name__ == "__main__":
    main()
