"""`docs/http-api.md` names every endpoint, field, warning and problem that there is, and no others."""

import re
from pathlib import Path

from service.app import ROUTES
from service.calibration.takes import CalibrationBody
from service.errors import PROBLEMS
from service.formats.open_inference import INPUT_RANK, InferenceParameters
from service.formats.schemas import CALIBRATION_FIELDS, DesignBody, EvaluateBody
from service.http.advice import WARNINGS
from service.openapi.answers import ANSWERS
from synthesis.calibration_verdict import REASONS
from synthesis.conventions import STAGES

TEXT = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text below one heading."""
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


def test_endpoints() -> None:
    for route in ROUTES:
        assert f"{route.method} {route.path}" in TEXT


def test_request_fields() -> None:
    for name in {*DesignBody.model_fields, *EvaluateBody.model_fields, *CALIBRATION_FIELDS}:
        assert f"`{name}`" in section("A request in JSON")


def test_answer_fields() -> None:
    answer = section("The answer in JSON")
    for schema, prefix in (("Design", ""), ("Refinement", ""), ("Prediction", "prediction."), ("Timings", "")):
        for name in set(ANSWERS[schema]["properties"]) - {"prediction"}:
            assert f"`{prefix}{name}`" in answer, name
    assert {*STAGES, "core", "total"} == set(ANSWERS["Timings"]["properties"])


def test_calibration() -> None:
    text = section("Calibration")
    assert set(re.findall(r"^\| `(\w+)` \| ", text, re.MULTILINE)) >= set(REASONS)
    for name in (*CalibrationBody.model_fields, *ANSWERS["Calibration"]["properties"]):
        assert f"`{name}" in text, name
    properties = {name: ANSWERS["Calibration"]["properties"][name] for name in ("bands", "timings_ms")}
    properties["verdict"] = ANSWERS["Verdict"]
    properties["figures"] = ANSWERS["Verdict"]["properties"]["figures"]
    for schema, prefix in (("bands", "bands."), ("timings_ms", ""), ("verdict", "verdict."), ("figures", "")):
        for name in properties[schema]["properties"]:
            assert f"`{prefix}{name}`" in text, name


def test_open_inference() -> None:
    for name in {*INPUT_RANK, *InferenceParameters.model_fields}:
        assert f"`{name}`" in section("Open Inference Protocol")


def test_warnings_and_problems_both_ways() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", section("Warnings"), re.MULTILINE)) == set(WARNINGS)
    rows = re.findall(r"^\| (\d{3}) \| (.*) \|$", section("Problems"), re.MULTILINE)
    documented = {
        (code, int(status)) for status, text in rows for code in re.findall(r"`([a-z]+-[a-z-]+|\w+ed)`", text)
    }
    assert documented == {(code, status) for code, (status, _) in PROBLEMS.items()}
