"""`python -m benchmarks walk`: the files that a binary POST /refine enters, and its moves between them.

The service runs in this process, on a socket, and a profile function records calls of the project's functions and
returns into them: a move is a step into another file than the step before, in any thread. The request with the fewest
moves counts, since health checks of the service may fall into others.
"""

from __future__ import annotations

import argparse
import socket
import sys
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import uvicorn

from benchmarks.http import BINARY, Connection, request
from model_store.store import ModelStore
from prime_anc.client import wire
from service.app import create_app
from service.server import server
from service.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("service", "prime_anc", "model_store")
N_UPDATES = 3
WARM_UP, N_REQUESTS = 5, 10

# Functions of the service that a request enters first, and that sends the parts of an answer.
ADMITTED = "Front._admit"
SENDING = "Front.__call__.<locals>.sending"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--calls", action="store_true", help="print every stop, in order")


def run(options: argparse.Namespace) -> None:
    """Trace requests for the bundled model's golden case and print the shortest walk."""
    walk = shortest_walk()
    if options.calls:
        for step in walk:
            print(f"{'>' if step.is_call else '<'} {step.file} {step.function}")
    calls = Counter(step.file for step in walk if step.is_call)
    for file, n_calls in calls.most_common():
        print(f"{n_calls:4} {file}")
    print(f"{calls.total()} calls of functions in {len(calls)} files, {n_moves(walk)} moves between files")


class Step(NamedTuple):
    """A call of a function of the project, or a return into one."""

    file: str
    function: str
    is_call: bool


def n_moves(walk: list[Step]) -> int:
    """Count the steps into another file."""
    return sum(before.file != after.file for before, after in pairwise(walk))


def shortest_walk() -> list[Step]:
    """Serve some requests, trace them and return the one with the fewest moves."""
    tracer = Tracer()
    threading.setprofile(tracer)  # applies to threads started from here on
    settings = Settings(port=0, threads=1)  # type: ignore[call-arg]
    served = server(create_app(settings), settings)
    walks: list[list[Step]] = []
    client = threading.Thread(target=_ask, args=(served, tracer, walks))
    client.start()
    sys.setprofile(tracer)
    try:
        served.run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    client.join()
    return min(map(_of_request, walks), key=n_moves)


def _of_request(walk: list[Step]) -> list[Step]:
    """Cut what is counted after an answer: the last request's before its call, this one's after its last bytes."""
    first = next(n for n, step in enumerate(walk) if step.is_call and step.function == ADMITTED) - 1
    last = max(n for n, step in enumerate(walk) if step.function.endswith(SENDING))
    return walk[first : last + 2]


class Tracer:
    """Profile function that records steps of the project's functions while a walk is set."""

    def __init__(self) -> None:
        self.walk: list[Step] | None = None
        self._names: dict[str, str | None] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Record a call, or a return into the nearest caller in the project."""
        walk = self.walk
        if walk is None or event not in ("call", "return") or self._name(frame) is None:
            return
        into: FrameType | None = frame
        if event == "return":
            into = frame.f_back
            while into is not None and self._name(into) is None:
                into = into.f_back
        if into is not None and (name := self._name(into)) is not None:
            walk.append(Step(name, into.f_code.co_qualname, event == "call"))

    def _name(self, frame: FrameType) -> str | None:
        file = frame.f_code.co_filename
        if file not in self._names:
            self._names[file] = _project_file(file)
        return self._names[file]


def _project_file(file: str) -> str | None:
    """Return a file's path in the project; None for others."""
    try:
        inside = Path(file).relative_to(ROOT)
    except ValueError:
        return None
    return str(inside) if inside.parts[0] in PACKAGES else None


def _ask(served: uvicorn.Server, tracer: Tracer, walks: list[list[Step]]) -> None:
    """Send requests, untraced ones first, then end the server."""
    try:
        golden = ModelStore().load("bose-qc20").golden
        content = request(wire.encode(golden.primary, golden.secondary), BINARY, N_UPDATES)
        connection = Connection(_port(served))
        for number in range(WARM_UP + N_REQUESTS):
            while True:
                walk: list[Step] = []
                tracer.walk = walk if number >= WARM_UP else None
                answer = connection.exchange(content)
                tracer.walk = None
                if answer[9:12] == b"200":
                    break
            if number >= WARM_UP:
                walks.append(walk)
        connection.close()
    finally:
        served.should_exit = True


def _port(served: uvicorn.Server) -> int:
    """Wait for the server to listen, and return its port."""
    while not served.started:
        threading.Event().wait(0.02)
    (listener, *_) = served.servers
    found: socket.socket = listener.sockets[0]
    return int(found.getsockname()[1])
