"""The client writes the bytes that the service's own encoder writes."""

import numpy as np
import pytest

from prime_anc_client import Take, wire
from prime_anc_client.wire import document, encode, encode_json, encode_takes
from service.api import json_parsing
from service.api.request_types import DesignBody, read_object
from service.calibration import take_codec
from service.calibration.takes import ProbeTake
from synthesis.conventions import N_BINS


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128, np.int16, ">f4"])
@pytest.mark.parametrize("has_coherence", [True, False])
def test_the_bytes_are_the_service_s(dtype: str, has_coherence: bool) -> None:
    draw = np.random.default_rng(0)
    primary, secondary, coherence = ((9 * draw.standard_normal(n)).astype(dtype) for n in (7, 5, 3))
    more = [np.abs(coherence)] if has_coherence else []
    assert encode(primary, secondary, *more) == wire.encode(primary, secondary, *more)
    known = np.linspace(0, 1, 62)
    assert encode(primary, secondary, *more, uncertainty=known) == wire.encode(
        primary, secondary, *more, uncertainty=known
    )


def test_lists_are_arrays_too() -> None:
    assert encode([1.0, 0.5], [1.0], [0.9]) == wire.encode(*(np.array(each) for each in ([1.0, 0.5], [1.0], [0.9])))


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        (([1.0], [1.0 + 0j]), "two of a kind"),
        (([[1.0]], [1.0]), "primary: the array has 2 dimensions"),
        (([1.0], 1.0), "secondary: the array has 0 dimensions"),
        (([1.0], [1.0], [[1.0]]), "coherence: the array has 2 dimensions"),
    ],
)
def test_arrays_of_a_wrong_shape(arrays: tuple[list[float], ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        encode(*arrays)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128, np.int16, ">f4"])
@pytest.mark.parametrize("has_more", [True, False])
def test_the_service_reads_from_json_what_was_given(dtype: str, has_more: bool) -> None:
    """To the last bit of single precision."""
    draw = np.random.default_rng(0)
    n_bins = {"c": 2049}.get(np.dtype(dtype).kind, N_BINS)
    primary, secondary = ((9 * draw.standard_normal(2049)).astype(dtype) for _ in range(2))
    more = dict(zip(("coherence", "reference_psd"), draw.uniform(0.1, 1, (2, n_bins)), strict=True))
    given = document(primary, secondary, **(more if has_more else {}), method="wmmse", sign="plus", model=None)
    read = read_object(DesignBody, json_parsing.parse(encode_json(given)))
    kind = np.complex64 if np.iscomplexobj(primary) else np.float32
    assert np.array_equal(read.primary, primary.astype(kind))
    assert np.array_equal(read.secondary, secondary.astype(kind))
    for name, values in more.items():
        assert np.array_equal(getattr(read, name), values.astype(np.float32)) if has_more else True
        assert has_more or getattr(read, name) is None
    assert (read.method, read.sign, read.model) == ("wmmse", "plus", None)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, ">f4"])
def test_the_bytes_of_takes_are_the_service_s(dtype: str) -> None:
    draw = np.random.default_rng(0)
    takes = [
        (gain, *(9 * draw.standard_normal((2, n))).astype(dtype)) for gain, n in ((0, 5), (0.35, 3), (-1.0, 0))
    ]
    expected = take_codec.encode([ProbeTake(*take) for take in takes])
    assert encode_takes([Take(*take) for take in takes]) == expected


@pytest.mark.parametrize(
    ("take", "text"),
    [
        (
            Take(0, [1.0], [1.0, 2.0]),
            r"takes.1: x is float64\[1\], e is float64\[2\]; give real signals",
        ),
        (Take(0, [[1.0]], [[1.0]]), "takes.1: x is"),
        (Take(0, 1.0, 1.0), "takes.1: x is"),
        (Take(0, [1.0], [1j]), "takes.1: x is"),
    ],
)
def test_signals_of_a_wrong_shape(take: Take, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        encode_takes([Take(0, [1.0], [1.0]), take])
