"""Send requests to a running service, or to one in this process.

Both take the same requests and return the same filters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import httpx

from cli.exit_status import ExitStatus
from cli.words import for_command
from prime_anc_client.wire import MEDIA_TYPE, encode_request

TIMEOUT_S = 120.0


class Failed(click.ClickException):
    """The service refused; the message states the fault and the remedy."""

    exit_code = ExitStatus.REFUSED


class NoService(Failed):
    """No service answers, or it is not ready."""

    exit_code = ExitStatus.NO_SERVICE


@dataclass(frozen=True)
class ServiceClient:
    """A service at a URL, or in this process."""

    client: httpx.Client | httpx.AsyncClient
    send: Callable[[httpx.Request], httpx.Response]

    def ask(self, path: str, body: Mapping[str, Any] | None = None, takes: Sequence[Path] = ()) -> httpx.Response:
        """POST a body, whose arrays become tensors, or GET without one; `takes` are the files of its takes.

        Raises
        ------
        Failed
            The status is not 200.
        """
        build = self.client.build_request
        request = build("GET", path)
        if body is not None:
            headers = {"Content-Type": MEDIA_TYPE}
            request = build("POST", path, content=encode_request(body), headers=headers)
        try:
            return _checked(self.send(request), takes)
        except httpx.HTTPError as error:
            raise NoService(
                f"no service answers at {self.client.base_url} ({error}); start one with `prime-anc serve`, "
                "or leave --url out"
            ) from error

    def wiener(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for the Wiener filter alone, without a controller, to compare a design with."""
        alone = {name: value for name, value in body.items() if name not in ("controller", "leave_one_out")}
        answer: dict[str, Any] = self.ask("/refine", alone | {"method": "wmmse", "k": 0}).json()
        return answer


@contextmanager
def connect(url: str | None, key: str | None = None, store: str | None = None) -> Iterator[ServiceClient]:
    """Connect to the service at a URL, or start one in this process with the checkpoints of `store`."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if url is not None:
        with httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S) as client:
            yield ServiceClient(client, client.send)
        return
    with asyncio.Runner() as runner:
        yield from _in_this_process(runner, store)


def _in_this_process(runner: asyncio.Runner, store: str | None) -> Iterator[ServiceClient]:
    # Late import, so that help and argument errors are immediate.
    from service.app import create_app
    from service.settings import Settings

    logging.getLogger("service").setLevel(logging.ERROR)  # problems are reported in the answers
    settings = Settings(  # type: ignore[call-arg]
        store=store, deadline_ms=60_000, calibration_deadline_ms=60_000, max_calibration_bytes=2**30
    )
    app = create_app(settings)
    lifespan = app.router.lifespan_context(app)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service", timeout=TIMEOUT_S)

    async def start() -> None:
        await lifespan.__aenter__()
        await app.state.service.engine.started()

    async def stop() -> None:
        await client.aclose()
        await lifespan.__aexit__(None, None, None)

    runner.run(start())
    try:
        yield ServiceClient(client, lambda request: runner.run(client.send(request)))
    finally:
        runner.run(stop())


def _checked(answer: httpx.Response, takes: Sequence[Path]) -> httpx.Response:
    if answer.status_code == 200:
        return answer
    try:
        problem = answer.json()
        message = problem["detail"]
    except (ValueError, KeyError, TypeError):
        message = f"status {answer.status_code}: {answer.text[:200]}"
    raise (NoService if answer.status_code in (502, 503, 504) else Failed)(for_command(message, takes))
