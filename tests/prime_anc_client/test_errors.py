"""Problem documents and other errors become exceptions."""

import pytest

from prime_anc_client import errors
from prime_anc_client.errors import Refused, from_answer


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Refused),
        (401, errors.Unauthorised),
        (404, errors.UnknownModel),
        (422, errors.UnusablePaths),
        (429, errors.OverQuota),
        (500, errors.ServiceFault),
        (502, errors.Unavailable),
        (503, errors.Unavailable),
    ],
)
@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway", b"{}"])
def test_foreign_error_becomes_refusal(status: int, kind: type[Refused], body: bytes) -> None:
    found = from_answer(status, body)
    assert type(found) is kind
    assert (found.status, found.code) == (status, "no-problem-document")
