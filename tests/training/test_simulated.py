"""The simulated earphone: a causal, listener-dependent stand-in that resembles PANDAR."""

import numpy as np

from training.datasets.simulated import simulate_listeners


def test_two_ears_each_labelled_and_repeatable() -> None:
    dataset = simulate_listeners(3, seed=4)
    assert dataset.is_simulated
    assert "no measurement" in dataset.notes
    assert [(pair.listener, pair.ear) for pair in dataset.pairs[:3]] == [
        ("simulated-001", "left"),
        ("simulated-001", "right"),
        ("simulated-002", "left"),
    ]
    again = simulate_listeners(3, seed=4)
    for first, second in zip(dataset.pairs, again.pairs, strict=True):
        np.testing.assert_array_equal(first.primary, second.primary)
        np.testing.assert_array_equal(first.secondary, second.secondary)
    assert dataset.fingerprint == again.fingerprint
