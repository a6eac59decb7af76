"""The OpenAPI document lists all options and codes, and `docs/http-api.md` names nothing else."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from prime_anc.measure.checks import REASONS
from prime_anc.requests.bodies import DesignBody
from prime_anc.requests.options import option_fields
from prime_anc.requests.takes import CalibrationBody
from prime_anc.tasks.warnings import WARNINGS
from service.api.openapi import document
from service.app import create_app
from service.errors import PROBLEMS
from service.settings import Settings

TEXT = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text(encoding="utf-8")


@cache
def described() -> dict[str, Any]:
    """The document of a service with default settings."""
    settings = Settings()
    return document(create_app(settings), settings)


def test_options_are_documented() -> None:
    for address, body in (("/refine", DesignBody), ("/calibrate", CalibrationBody)):
        parameters = described()["paths"][address]["post"]["parameters"]
        queries = {item["name"]: item["description"] for item in parameters if item["in"] == "query"}
        assert queries.keys() == set(option_fields(body))
        assert min(map(len, queries.values())) > len("As the field of the body. ")


def test_codes_of_findings_and_problems_agree() -> None:
    rows = re.findall(r"^\| (?:(\d{3}) \| )?`([\w-]+)` \| \S", described()["info"]["description"], re.MULTILINE)
    problems = {(str(status), code) for code, (status, _) in PROBLEMS.items()}
    assert set(rows) == problems | {("", code) for code in WARNINGS | REASONS}


def test_page_names_what_exists() -> None:
    """Fields and codes of the text, and members of its examples in JSON."""
    text = re.sub(r"(?s)```text.*?```", "", TEXT).replace("prime_anc.Client", "")
    named = re.findall(r'[`.]([a-z]+(?:[_-][a-z0-9]+)+)(?=[`.])|"([a-z]\w+)":', text)
    assert len(named) > 30
    known = re.findall(r"\w+(?:-\w+)*", orjson.dumps(described()).decode())
    assert {field or member for field, member in named} <= set(known)
