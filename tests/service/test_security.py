"""Claims of `docs/security.md` that no other test covers."""

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from prime_anc.client import wire
from prime_anc.method.types import Paths
from service.settings import Settings
from tests.service.bodies import BINARY_BODY, as_responses

ROOT = Path(__file__).resolve().parents[2]
READING = ("service", "model_store")
PURE = ("prime_anc/core", "prime_anc/method", "prime_anc/requests", "prime_anc/tasks")

# By the names that they are reached by: what runs what it reads, fetches, or opens files beside the store's.
FORBIDDEN = {
    "cPickle", "cloudpickle", "compile", "dill", "eval", "exec", "joblib", "jsonpickle", "marshal", "np.load",
    "numpy.load", "os.popen", "os.system", "pickle", "shelve", "torch.hub", "torch.jit", "torch.load", "yaml",
    "aiohttp", "http.client", "httpx", "requests", "urllib.request", "urllib3", "webbrowser",
}  # fmt: skip
OPENS = {"open", "__import__", "np.fromfile", "np.loadtxt", "np.memmap", "np.save", "np.savez", "torch.from_file"}


def names_used(file: Path) -> set[str]:
    """Return a module's imports and dotted names, with all their prefixes."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Attribute | ast.Name):
            found.add(ast.unparse(node))
    return {".".join(name.split(".")[: n + 1]) for name in found for n in range(name.count(".") + 1)}


def test_nothing_fetches_or_runs_what_it_reads() -> None:
    assert "ast.walk" in names_used(Path(__file__))  # precondition: the search finds names
    for package in (*READING, *PURE):
        assert (ROOT / package).is_dir()
        for file in (ROOT / package).rglob("*.py"):
            assert not names_used(file) & (FORBIDDEN | (OPENS if package in PURE else set())), file


SEEN: list[str] | None = None


def _see(event: str, details: tuple[object, ...]) -> None:
    if SEEN is not None and event in ("open", "socket.connect", "socket.getaddrinfo", "subprocess.Popen"):
        SEEN.append(f"{event} {details!r}")


sys.addaudithook(_see)  # permanent in Python; records only while `SEEN` is a list


@contextmanager
def watched() -> Iterator[list[str]]:
    """Record what any thread of this process opens or connects to inside the block."""
    global SEEN
    SEEN = []
    try:
        yield SEEN
    finally:
        SEEN = None


@pytest.mark.anyio
@pytest.mark.parametrize("text", ["../../marker", "http://127.0.0.1:9/marker", "marker\x00", "marker@../1"])
async def test_request_opens_no_file(client: httpx.AsyncClient, ear: Paths, settings: Settings, text: str) -> None:
    """The text is neither opened as a model's name nor from any other field."""
    binary = wire.encode(ear.primary, ear.secondary)
    bodies = (as_responses(ear, model=text), as_responses(ear, sign=text), {"primary": text})
    with watched() as seen:
        open(__file__).close()
        answers = [await client.post("/synthesize", json=body) for body in bodies]
        for option in ("model", "method"):
            query = {option: text}
            answers.append(await client.post("/refine", content=binary, headers=BINARY_BODY, params=query))
        answers.append(await client.get(f"/models/{quote(text, safe='')}"))
    assert any("test_security" in item for item in seen)  # precondition: events are seen
    assert not [item for item in seen if "marker" in item.lower()]
    assert not [item for item in seen if not item.startswith("open")]
    assert all(400 <= answer.status_code < 500 for answer in answers)
