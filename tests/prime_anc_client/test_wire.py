"""The client writes the bytes that the service's own encoder writes."""

import numpy as np
import pytest

from prime_anc_client.wire import encode
from service import wire


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128, np.int16, ">f4"])
@pytest.mark.parametrize("has_coherence", [True, False])
def test_the_bytes_are_the_service_s(dtype: str, has_coherence: bool) -> None:
    draw = np.random.default_rng(0)
    primary, secondary, coherence = ((9 * draw.standard_normal(n)).astype(dtype) for n in (7, 5, 3))
    more = [np.abs(coherence)] if has_coherence else []
    assert encode(primary, secondary, *more) == wire.encode(primary, secondary, *more)


def test_lists_are_arrays_too() -> None:
    assert encode([1.0, 0.5], [1.0], [0.9]) == wire.encode(*(np.array(each) for each in ([1.0, 0.5], [1.0], [0.9])))


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        (([1.0], [1.0 + 0j]), "two of a kind"),
        (([[1.0]], [1.0]), "primary: found 2 dimensions"),
        (([1.0], 1.0), "secondary: found 0 dimensions"),
        (([1.0], [1.0], [[1.0]]), "coherence: found 2 dimensions"),
    ],
)
def test_arrays_of_a_wrong_shape(arrays: tuple[list[float], ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        encode(*arrays)
