"""`docs/http-api.md` lists the options, warnings and problems, and no others."""

import re
from pathlib import Path

from prime_anc.requests.bodies import DesignBody
from prime_anc.requests.options import option_fields
from prime_anc.requests.takes import CalibrationBody
from prime_anc.tasks.warnings import WARNINGS
from service.errors import PROBLEMS

TEXT = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text below one heading."""
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


def codes(text: str) -> set[str]:
    """The codes in the first column of a table."""
    return {
        code for cell in re.findall(r"^(`.*`) \| ", text, re.MULTILINE) for code in re.findall(r"`(\w+)`", cell)
    }


def test_options_are_documented() -> None:
    names = re.findall(r"^`(\w+)` \| ", section("Options"), re.MULTILINE)
    assert set(names) == {*option_fields(DesignBody), *option_fields(CalibrationBody)}


def test_codes_of_warnings_and_problems_agree() -> None:
    assert codes(section("Warnings")) == set(WARNINGS)
    rows = re.findall(r"^(\d{3}) \| (.*)$", section("Problems"), re.MULTILINE)
    documented = {
        (code, int(status)) for status, text in rows for code in re.findall(r"`([a-z]+-[a-z-]+|\w+ed)`", text)
    }
    assert documented == {(code, status) for code, (status, _) in PROBLEMS.items()}
