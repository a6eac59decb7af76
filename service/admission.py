"""Admit or refuse a request by its head, before its body is read: sender, key, deadline, length, memory.

A browser reaches what its user reaches: a service on the same machine or behind a firewall. It states the requesting
page in `Origin` and, at trustworthy addresses, in `Sec-Fetch-Site`. For a page whose name was made to resolve to this
machine (DNS rebinding) these show the same origin, but `Host` still has its name: over loopback only names are accepted
that no such page can have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from functools import lru_cache
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import Scope

from service.errors import HttpProblem
from service.keys import Keys
from service.settings import MAX_DEADLINE_MS, MIN_DEADLINE_MS, Settings

# Limit on all bodies in memory, of which one key may have half.
BODIES_BYTES = 512 * 2**20

# Largest bodies: without and with recordings.
MAX_BODY_BYTES, MAX_RECORDINGS_BYTES = 12 * 2**20, 64 * 2**20

# Limit on JSON, which is parsed in the event loop in up to 5 ms. Two spectra of 16385 bins have 0.7 MB in base64.
MAX_JSON_BYTES = 2 * 2**20

DEADLINE_HEADER = "X-Deadline-Ms"

# float() also accepts "1_0", " 3" and digits of other scripts.
_DECIMAL = re.compile(r"[0-9]{1,6}(\.[0-9]{1,40})?")


class BodyMemory:
    """Counts the bodies in memory by their declared lengths, before they are read."""

    def __init__(self, max_bytes: int = BODIES_BYTES) -> None:
        """Limit the total of all bodies."""
        self._max_bytes = max_bytes
        self._n_bytes: Counter[str] = Counter()

    @property
    def n_bytes(self) -> int:
        """Return the number of bytes in memory."""
        return self._n_bytes.total()

    def reserve(self, key: str, n_bytes: int) -> None:
        """Count a body of a key; HttpProblem `overloaded` if it exceeds the limit, or half of it for this key."""
        total, of_key = self.n_bytes + n_bytes, self._n_bytes[key] + n_bytes
        if total > self._max_bytes or (of_key > self._max_bytes / 2 and of_key > n_bytes):
            detail = f"the bodies of other requests take {self.n_bytes} of {self._max_bytes} bytes; try again later"
            raise HttpProblem("overloaded", detail)
        self._n_bytes[key] = of_key

    def release(self, key: str, n_bytes: int) -> None:
        """Forget a body."""
        self._n_bytes[key] -= n_bytes
        if not self._n_bytes[key]:
            del self._n_bytes[key]


class Admission:
    """The keys, and the memory for bodies."""

    def __init__(self, settings: Settings) -> None:
        """Read the keys; ValueError if a file of keys cannot be read."""
        self._allowed_hosts = settings.allowed_hosts
        self._origins = frozenset(settings.cors_origins)
        self._keys = Keys(settings.api_keys_file)
        self._management_keys = Keys(settings.management_keys_file)
        self.memory = BodyMemory()

    def check_sender(self, request: HTTPConnection) -> None:
        """Refuse another site's page, and a name that another site's page may have; raises HttpProblem."""
        refuse_foreign_host(request.scope, request.headers, self._allowed_hosts)
        if request.scope["method"] == "POST":
            refuse_foreign_page(request.headers, self._origins)

    def client(self, headers: Headers) -> str:
        """Return the name of a client's key, "" if none is needed; HttpProblem `unauthorised`."""
        return self._keys.require(headers) if self._keys.are_required else ""

    def operator(self, headers: Headers) -> str:
        """Return the name of a management key; HttpProblem `unauthorised`, without keys for everybody."""
        if not self._management_keys.are_required:
            raise HttpProblem(
                "unauthorised",
                "no management keys are set up; ask the operator to set management-keys-file",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return self._management_keys.require(headers)


def refuse_foreign_page(headers: Headers, origins: Collection[str] = ()) -> None:
    """Refuse a request sent by another site's page.

    Parameters
    ----------
    headers
        Headers of the request. Clients other than browsers send neither `Origin` nor `Sec-Fetch-Site`.
    origins
        Origins of other sites' pages that may send requests.

    Raises
    ------
    HttpProblem
        `cross-site`: a foreign `Origin`, or a `Sec-Fetch-Site` of `cross-site`.
    """
    hosts = _hosts(headers)
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    # If a proxy changes Host, a browser still states "same-origin" for the service's page.
    is_foreign = origin is not None and site != "same-origin" and origin.partition("://")[2].lower() not in hosts
    if (site == "cross-site" or is_foreign) and origin not in origins:
        raise HttpProblem(
            "cross-site",
            "the page of another site sent this request; send it from the service's page or from a program, "
            "without Origin",
        )


def refuse_foreign_host(scope: Scope, headers: Headers, allowed_hosts: Collection[str]) -> None:
    """Refuse a request to a name that another site's page may have.

    Parameters
    ----------
    scope
        Scope of the request; `server` is the address that received it.
    headers
        Headers of the request.
    allowed_hosts
        Names, in lower case, that `Host` may have besides addresses and names without a dot: checked if there are any,
        and always over loopback.

    Raises
    ------
    HttpProblem
        `cross-site`: a foreign `Host`.
    """
    hosts = _hosts(headers)
    if not (allowed_hosts or _is_loopback((scope.get("server") or ("",))[0])):
        return
    for host in hosts:
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        # Another site's page cannot have a name without a dot, an address or an allowed name.
        if "." in name and not name.endswith(".localhost") and name not in allowed_hosts and not _is_address(name):
            raise HttpProblem(
                "cross-site",
                f"Host: {', '.join(hosts)[:80]!a} is not a name of this service; call it by its address, or ask the "
                "operator to add the name to allowed-hosts",
            )


def _hosts(headers: Headers) -> list[str]:
    return [item.strip().lower() for item in headers.getlist("host")]


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


@lru_cache(64)  # few addresses are listened on
def _is_loopback(address: str) -> bool:
    return _is_address(address) and ip_address(address).is_loopback


def json_too_large(n_bytes: int) -> HttpProblem:
    """Return the problem of JSON that would block the event loop while it is parsed."""
    return HttpProblem(
        "too-large",
        f"the JSON has {n_bytes} bytes; send at most {MAX_JSON_BYTES}, or the same fields as "
        "application/x-safetensors",
    )


def declared_length(headers: Headers, limit: int) -> int:
    """Return the declared length of the body, at most `limit`; HttpProblem otherwise."""
    if "upgrade" in headers:  # uvicorn's parser skips the body then
        raise HttpProblem(
            "malformed-request",
            "the body of a request that offers an Upgrade is not read; send plain HTTP/1.1 without the header",
        )
    declared = headers.get("content-length")
    if declared is None or "transfer-encoding" in headers:
        raise HttpProblem(
            "length-required", "the body has no Content-Length; declare its length and do not chunk it"
        )
    if not (declared.isascii() and declared.isdigit()):
        raise HttpProblem("malformed-request", f"Content-Length: {declared[:40]!a} is not a whole number")
    if len(declared) > 18 or int(declared) > limit:
        raise HttpProblem("too-large", f"the body has {declared[:18]} bytes; send at most {limit}")
    return int(declared)


def deadline_s(headers: Headers, default_ms: float) -> float:
    """Return the time (s) within which to answer: the header's, or the default."""
    given = headers.getlist(DEADLINE_HEADER)
    if not given:
        return default_ms / 1e3
    if len(given) > 1:
        raise HttpProblem(
            "invalid-field", f"{DEADLINE_HEADER}: the header is repeated; send it once", DEADLINE_HEADER
        )
    value = float(given[0]) if _DECIMAL.fullmatch(given[0]) else -1.0
    if not MIN_DEADLINE_MS <= value <= MAX_DEADLINE_MS:
        raise HttpProblem(
            "out-of-range",
            f"{DEADLINE_HEADER}: {given[0][:40]!a} is not a number from {MIN_DEADLINE_MS:g} to {MAX_DEADLINE_MS:g}",
            DEADLINE_HEADER,
        )
    return value / 1e3
