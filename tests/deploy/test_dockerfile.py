"""The reader behind `deploy/run_image_steps.py`: stages, steps and the build context."""

import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from deploy.dockerfile import DockerfileError, context_files, read_dockerfile

ROOT = Path(__file__).resolve().parents[2]


def test_stages_flags_and_continued_lines_are_read(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text(
        "# a comment\nFROM base AS build\nRUN one \\\n    && two\n\n"
        'FROM base\nCOPY --from=build --chown=1:1 /a /b/\nUSER 0\nUSER 5:6\nCMD ["python", "-m", "x y"]\n'
    )
    build, final = read_dockerfile(file)
    assert (build.name, final.name, build.image) == ("build", "1", "base")
    assert build.steps[0].text.split() == ["one", "&&", "two"]
    assert final.steps[0].flags == {"from": "build", "chown": "1:1"}
    assert final.steps[0].words == ["/a", "/b/"]
    assert final.last("USER").text == "5:6"
    assert final.last("CMD").words == ["python", "-m", "x y"]


@pytest.mark.parametrize(
    ("extras", "wanted"),
    [
        ("", []),
        ("fftw", ["pyfftw"]),
        ("fftw,otel", ["pyfftw", "opentelemetry-sdk"]),
        ("s3", ["s3fs"]),
        ("fft", None),
    ],
)
def test_the_image_s_extras_are_those_asked_for(tmp_path: Path, extras: str, wanted: list[str] | None) -> None:
    """The step itself writes its requirements; a name that is no extra ends the build."""
    (step,) = (each for each in read_dockerfile(ROOT / "Dockerfile")[0].steps if "requirements.txt" in each.text)
    command, _, _ = step.text.partition("&&")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "EXTRAS": extras}
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True)
    if wanted is None:
        assert done.returncode != 0
        assert extras in done.stderr
        return
    assert done.returncode == 0, done.stderr
    names = [re.match(r"[\w-]+", line)[0] for line in (tmp_path / "requirements.txt").read_text().splitlines()]  # type: ignore[index]
    assert set(wanted) <= set(names)
    assert ("pyfftw" in names) == ("pyfftw" in wanted)
    assert {"torch", "fastapi", "scipy"} <= set(names)


@pytest.mark.parametrize("open_door", ["PRIME_PORT", "PRIME_MANAGEMENT_PORT"])
def test_the_health_check_asks_at_the_operator_s_door_where_there_is_one(open_door: str) -> None:
    """Clients may have filled the other one."""
    text = read_dockerfile(ROOT / "Dockerfile")[-1].last("HEALTHCHECK").text
    check = [sys.executable, *json.loads(text.partition("CMD")[2])[1:]]

    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health/ready" else 404)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Healthy) as server, socket.create_server(("127.0.0.1", 0)) as full:
        environment = {"PRIME_PORT": str(full.getsockname()[1])} | {open_door: str(server.server_port)}
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert subprocess.run(check, env=environment, timeout=20, stderr=subprocess.DEVNULL).returncode == 0


def test_every_extra_that_an_image_may_ask_for_is_pinned() -> None:
    """Whatever is built again is built the same."""
    pins = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    names = {re.match(r"[\w-]+", each)[0] for each in asked} - {"prime-anc"}  # type: ignore[index]
    assert names - {re.sub(r"[_.]", "-", pin).lower() for pin in pins} == set()


def test_an_unknown_instruction_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM base\nSHELL [x]\n")
    with pytest.raises(DockerfileError, match="found 'SHELL', expected one of"):
        read_dockerfile(file)


def test_a_missing_step_is_named(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM base\n")
    with pytest.raises(DockerfileError, match="no CMD"):
        read_dockerfile(file)[0].last("CMD")


def test_the_last_pattern_that_names_a_file_decides(tmp_path: Path) -> None:
    for name in ("kept.txt", "left.txt", "code/a.py", "code/a.pyc", "code/data/b.bin", "code/__pycache__/c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / ".dockerignore").write_text("*\n!kept.txt\n!code\ncode/data\n**/__pycache__\n**/*.pyc\n")
    assert [str(file) for file in context_files(tmp_path)] == ["code/a.py", "kept.txt"]


def test_the_build_context_holds_the_packages_and_neither_data_nor_tests() -> None:
    tops = {file.parts[0] for file in context_files(ROOT)}
    assert tops <= {
        "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "synthesis", "model_store", "service",
    }  # fmt: skip
    assert {"pyproject.toml", "synthesis", "model_store", "service"} <= tops
    assert not any(file.parts[:2] == ("model_store", "checkpoints") for file in context_files(ROOT))
