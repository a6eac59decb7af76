"""The example in C, compiled and run against the real program, and against answers that it must not believe."""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from prime_anc_client import Client
from synthesis.types import Paths
from tests.prime_anc_client.relay import relayed
from tests.service.program import Program

SOURCE = Path(__file__).parents[2] / "examples" / "c" / "refine.c"
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wshadow"]
FILTER = bytes(4 * 2048)
USUAL_HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 8192\r\nx-predicted-nr-db: 1.5\r\n\r\n"


def compiled(compiler: str, to: Path) -> Path:
    ran = subprocess.run([compiler, *STRICT, "-O2", "-o", to, SOURCE], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return to


@pytest.fixture(scope="module")
def refine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, by whatever compiler there is."""
    for compiler in ("cc", "gcc", "clang"):
        if shutil.which(compiler):
            return compiled(compiler, tmp_path_factory.mktemp("c") / "refine")
    pytest.skip("no C compiler found (cc, gcc or clang)")


@pytest.fixture
def files(tmp_path: Path, ear: Paths) -> list[Path]:
    """Both paths, and where the filter is to go."""
    paths = [tmp_path / name for name in ("primary.f32", "secondary.f32", "fir.f32")]
    ear.primary.astype("<f4").tofile(paths[0])
    ear.secondary.astype("<f4").tofile(paths[1])
    return paths


def run(refine: Path, port: int, *files: Path | str, host: str = "127.0.0.1") -> "subprocess.CompletedProcess[str]":
    command = [refine, host, str(port), *files]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def assert_failed(ran: "subprocess.CompletedProcess[str]", words: str, fir: Path) -> None:
    assert ran.returncode == 1, ran.stdout
    assert words in ran.stderr
    assert not fir.exists()


@contextmanager
def answering(*answers: bytes, family: socket.AddressFamily = socket.AF_INET) -> Iterator[int]:
    """A loopback port whose connections get these answers, one each, and are closed."""

    def serve() -> None:
        for answer in answers:
            taken, _ = listening.accept()
            with taken:
                received = b""
                while b"\r\n\r\n" not in received:
                    received += taken.recv(65_536)
                head, _, body = received.partition(b"\r\n\r\n")
                n_left = int(head.lower().split(b"content-length: ")[1].split()[0]) - len(body)
                while n_left:
                    n_left -= len(taken.recv(n_left))
                taken.sendall(answer)

    with socket.create_server(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0), family=family) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_it_compiles_without_warning(compiler: str, tmp_path: Path) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler} found")
    compiled(compiler, tmp_path / "refine")  # with warnings as errors
    assert os.access(tmp_path / "refine", os.X_OK)


def test_filters_are_those_of_python_client_over_one_connection(
    refine: Path, program: Program, files: list[Path], ear: Paths, tmp_path: Path
) -> None:
    other = tmp_path / "other.f32"
    with relayed(program.port) as (port, accepted):
        ran = run(refine, port, *files, files[1], files[0], other)
        assert ran.returncode == 0, ran.stderr
        assert len(accepted) == 1
    with Client(program.address) as client:
        designs = [client.refine(ear.primary, ear.secondary, k=1), client.refine(ear.secondary, ear.primary, k=1)]
    assert [files[2].read_bytes(), other.read_bytes()] == [
        design.taps.astype("<f4").tobytes() for design in designs
    ]
    assert ran.stdout.splitlines() == [
        f"predicted noise reduction {design.noise_reduction_db:.2f} dB" for design in designs
    ]


def test_coherence_is_sent_and_warnings_are_reported(
    refine: Path, program: Program, files: list[Path], ear: Paths, tmp_path: Path
) -> None:
    assert ear.coherence is not None
    coherence, other = tmp_path / "coherence.f32", tmp_path / "other.f32"
    ear.coherence.astype("<f4").tofile(coherence)
    ran = run(refine, program.port, *files[:2], other, "-c", coherence, *files)
    assert ran.returncode == 0, ran.stderr
    with Client(program.address) as client:
        without, design = (
            client.refine(ear.primary, ear.secondary, k=1, coherence=c) for c in (None, ear.coherence)
        )
    assert "prediction_from_model" in without.warnings
    assert files[2].read_bytes() == design.taps.astype("<f4").tobytes()
    said = [f"warnings: {', '.join(item.warnings)} (docs" for item in (without, design) if item.warnings]
    assert [line[: line.index("(docs") + 5] for line in ran.stderr.splitlines()] == said


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "found the connection closed"),
        (b"HTTP/1.1 2x0 OK\r\ncontent-length: 0\r\n\r\n", "found no answer of HTTP/1.1"),
        (USUAL_HEAD.replace(b"content-length: 8192\r\n", b"") + FILTER, "without Content-Length"),
        (USUAL_HEAD.replace(b"8192", b"999999999") + FILTER, "found a longer answer than there is room for"),
        (USUAL_HEAD + FILTER[:-1], "found a shorter body than promised"),
        (USUAL_HEAD.replace(b"8192", b"8188") + FILTER[4:], "found an answer of 8188 bytes, expected 8192"),
        (USUAL_HEAD + FILTER[:-4] + b"\0\0\xc0\x7f", "found a tap that is not finite"),
        (USUAL_HEAD.replace(b"x-predicted", b"y-predicted") + FILTER, "found no X-Predicted-NR-dB"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000, "found a longer head than there is room for"),
        (
            b'HTTP/1.1 400 Bad\r\nContent-Length: 47\r\n\r\n{"title":"detail","detail" : "a \\"b\\" \x1b[31m c"}',
            'refused with 400: a "b" ?[31m c\n',
        ),
        (b'HTTP/1.1 400 Bad\r\nContent-Length: 12\r\n\r\n{"detail": "', "refused with 400: \n"),
        # More patience than the example has: it says so at once, and does not ask a second time.
        (b"HTTP/1.1 503 Busy\r\nRetry-After: 31\r\nContent-Length: 0\r\n\r\n", "refused with 503: "),
        (b"HTTP/1.1 502 Bad\r\nContent-Length: 6\r\n\r\n<html>", "refused with 502: found no problem document"),
    ],
)
def test_answer_that_is_not_service_s(refine: Path, files: list[Path], answer: bytes, words: str) -> None:
    with answering(answer) as port:
        assert_failed(run(refine, port, *files), words, files[2])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "found 0 bytes, expected 1 to 8192 float32"),
        (b"abcde", "found 5 bytes, expected"),
        (bytes(4 * 8192 + 4), "found 32769 bytes or more, expected"),
        (None, "No such file"),
    ],
)
def test_file_that_holds_no_path(refine: Path, files: list[Path], content: bytes | None, words: str) -> None:
    files[1].unlink()
    if content is not None:
        files[1].write_bytes(content)
    assert_failed(run(refine, 1, *files), f"{files[1]}: {words}", files[2])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["127.0.0.1", "8000", "a", "b"],
        ["127.0.0.1", "8000", "-c", "a", "b", "c"],
        *(["127.0.0.1", port, "a", "b", "c"] for port in ("", "0", "65536", "18500x", "+8000", " 8000", "1e3")),
    ],
)
def test_command_line_that_cannot_be_read(refine: Path, arguments: list[str]) -> None:
    assert subprocess.run([refine, *arguments], capture_output=True, check=False).returncode == 2
