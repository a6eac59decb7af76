"""Send requests to a running service, or to one in this process.

Both take the same requests and return the same filters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import click
import httpx

from prime_anc.cli import tables
from prime_anc.cli.exit_status import ExitStatus
from prime_anc.client import Client, ClientError, Refused, Unavailable
from prime_anc.local import LocalClient

# `Client.ask` with the command's deadline: from an address and a body to the answer of status 200.
Ask = Callable[..., httpx.Response]

# Time for one attempt, and within which a busy service is asked again, unless --deadline-ms says another.
TIMEOUT_S, RETRY_FOR_S = 120.0, 30.0


class Refusal(click.ClickException):
    """The service refused; the message states the fault and the remedy."""

    exit_code = ExitStatus.REFUSED


class NoService(click.ClickException):
    """No service answers, or it is not ready."""

    exit_code = ExitStatus.NO_SERVICE


@contextmanager
def connected(url: str | None, key: str | None, store: str | None, deadline_ms: float | None) -> Iterator[Ask]:
    """Connect to the service at a URL, or answer in this process with the models of `store`.

    Raises
    ------
    Refusal, NoService
        The service refused, or none answers.
    """
    retry_for_s = RETRY_FOR_S if deadline_ms is None else deadline_ms / 1e3
    try:
        remote: dict[str, Any] = {"api_key": key or None, "timeout_s": TIMEOUT_S, "retry_for_s": retry_for_s}
        client = LocalClient(store) if url is None else Client(url, **remote)
    except (ValueError, httpx.InvalidURL) as error:
        raise click.UsageError(f"--url, --key, --store: {error}") from error
    try:
        with client as service:
            if not service.is_ready():
                tables.notes([f"{url} is not ready; requests are repeated for {retry_for_s:g} s"])
            yield partial(service.ask, deadline_ms=deadline_ms)
    except Refused as error:
        failure = NoService if isinstance(error, Unavailable) else Refusal
        raise failure(tables.with_files(error.detail)) from error
    except ClientError as error:
        text = f"{url}: {error}; start a service with `prime-anc serve`, or leave --url out"
        raise NoService(text) from error


def wiener(ask: Ask, body: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for the Wiener filter alone, without a controller, to compare a design with."""
    alone = {name: value for name, value in body.items() if name not in ("controller", "leave_one_out")}
    answer: dict[str, Any] = ask("/refine", alone | {"method": "wmmse", "k": 0}).json()
    return answer
