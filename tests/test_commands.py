"""What `python -m` is given does something."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("benchmarks", "model_store", "service", "training")
COMMANDS = [each for package in PACKAGES for each in (ROOT / package).rglob("__main__.py")]


@pytest.mark.parametrize("file", COMMANDS, ids=lambda each: str(each.relative_to(ROOT)))
def test_a_package_run_as_a_command_calls_its_main(file: Path) -> None:
    assert '\nif __name__ == "__main__":\n' in file.read_text()
