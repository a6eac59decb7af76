"""Clients that public generators make of the OpenAPI document: called, or read where they need a phone's tools."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import httpx
import numpy as np
import pytest

from prime_anc.method.types import Paths
from tests.service.conftest import default_model, ear, program, store_folder
from tests.service.program import Program

__all__ = ["default_model", "ear", "program", "store_folder"]

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples" / "clients"
# Where `make generators` installs them.
GENERATORS = HERE.parents[1] / ".generators"
PYTHON = GENERATORS / "python" / "bin"
NPM = GENERATORS / "node_modules" / ".bin"
CALL_IN_PYTHON = """
import json, sys
from prime_anc_client import Client
from prime_anc_client.api.default import refine
from prime_anc_client.models import DesignBody
body = DesignBody.from_dict(json.loads(sys.argv[2]))
print(json.dumps(refine.sync(client=Client(sys.argv[1]), body=body, k=1).fir))
"""


# Short runs of the generators and of Kotlin's compiler take two thirds of the time.
QUICK_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def run(*command: str | Path, folder: Path) -> str:
    """Output of a command, which must succeed."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=600, env=os.environ | QUICK_JAVA
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the document of the running service."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "openapi.json").write_text(httpx.get(f"{program.address}/openapi.json", timeout=60).text)
    return folder


@pytest.fixture
def body(ear: Paths) -> str:
    """A request: two responses, short enough for a command line."""
    paths = {"primary": ear.primary[:512], "secondary": ear.secondary[:256]}
    responses = {name: {"impulse_response": path.tolist()} for name, path in paths.items()}
    return json.dumps(responses | {"sample_rate": 48_000})


def assert_designed(output: str, program: Program, body: str) -> None:
    """The taps that a client printed are those of a plain request."""
    headers = {"Content-Type": "application/json"}
    answer = httpx.post(f"{program.address}/refine?k=1", content=body, headers=headers, timeout=60)
    np.testing.assert_array_equal(json.loads(output), answer.json()["fir"])


@pytest.mark.skipif(not PYTHON.is_dir(), reason="openapi-python-client is missing: make generators")
def test_python_client_designs(folder: Path, program: Program, body: str) -> None:
    generator = PYTHON / "openapi-python-client"
    run(generator, "generate", "--path", "openapi.json", "--output-path", "python", folder=folder)
    output = run(PYTHON / "python", "-c", CALL_IN_PYTHON, program.address, body, folder=folder / "python")
    assert_designed(output, program, body)


@pytest.mark.skipif(not NPM.is_dir(), reason="the generators for TypeScript are missing: make generators")
def test_typescript_example_designs(folder: Path, program: Program, body: str) -> None:
    """The example of the documentation, with the commands that it states."""
    example = folder / "example"
    example.mkdir()
    (example / "node_modules").symlink_to(GENERATORS / "node_modules")
    (example / "ear.json").write_text(body)
    shutil.copy(EXAMPLES / "typescript" / "design.mts", example)
    run(NPM / "openapi-typescript", "../openapi.json", "-o", "schema.d.ts", folder=example)
    options = ("--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck")
    run(NPM / "tsc", *options, "design.mts", folder=example)
    assert "predicted noise reduction" in run("node", "design.mjs", program.address, "ear.json", folder=example)
    assert_designed(json.dumps(json.loads((example / "control_filter.json").read_text())["fir"]), program, body)


KOTLIN = NPM.parent / "kotlin-compiler" / "bin" / "kotlinc"
# What the generated code needs, where Maven keeps what it has fetched.
JARS = [
    next((Path.home() / ".m2" / "repository").glob(pattern), None)
    for pattern in (
        "com/google/code/gson/gson/2.1*/gson-*.jar",
        "com/squareup/okhttp3/okhttp/4.12*/okhttp-*.jar",
        "com/squareup/okio/okio-jvm/3.*/okio-jvm-*.jar",
    )
]


@pytest.mark.skipif(
    not (shutil.which("java") and KOTLIN.exists() and all(JARS) and (PYTHON / "openapi-generator-cli").exists()),
    reason="the Kotlin compiler (make generators), or OkHttp and Gson of Maven, are missing",
)
def test_kotlin_client_works(folder: Path, program: Program, body: str) -> None:
    """Generated code and example compile; the example designs, and sections at a high rate keep their poles."""
    options = ("-g", "kotlin", "--additional-properties", "serializationLibrary=gson", "-o", "gson")
    run(PYTHON / "openapi-generator-cli", "generate", "-i", "openapi.json", *options, folder=folder)
    (folder / "ear.json").write_text(body)
    jars = ":".join(map(str, JARS))
    sources = ("gson/src/main/kotlin", EXAMPLES / "kotlin" / "Design.kt", HERE / "Calls.kt")
    run("bash", KOTLIN, *sources, "-cp", jars, "-nowarn", "-include-runtime", "-d", "design.jar", folder=folder)
    found = run("java", "-cp", f"design.jar:{jars}", "DesignKt", program.address, "ear.json", folder=folder)
    assert "predicted noise reduction" in found
    assert_designed(json.dumps(json.loads((folder / "control_filter.json").read_text())["fir"]), program, body)
    called = run("java", "-cp", f"design.jar:{jars}", "Calls", program.address, "ear.json", folder=folder)
    exported_db, evaluated_db = map(float, called.split())
    assert abs(exported_db - evaluated_db) < 0.01


@pytest.mark.skipif(
    not (shutil.which("java") and (PYTHON / "openapi-generator-cli").exists()),
    reason="OpenAPI Generator needs Java: make generators",
)
@pytest.mark.parametrize(
    ("language", "required"),
    [("kotlin", r"val {}: [\w.<>]+,"), ("swift6", r"public var {}: [\w\[\]]+$")],
)
def test_phone_clients_have_documented_types(language: str, required: str, folder: Path) -> None:
    """What an answer always has is no optional of the language, and no alternatives were merged to a type of their
    own, which would read none of them."""
    schemas = json.loads((folder / "openapi.json").read_text())["components"]["schemas"]
    generator = PYTHON / "openapi-generator-cli"
    run(generator, "generate", "-i", "openapi.json", "-g", language, "-o", language, folder=folder)
    sources = [path for path in (folder / language).rglob("[Mm]odels/*.*") if path.suffix in (".kt", ".swift")]
    files = {path.stem: path for path in sources if not path.stem.endswith("Test")}
    assert files.keys() == {name.rstrip("_") for name in schemas}
    source = files["PredictionAnswer"].read_text()
    assert schemas["PredictionAnswer"]["required"]
    for name in schemas["PredictionAnswer"]["required"]:
        first, *rest = name.split("_")
        member = first + "".join(part.capitalize() for part in rest)
        assert re.search(required.format(member), source, re.MULTILINE), f"{member} in\n{source}"
