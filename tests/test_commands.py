"""Every package that `python -m` runs calls its main function."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMANDS = [file for file in ROOT.glob("*/__main__.py") if (file.parent / "__init__.py").exists()]


@pytest.mark.parametrize("file", COMMANDS, ids=lambda file: file.parent.name)
def test_package_as_command_calls_main(file: Path) -> None:
    assert '\nif __name__ == "__main__":\n' in file.read_text()
