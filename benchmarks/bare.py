"""Servers that answer at once, whatever they are sent: what the bytes of a request and its answer cost alone.

    python -m benchmarks.bare socket    one thread with a blocking socket: receive, send
    python -m benchmarks.bare server    uvicorn on uvloop and httptools, as the service runs, over an application
                                        that reads the body and answers

Both listen on a port of their own choosing, which they print, and give the answer that they read from standard
input. What the service takes beyond them is its own; what they take, no change to it can save.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.reliability.served import LEASHED

KINDS = ("socket", "server")


@contextmanager
def bare(kind: str, answer: bytes) -> Iterator[int]:
    """One of the two in a process of its own until the block ends; its port. answer: head and body."""
    process = subprocess.Popen(
        [sys.executable, "-c", LEASHED, "-m", "benchmarks.bare", kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(answer)
        process.stdin.close()
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def content_length(head: bytes | bytearray) -> int:
    """What a head says of its body's length; 0 where it says nothing."""
    found = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return int(found.group(1)) if found else 0


def _serve_socket(listener: socket.socket, answer: bytes) -> None:
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received, wanted = 0, 0
        while more := connection.recv(1 << 18):
            if not received:
                end = more.index(b"\r\n\r\n") + 4  # the client sends a head of this length in one piece
                wanted = end + content_length(more[:end])
            received += len(more)
            if received == wanted:
                connection.sendall(answer)
                received = 0
        connection.close()


def _serve_application(listener: socket.socket, answer: bytes) -> None:
    import uvicorn

    head, _, body = answer.partition(b"\r\n\r\n")
    fields = (line.split(b":", 1) for line in head.split(b"\r\n")[1:])
    headers = [(name.lower(), value.strip()) for name, value in fields if name.lower() != b"date"]
    start = {"type": "http.response.start", "status": 200, "headers": headers}

    async def application(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send(start)
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(
        application, loop="uvloop", http="httptools", lifespan="off", access_log=False, log_level="error"
    )
    uvicorn.Server(config).run(sockets=[listener])


def main() -> None:
    """Serve until killed."""
    (kind,) = sys.argv[1:]
    answer = sys.stdin.buffer.read()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        (_serve_socket if kind == "socket" else _serve_application)(listener, answer)


if __name__ == "__main__":
    main()
