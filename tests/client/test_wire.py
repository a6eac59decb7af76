"""The service reads the client's bodies; foreign errors become exceptions."""

import numpy as np
import pytest

from prime_anc.client import errors, wire
from prime_anc.client.errors import Refused, from_answer
from prime_anc.method.conventions import N_BINS
from prime_anc.requests.bodies import DesignBody
from prime_anc.requests.reading import validate_object
from service.api.reading import parse_tensors


def read(body: bytes) -> DesignBody:
    return validate_object(DesignBody, parse_tensors(body))


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.int16, ">f4"])
def test_service_reads_what_was_given(dtype: str) -> None:
    """Values are exact in single precision."""
    draw = np.random.default_rng(0)
    n_bins = {"c": 2049}.get(np.dtype(dtype).kind, N_BINS)
    primary, secondary = ((9 * draw.standard_normal(2049)).astype(dtype) for _ in range(2))
    more = dict(zip(("coherence", "reference_psd"), draw.uniform(0.1, 1, (2, n_bins)), strict=True))
    found = read(wire.encode(primary, secondary, **more, method="wmmse", sign="plus"))
    kind = np.complex64 if np.iscomplexobj(primary) else np.float32
    assert np.array_equal(found.primary, primary.astype(kind))
    assert np.array_equal(found.secondary, secondary.astype(kind))
    for name, values in more.items():
        assert np.array_equal(getattr(found, name), values.astype(np.float32))
    assert (found.method, found.sign) == ("wmmse", "plus")


def test_rows_of_two_are_no_spectrum() -> None:
    with pytest.raises(ValueError, match=r"primary: an array of the shape \[1, 2\] reads as a spectrum"):
        wire.encode([[1.0, 2.0]], [1.0])


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *[(400, Refused), (401, errors.Unauthorised), (404, errors.UnknownModel), (422, errors.InvalidRequest)],
        *[(429, errors.OverQuota), (500, errors.ServiceFault), (502, errors.Unavailable)],
    ],
)
def test_foreign_error_becomes_refusal(status: int, kind: type[Refused]) -> None:
    for body in (b"", b"<html>Bad Gateway", b"{}"):
        found = from_answer(status, body)
        assert (type(found), found.status, found.code) == (kind, status, "no-problem-document")
