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
        (lambda x: x[:, 3:5].fill_(complex(0, float("inf"))), "2 of its values are NaN or infinite"),
        (lambda x: x.zero_(), "it is all zero"),
    ],
    ids=["infinite", "all-zero"],
)
def test_unusable_values_are_named(name: str, spoil: object, fault: str) -> None:
    paths = AcousticPaths.from_impulse_responses(*PAIR)
    spoil(getattr(paths, name)[1:])  # one ear of the batch is enough
    with pytest.raises(InvalidPaths, match=f"{name}: {fault}") as caught:
        paths.validate()
    assert caught.value.field == name


def test_wrong_shapes_are_named() -> None:
    p, s = (getattr(AcousticPaths.from_impulse_responses(*PAIR), name) for name in ("primary", "secondary"))
    for paths, message in (
        ((p[0], s), r"primary: its shape is \(16385,\)"),
        ((p, s.real), r"secondary: .*float32; give complex"),
        ((p, s[:, ::4]), r"secondary: its shape is \(2, 4097\).*primary, \(2, 16385\)"),
    ):
        with pytest.raises(InvalidPaths, match=message) as caught:
            AcousticPaths(*paths).validate()
        assert caught.value.field == message.partition(":")[0]
