"""What `docs/security.md` says, where no other test does."""

import ast
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import orjson
import pytest

from prime_anc_client import wire
from service.settings import Settings
from synthesis.types import Paths
from tests.service.api.test_problems import assert_problem, assert_serving
from tests.service.bodies import as_responses

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("service", "model_store", "synthesis")
JSON_BODY = {"Content-Type": "application/json"}
BINARY_BODY = {"Content-Type": "application/x-safetensors"}

RUNS_WHAT_IT_READS = {
    "cPickle", "cloudpickle", "compile", "dill", "eval", "exec", "joblib", "jsonpickle", "marshal", "np.load",
    "numpy.load", "os.popen", "os.system", "pickle", "shelve", "torch.hub", "torch.jit", "torch.load", "yaml",
}  # fmt: skip
"""Modules and functions, by the names that they are reached by."""

FETCHES = {"aiohttp", "http.client", "httpx", "requests", "urllib.request", "urllib3", "webbrowser"}


def names_used(file: Path) -> set[str]:
    """Everything that a module imports, and every dotted name that it uses, with all that they start with."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Attribute | ast.Name):
            found.add(ast.unparse(node))
    return {".".join(name.split(".")[: n + 1]) for name in found for n in range(name.count(".") + 1)}


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (ROOT / package).rglob("*.py")


def test_nothing_that_runs_what_it_reads_is_called() -> None:
    assert "pickle" in names_used(Path(__file__))  # or the search would find nothing
    for file in sources():
        assert not names_used(file) & RUNS_WHAT_IT_READS, file


def test_the_service_fetches_nothing() -> None:
    for file in sources():
        assert not names_used(file) & FETCHES, file


class Hostile:
    """Writes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = str(file)

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (self.file, "w")


@pytest.mark.anyio
@pytest.mark.parametrize(
    "media_type",
    ["application/octet-stream", "application/json", "application/x-pickle", "application/python-pickle", ""],
)
@pytest.mark.parametrize("path", ["/synthesize", "/evaluate", "/calibrate", "/v2/models/ears/infer"])
async def test_a_pickle_is_no_body(client: httpx.AsyncClient, tmp_path: Path, path: str, media_type: str) -> None:
    written = tmp_path / "written"
    answer = await client.post(path, content=pickle.dumps(Hostile(written)), headers={"Content-Type": media_type})
    assert answer.status_code in (400, 415)
    assert not written.exists()


@pytest.mark.anyio
async def test_there_are_no_multipart_bodies(client: httpx.AsyncClient, ear: Paths) -> None:
    files = {"primary": b"x", "secondary": b"y"}
    for path in ("/synthesize", "/refine", "/evaluate", "/calibrate", "/v2/models/ears/infer"):
        answer = await client.post(path, files=files)
        assert answer.status_code == 415, path
    assert_problem(await client.post("/synthesize", data={"model": "ears"}), "unsupported-media-type")
    await assert_serving(client, ear)


SEEN: list[str] | None = None


def _see(event: str, details: tuple[object, ...]) -> None:
    if SEEN is not None and event in ("open", "socket.connect", "socket.getaddrinfo", "subprocess.Popen"):
        SEEN.append(f"{event} {details!r}")


sys.addaudithook(_see)  # which Python gives no way to take away; it sees nothing unless `SEEN` is a list


@contextmanager
def watched() -> Iterator[list[str]]:
    """What any thread of this process opens or connects to meanwhile."""
    global SEEN
    SEEN = []
    try:
        yield SEEN
    finally:
        SEEN = None


@pytest.mark.anyio
@pytest.mark.parametrize(
    "text",
    [
        "/etc/marker", "../../marker", "marker/../..", "file:///marker", "http://127.0.0.1:9/marker",
        "s3://marker/x", "\\\\marker\\share", "marker\x00", "~/marker", "marker@../1", "Marker",
    ],
)  # fmt: skip
async def test_no_text_of_a_request_is_opened(
    client: httpx.AsyncClient, ear: Paths, settings: Settings, text: str
) -> None:
    """Neither as a model's name, in each place that one may stand in, nor anywhere else."""
    binary = wire.encode(ear.primary, ear.secondary)
    bodies = (as_responses(ear, model=text), as_responses(ear, sign=text), {"primary": text})
    with watched() as seen:
        open(__file__).close()
        answers = [
            await client.post("/synthesize", content=orjson.dumps(body), headers=JSON_BODY) for body in bodies
        ]
        for option in ("model", "method"):
            query = {option: text}
            answers.append(await client.post("/refine", content=binary, headers=BINARY_BODY, params=query))
        for path in ("/models", "/v2/models"):
            answers.append(await client.get(f"{path}/{quote(text, safe='')}"))
    assert any("test_security" in each for each in seen)  # or the watch would see nothing
    assert not [each for each in seen if "marker" in each.lower()]
    assert not [each for each in seen if not each.startswith("open")]
    assert all(400 <= answer.status_code < 500 for answer in answers)
