"""Acoustic paths: the transform pair, and what is refused and how."""

import pytest
import torch

from prime_anc.method.errors import InvalidPaths
from prime_anc.method.paths import AcousticPaths

PAIR = (torch.ones(2, 16), torch.ones(2, 8))


@pytest.mark.parametrize("name", ["primary", "secondary"])
@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda x: x[:, :1].fill_(float("nan")), "1 of its values are NaN or infinite"),
        (lambda x: x[:, 3:5].fill_(complex(0, float("inf"))), "2 of its values are NaN or infinite"),
        (lambda x: x.zero_(), "it is all zero"),
    ],
    ids=["nan", "infinite", "all-zero"],
)
def test_unusable_values_are_named(name: str, spoil: object, fault: str) -> None:
    paths = AcousticPaths.from_impulse_responses(*PAIR)
    spoil(getattr(paths, name)[1:])  # one ear of the batch is enough
    with pytest.raises(InvalidPaths, match=f"{name}: {fault}") as caught:
        paths.validate()
    assert caught.value.field == name


def test_wrong_shapes_are_named() -> None:
    good = AcousticPaths.from_impulse_responses(*PAIR)
    assert good.validate() is good
    with pytest.raises(InvalidPaths, match=r"primary: its shape is \(16385,\)") as caught:
        AcousticPaths(good.primary[0], good.secondary).validate()
    assert caught.value.field == "primary"
    with pytest.raises(InvalidPaths, match=r"secondary: .*float32; give complex") as caught:
        AcousticPaths(good.primary, good.secondary.real).validate()
    assert caught.value.field == "secondary"
    with pytest.raises(InvalidPaths, match=r"secondary: its shape is \(2, 4097\).*primary, \(2, 16385\)"):
        AcousticPaths(good.primary, good.secondary[:, ::4]).validate()
