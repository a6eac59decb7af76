"""The generator: its start, and its configuration on disk."""

import pytest
import torch

from prime_anc.method.errors import InvalidOption
from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.start.generator import Generator

PRIME_LOG = GeneratorConfig.prime_log()


@pytest.mark.parametrize("config", [GeneratorConfig.prime(n_fft=4096), PRIME_LOG], ids=lambda item: item.kind)
def test_untrained_generator_corrects_nothing(config: GeneratorConfig) -> None:
    generator = Generator(config)
    assert not generator(torch.randn(2, 12, generator.grid.n_points)).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "dense"}, "generator kind: .* is out of range"),
        ({"n_fft": 10_000}, "generator n_fft: .* is out of range"),
        ({"bound_db": float("nan")}, "generator bound_db: .* is out of range"),
        ({"dilations": []}, r"dilations: \(\) is no tuple"),
        ({"layers": 3}, r"\['layers'\] are unknown"),
        ({"n_fft": True}, "n_fft: True is no int"),
        ({"bound_db": None}, r"\['bound_db'\] missing"),
    ],
)
def test_impossible_configurations_are_named(changes: dict[str, object], message: str) -> None:
    values = {name: value for name, value in (PRIME_LOG.to_dict() | changes).items() if value is not None}
    with pytest.raises(InvalidOption, match=message):
        GeneratorConfig.from_dict(values)
