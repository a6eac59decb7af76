"""Refuses what the page of another site has a visitor's browser send.

A browser reaches what its visitor reaches: a service on the same machine, a management listener, a service behind
a firewall. It says whose page asks in `Origin` and, at trustworthy addresses, in `Sec-Fetch-Site`. To the browser,
a page whose name is made to resolve to this machine (DNS rebinding) has the same origin, but it cannot hide that
name in `Host`: over loopback only names are accepted that no such page can have.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import Scope

from service.errors import HttpProblem


def refuse_foreign(scope: Scope, headers: Headers, allowed_hosts: Collection[str]) -> None:
    """Refuse a request that another site's page has sent.

    Parameters
    ----------
    scope
        Of the request; `server` is the address that it was received on.
    headers
        Of the request. A client that is no browser sends neither `Origin` nor `Sec-Fetch-Site`.
    allowed_hosts
        Names, in lower case, that `Host` may have over loopback besides addresses and names without a dot.

    Raises
    ------
    HttpProblem
        `cross-site`: for a foreign `Origin`, a `Sec-Fetch-Site` of `cross-site` and, over loopback, a foreign
        `Host`.
    """
    hosts = headers.getlist("host")
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    # Where a proxy changes Host, a browser still says "same-origin" of its own page.
    own = {each.lower() for each in hosts}
    is_foreign = origin is not None and site != "same-origin" and origin.partition("://")[2].lower() not in own
    if site == "cross-site" or is_foreign:
        raise HttpProblem(
            "cross-site",
            "the page of another site sent this request; send it from the service's own page or from a program, "
            "without Origin",
        )
    if _is_loopback(scope) and not all(_is_local(_name(each), allowed_hosts) for each in hosts):
        raise HttpProblem(
            "cross-site",
            f"Host: {', '.join(hosts)[:80]!a} is not a name of this service; call it by its address, or ask the "
            "operator to add the name to allowed-hosts",
        )


def _name(host: str) -> str:
    """A host without its port, in lower case."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_local(name: str, allowed_hosts: Collection[str]) -> bool:
    """Whether a name is an address, has no dot or is allowed: no other site's page can have it."""
    return "." not in name or name.endswith(".localhost") or name in allowed_hosts or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(scope: Scope) -> bool:
    """Whether a request was received on a loopback address."""
    address = (scope.get("server") or ("",))[0]
    return _is_address(address) and ip_address(address).is_loopback
