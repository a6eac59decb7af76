"""Requests of foreign pages are recognised by their headers; other clients are served."""

import pytest
from starlette.datastructures import Headers

from service.admission import refuse_foreign_host, refuse_foreign_page
from service.errors import HttpProblem

LOOPBACK = {"type": "http", "server": ("127.0.0.1", 8000)}
ALLOWED = ("anc.example.org",)


def refusal(headers: dict[str, str], scope: dict = LOOPBACK, allowed: tuple[str, ...] = ALLOWED) -> str | None:
    try:
        sent = Headers({"Host": "127.0.0.1:8000"} | headers)
        refuse_foreign_host(scope, sent, allowed)
        refuse_foreign_page(sent)
    except HttpProblem as refused:
        return refused.code
    return None


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example"},
        {"Host": "evil.example", "Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_foreign_request_is_refused(headers: dict[str, str]) -> None:
    assert refusal(headers) == "cross-site"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "[::1]:9"},
        {"Host": "localhost:9", "Origin": "http://localhost:9", "Sec-Fetch-Site": "same-origin"},
        {"Host": "replica", "Origin": "https://anc.example.org", "Sec-Fetch-Site": "same-origin"},
        {"Host": "192.0.2.1:8080", "Origin": "http://192.0.2.1:8080"},
    ],
)
def test_page_and_programs_are_served(headers: dict[str, str]) -> None:
    assert refusal(headers) is None


@pytest.mark.parametrize("server", [("10.0.0.5", 8000), ("/run/anc.sock", None), None])
def test_host_is_free_beyond_loopback(server: tuple[str, int | None] | None) -> None:
    scope = {"type": "http", "server": server}
    assert refusal({"Host": "anc.example.org"}, scope, ()) is None
    foreign = {"Host": "anc.example.org", "Origin": "https://other.example.org"}
    assert refusal(foreign, scope, ()) == "cross-site"
