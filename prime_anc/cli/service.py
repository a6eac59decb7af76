"""Send requests to a running service, or to one in this process.

Both take the same requests and return the same filters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import httpx

from prime_anc.cli import tables
from prime_anc.cli.exit_status import ExitStatus
from prime_anc.client import Client, ClientError, Refused, Unavailable
from prime_anc.local import LocalClient

# Time for one attempt, and within which a busy service is asked again, unless --deadline-ms says another.
TIMEOUT_S, RETRY_FOR_S = 120.0, 30.0


class Failed(click.ClickException):
    """The service refused; the message states the fault and the remedy."""

    exit_code = ExitStatus.REFUSED


class NoService(Failed):
    """No service answers, or it is not ready."""

    exit_code = ExitStatus.NO_SERVICE


@dataclass(frozen=True)
class ServiceClient:
    """A service at a URL, or in this process."""

    client: Client
    url: str = ""
    deadline_ms: float | None = None

    def ask(self, path: str, body: Mapping[str, Any] | None = None, takes: Sequence[Path] = ()) -> httpx.Response:
        """POST a body, whose arrays become tensors, or GET without one; `takes` are the files of its takes.

        Raises
        ------
        Failed
            The status is not 200.
        """
        try:
            return self.client.ask(path, body, self.deadline_ms)
        except Refused as error:
            failed = NoService if isinstance(error, Unavailable) else Failed
            raise failed(tables.of_files(error.detail, takes)) from error
        except ClientError as error:
            raise NoService(
                f"{self.url}: {error}; start a service with `prime-anc serve`, or leave --url out"
            ) from error

    def wiener(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for the Wiener filter alone, without a controller, to compare a design with."""
        alone = {name: value for name, value in body.items() if name not in ("controller", "leave_one_out")}
        answer: dict[str, Any] = self.ask("/refine", alone | {"method": "wmmse", "k": 0}).json()
        return answer


@contextmanager
def connect(
    url: str | None, key: str | None = None, store: str | None = None, deadline_ms: float | None = None
) -> Iterator[ServiceClient]:
    """Connect to the service at a URL, or answer in this process with the models of `store`."""
    retry_for_s = RETRY_FOR_S if deadline_ms is None else deadline_ms / 1e3
    if url is None:
        yield ServiceClient(LocalClient(store), deadline_ms=deadline_ms)
        return
    try:
        client = Client(url, api_key=key or None, timeout_s=TIMEOUT_S, retry_for_s=retry_for_s)
    except (ValueError, httpx.InvalidURL) as error:
        raise click.UsageError(f"--url, --key: {error}") from error
    with client:
        if not client.is_ready():
            tables.notes([f"{url} is not ready; requests are repeated for {retry_for_s:g} s"])
        yield ServiceClient(client, url, deadline_ms)
