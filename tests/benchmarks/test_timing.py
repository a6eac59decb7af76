"""Taking turns: everybody as often as everybody else, in an order that changes."""

from benchmarks.timing import take_turns


def test_everybody_has_turn_in_every_round() -> None:
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
