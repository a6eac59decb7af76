"""The table of methods: names, groups, and what each rests on."""

import pytest

from training.config import load_config
from training.methods import FITTED, GENERATORS, GROUPS, NAMES, UNTRAINED, GeneratorSetup, chosen_methods


def test_every_method_has_one_name() -> None:
    assert len(set(NAMES)) == len(NAMES) == len(UNTRAINED) + len(FITTED) + len(GENERATORS)
    assert not set(GROUPS) & set(NAMES)
    assert all(set(group) <= set(NAMES) for group in GROUPS.values())


def test_names_and_groups_are_joined_in_the_tables_order() -> None:
    assert chosen_methods("wmmse, ratio_base_full_band,wmmse") == ("ratio_base_full_band", "wmmse")
    assert chosen_methods("standard,prime-log") == (*GROUPS["standard"], "prime-log")
    assert chosen_methods("all") == NAMES


def test_a_control_made_of_a_standard_generator_brings_it_along() -> None:
    assert chosen_methods("prime_shuffled_phase") == ("prime_shuffled_phase", "prime")


def test_a_methods_name_is_its_key(reference_psd) -> None:
    for name, entry in UNTRAINED.items():
        if name != "weighted_fxlms":  # scored in a way of its own
            assert entry.make(reference_psd).name == name


@pytest.fixture
def reference_psd():
    import torch

    return torch.full((16_385,), 1e-6)


def test_recipes_differ_in_what_their_names_say() -> None:
    standard, bare = GeneratorSetup("prime"), GENERATORS["prime_no_interpolation"]
    assert standard.configuration().interpolation
    assert not bare.configuration().interpolation
    assert bare.configuration().model_copy(update={"interpolation": True}) == standard.configuration()
    assert GENERATORS["prime-log_minimum_phase"].layout(32_768).realisation == "minimum_phase"
    assert GENERATORS["prime-log"].layout(32_768).realisation == "fir_wiener"
    assert GENERATORS["prime-log"].configuration() == load_config("prime-log")
    assert GeneratorSetup("prime").configuration(n_updates=7, window=None).n_updates == 7
