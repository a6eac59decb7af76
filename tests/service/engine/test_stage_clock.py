"""Times of stages: of the processor's clock, and of events in a GPU's stream, which a stand-in has here."""

import pytest
import torch

from service.engine.stage_clock import StageClock


class Stream:
    """What a GPU has been given to do, and the events in it: each is reached when what lies before it is done."""

    def __init__(self) -> None:
        self.n_made = 0
        self.given_ms = self.done_ms = 0.0

    def event(self, enable_timing: bool) -> "Event":
        assert enable_timing
        self.n_made += 1
        return Event(self)


class Event:
    """As `torch.cuda.Event`."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._at_ms = stream, float("nan")

    def record(self) -> None:
        """Behind all that the stream has been given."""
        self._at_ms = self._stream.given_ms

    def synchronize(self) -> None:
        """Wait for it."""
        self._stream.done_ms = max(self._stream.done_ms, self._at_ms)

    def elapsed_time(self, end: "Event") -> float:
        """An event that is not yet reached has no time."""
        assert max(self._at_ms, end._at_ms) <= self._stream.done_ms
        return end._at_ms - self._at_ms


def test_on_a_gpu_stages_are_timed_by_events_in_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream()
    monkeypatch.setattr(torch.cuda, "Event", stream.event)
    clock = StageClock(torch.device("cuda"))

    def design(stages: dict[str, float]) -> dict[str, float]:
        stream.given_ms += 100  # between designs
        clock.start()
        for stage, spent_ms in stages.items():
            stream.given_ms += spent_ms
            clock.mark(stage.rstrip("+"))
        assert stream.done_ms < stream.given_ms, "marks are waited for"
        return clock.times_ms()

    assert design({"generate": 2.0, "refine": 3.0, "predict": 1.0}) == {"generate": 2, "refine": 3, "predict": 1}
    assert design({"refine": 4.0}) == {"refine": 4}
    assert design({"refine": 1.0, "predict": 2.0, "predict+": 4.0}) == {"refine": 1, "predict": 6}
    assert stream.n_made == 4  # once for the longest design, and used again


def test_on_a_cpu_stages_are_timed_by_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter((1.0, 1.002, 1.005, 7.0, 7.001))
    monkeypatch.setattr("service.engine.stage_clock.perf_counter", lambda: next(readings))
    clock = StageClock(torch.device("cpu"))
    clock.start()
    clock.mark("generate")
    clock.mark("refine")
    assert clock.times_ms() == pytest.approx({"generate": 2, "refine": 3})
    clock.start()
    clock.mark("refine")
    assert clock.times_ms() == pytest.approx({"refine": 1})
