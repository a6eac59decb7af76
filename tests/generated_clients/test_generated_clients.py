"""Clients that public generators make of the OpenAPI document design filters."""

import json
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


def run(*command: str | Path, folder: Path) -> str:
    """Output of a command, which must succeed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
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
