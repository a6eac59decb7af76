"""Admit or refuse a request by its head, before its body is read: origin, key, deadline, length, load, memory.

A browser reaches what its user reaches: a service on the same machine, a management listener, a service behind a
firewall. It states the requesting page in `Origin` and, at trustworthy addresses, in `Sec-Fetch-Site`. For a page whose
name was made to resolve to this machine (DNS rebinding) these show the same origin, but `Host` still has its name: over
loopback only names are accepted that no such page can have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import Scope

from service.admission.keys import Keys
from service.errors import HttpProblem
from service.settings import MAX_DEADLINE_MS, MIN_DEADLINE_MS, Settings

# State of requests from the management listener; no client can set it.
MANAGEMENT = "is_management"
# Where a request's state has the name of its key, if it has a valid one.
KEY_NAME = "key_name"

# Limit on all bodies of designs in flight: forty of the largest, or 1600 binary ones of 16385 bins.
BODIES_BYTES = 512 * 2**20

# Limit on JSON, which is parsed in the event loop in up to 5 ms. Two spectra of 16385 bins have 0.7 MB in base64.
MAX_JSON_BYTES = 2 * 2**20

DEADLINE_HEADER = "X-Deadline-Ms"

# float() also accepts "1_0", " 3" and digits of other scripts.
_DECIMAL = re.compile(r"[0-9]{1,6}(\.[0-9]{1,40})?")

# Largest calibration bodies in flight; more if they are smaller.
N_LARGEST_CALIBRATIONS = 4


class Gate(Enum):
    """Required credentials and checks of an address."""

    OPEN = "public: health, metrics, documentation"
    CLIENT = "API key"
    DESIGN = "the same, then deadline, load and memory for a body of designs"
    EXPORT = "the same for a body of one filter, by the load of exports"
    HYBRID = "the same, by the load of designs with a controller, which take as long as recordings"
    CALIBRATION = "the same for a body of recordings, by the load of calibrations"
    VERIFICATION = "the same, by the load of verifications"
    OPERATOR = "management key, or the management listener"


class BodyMemoryLimit:
    """Count bodies by their declared lengths, before they are read."""

    def __init__(self, max_bytes: int) -> None:
        """Limit the total of all bodies in flight."""
        self.n_bytes = 0
        self._max_bytes = max_bytes

    def reserve(self, n_bytes: int) -> None:
        """Count a body; HttpProblem `overloaded` if it exceeds the limit."""
        if self.n_bytes + n_bytes > self._max_bytes:
            detail = f"the bodies of other requests take {self.n_bytes} of {self._max_bytes} bytes; try again later"
            raise HttpProblem("overloaded", detail)
        self.n_bytes += n_bytes


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that was admitted, until it is released."""

    # Deadline (`perf_counter`, seconds).
    due: float = math.inf
    # Declared length, counted in `memory`.
    n_body_bytes: int = 0
    memory: BodyMemoryLimit | None = None

    def release(self) -> None:
        """Release the memory of the body."""
        if self.memory is not None:
            self.memory.n_bytes -= self.n_body_bytes


@dataclass(frozen=True)
class BodyPolicy:
    """Limits on the bodies of one gate."""

    max_bytes: int
    deadline_ms: float
    memory: BodyMemoryLimit
    # Raises if nothing can meet a given deadline.
    reject_if_overloaded: Callable[[float], None]


class Admission:
    """Checks key, deadline, length, load and memory of requests."""

    def __init__(self, settings: Settings, reject_if_overloaded: Mapping[Gate, Callable[[float], None]]) -> None:
        """Prepare the checks; reject_if_overloaded raises RefusedJob for a deadline that a gate's work cannot meet.

        Raises
        ------
        ValueError
            A file of keys cannot be read.
        """
        self._allowed_hosts = settings.allowed_hosts
        self._origins = frozenset(settings.cors_origins)
        self._keys = Keys(settings.api_keys, settings.api_keys_file)
        self._management_keys = Keys(settings.management_keys, settings.management_keys_file)
        filters = (
            settings.max_body_bytes,
            settings.deadline_ms,
            BodyMemoryLimit(max(BODIES_BYTES, settings.max_body_bytes)),
        )
        recordings = (
            settings.max_calibration_bytes,
            settings.calibration_deadline_ms,
            BodyMemoryLimit(N_LARGEST_CALIBRATIONS * settings.max_calibration_bytes),
        )
        # Bodies of filters, with the time of recordings.
        hybrids = (filters[0], settings.calibration_deadline_ms, filters[2])
        kinds = {Gate.CALIBRATION: recordings, Gate.VERIFICATION: recordings, Gate.HYBRID: hybrids}
        self.policies: Mapping[Gate, BodyPolicy] = {
            gate: BodyPolicy(*kinds.get(gate, filters), reject) for gate, reject in reject_if_overloaded.items()
        }

    def admit(self, scope: Scope, headers: Headers, gate: Gate, began: float) -> Admitted:
        """Admit a request, or raise HttpProblem or RefusedJob.

        Parameters
        ----------
        scope, headers
            Of the request.
        gate
            Of its address.
        began
            When its handling started (`perf_counter`, seconds).
        """
        is_management = MANAGEMENT in scope["state"]
        refuse_foreign_host(scope, headers, self._allowed_hosts)
        if is_management or scope["method"] == "POST":
            refuse_foreign_page(headers, frozenset() if is_management else self._origins)
        if gate is Gate.OPEN:
            return Admitted()
        if gate is Gate.OPERATOR or (gate is Gate.CLIENT and is_management):
            scope["state"][KEY_NAME] = self._require_operator(headers, is_management)
            if "content-length" in headers or "transfer-encoding" in headers:
                declared_length(headers, self.policies[Gate.DESIGN].max_bytes)
            return Admitted()
        if self._keys.are_required:
            scope["state"][KEY_NAME] = self._keys.require(headers)
        if gate is Gate.CLIENT:
            return Admitted()
        policy = self.policies[gate]
        due = began + deadline_s(headers, policy.deadline_ms)
        n_bytes = declared_length(headers, policy.max_bytes)
        if n_bytes > MAX_JSON_BYTES and headers.get("content-type", "").startswith("application/json"):
            raise json_too_large(n_bytes)
        policy.reject_if_overloaded(due)
        policy.memory.reserve(n_bytes)
        return Admitted(due, n_bytes, policy.memory)

    def _require_operator(self, headers: Headers, is_management: bool) -> str:
        """Require the management key, whose name is returned; without one only its listener may manage models."""
        if self._management_keys.are_required:
            return self._management_keys.require(headers)
        if not is_management:
            raise HttpProblem(
                "unauthorised",
                "no management key is set up; ask the operator to set management-keys",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return ""


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
