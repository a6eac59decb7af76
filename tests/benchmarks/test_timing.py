"""Taking turns: everybody as often as everybody else, in an order that changes."""

import gc

import pytest

from benchmarks.timing import summary, take_turns


def test_everybody_has_a_turn_in_every_round() -> None:
    order: list[tuple[int, str]] = []

    def turn(name: str) -> object:
        def take(number: int) -> dict[str, float]:
            order.append((number, name))
            return {"stage": float(number)}

        return take

    taken = take_turns({name: turn(name) for name in "abc"}, 20)  # type: ignore[misc]
    in_order = [float(number) for number in range(20)]
    assert all(stages["stage"] == in_order for stages in taken.values())
    rounds = [tuple(name for number, name in order if number == i) for i in range(20)]
    assert all(sorted(item) == ["a", "b", "c"] for item in rounds)
    assert len(set(rounds)) > 1


def test_the_garbage_collector_is_given_back() -> None:
    with pytest.raises(ZeroDivisionError):
        take_turns({"a": lambda number: {"stage": 1 / 0}}, 1)
    assert gc.isenabled()


def test_a_summary_says_how_many() -> None:
    assert summary([3.0, 1.0, 2.0]) == {"p50": 2.0, "p99": pytest.approx(2.98), "n": 3}
    assert summary([]) == {"p50": None, "p99": None, "n": 0}
