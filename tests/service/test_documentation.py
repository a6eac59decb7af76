"""`docs/http-api.md` and `open-inference.md` name the endpoints, fields, warnings and problems, and no others."""

import re
from pathlib import Path

from measurement.checks import REASONS
from service.api.documentation import document
from service.api.open_inference import INPUT_RANK, InferenceParameters
from service.api.options import option_fields
from service.api.request_types import DesignBody, EvaluateBody
from service.api.warnings import WARNINGS
from service.app import create_app
from service.calibration.takes import CalibrationBody
from service.errors import PROBLEMS
from service.settings import Settings
from synthesis.conventions import STAGES
from synthesis.methods import METHODS
from synthesis.plausibility import PLAUSIBILITY

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "http-api.md").read_text(encoding="utf-8")
INFERENCE = (DOCS / "open-inference.md").read_text(encoding="utf-8")

SETTINGS = Settings(device="cpu")
DOCUMENT = document(create_app(SETTINGS), SETTINGS)
SCHEMAS = DOCUMENT["components"]["schemas"]


def section(title: str) -> str:
    """The text below one heading."""
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


def codes(text: str) -> set[str]:
    """The codes in the first column of a table."""
    return {
        code for cell in re.findall(r"^(`.*`) \| ", text, re.MULTILINE) for code in re.findall(r"`(\w+)`", cell)
    }


def test_addresses_are_documented() -> None:
    for path, operations in DOCUMENT["paths"].items():
        for method in operations:
            assert f"{method.upper()} {path}" in TEXT + INFERENCE


def test_request_fields_are_documented() -> None:
    for name in {*DesignBody.model_fields, *EvaluateBody.model_fields}:
        assert f"`{name}`" in section("A request in JSON") + section("Options")


def test_options_are_documented() -> None:
    """The table of options has the names, ranges and defaults of the model."""
    rows = dict(re.findall(r"^`(\w+)` \| (.*)$", section("Options"), re.MULTILINE))
    assert set(rows) == {*option_fields(DesignBody), *option_fields(CalibrationBody)}
    properties = DesignBody.model_json_schema()["properties"] | CalibrationBody.model_json_schema()["properties"]
    for name, text in rows.items():
        schema = properties[name]
        for bound in ("minimum", "maximum"):
            if bound in schema:
                assert f"{schema[bound]:g}" in text, (name, bound)
        if schema.get("default") not in (None, False):
            default = schema["default"]
            assert (f"`{default}`" if isinstance(default, str) else f"{default:g}") in text, name
        for choice in schema.get("enum", ()):
            assert f"`{choice}`" in text, (name, choice)


def test_methods_are_documented() -> None:
    (row,) = re.findall(r"^`method` \| (.*)$", section("Options"), re.MULTILINE)
    assert set(METHODS) == set(re.findall(r"`(\w+)`", row))


def test_answer_fields_are_documented() -> None:
    answer = section("The answer in JSON")
    for schema, prefix in (
        ("DesignAnswer", ""),
        ("RefinementAnswer", ""),
        ("PredictionAnswer", "prediction."),
        ("Timings", ""),
    ):
        for name in set(SCHEMAS[schema]["properties"]) - {"prediction"}:
            assert f"`{prefix}{name}`" in answer, name
    assert {*STAGES, "core", "total"} == set(SCHEMAS["Timings"]["properties"])


def test_calibration_is_documented() -> None:
    text = section("Calibration")
    assert codes(text) >= REASONS.keys() - PLAUSIBILITY.keys()
    for name in (*CalibrationBody.model_fields, *SCHEMAS["CalibrationAnswer"]["properties"]):
        assert f"`{name}" in text, name
    parts = (
        ("CalibrationBands", "bands."),
        ("CalibrationTimings", ""),
        ("VerdictAnswer", "verdict."),
        ("VerdictFigures", ""),
    )
    for schema, prefix in parts:
        for name in SCHEMAS[schema]["properties"]:
            assert f"`{prefix}{name}`" in text, name


def test_inference_parameters_are_documented() -> None:
    for name in {*INPUT_RANK, *InferenceParameters.model_fields}:
        assert f"`{name}`" in INFERENCE + section("Options")


def test_codes_of_warnings_and_problems_agree() -> None:
    assert codes(section("Warnings")) == set(WARNINGS)
    rows = re.findall(r"^(\d{3}) \| (.*)$", section("Problems"), re.MULTILINE)
    documented = {
        (code, int(status)) for status, text in rows for code in re.findall(r"`([a-z]+-[a-z-]+|\w+ed)`", text)
    }
    assert documented == {(code, status) for code, (status, _) in PROBLEMS.items()}
