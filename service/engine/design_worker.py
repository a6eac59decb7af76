"""What the design process does: loads models, designs with them, says what came out."""

from __future__ import annotations

import gc
import os
import signal
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from model_store.store import ModelStore, ModelVersion
from service.designs import Basis, Design, Ear, Evaluation, Figures, Recipe, Sign
from service.engine.net import Net
from service.engine.resident import ResidentModel
from service.engine.shared_memory import Placed, SharedMemory
from service.threads import prepare_thread, share_one_heap
from synthesis.errors import SynthesisError

Lane = Literal["designs", "loads"]
"""Each is asked by one thread of the service and has one here: to load does not hold up designs."""
LANES: tuple[Lane, ...] = ("designs", "loads")

NICENESS = 5
"""Where cores are short the event loop comes first: a refusal takes a fraction of a millisecond, and with it the
service's answers to everybody. Long JSON yields to both (`formats/side_process.py`)."""

Plain = tuple[str, bytes]
"""An array of one dimension: its kind and its bytes."""


class Asked(NamedTuple):
    """An Ear in plain values, which cross a pipe in a fraction of the time that arrays and classes take."""

    primary: Placed
    secondary: Placed
    coherence: Placed | None
    reference_psd: Placed | None
    sign: Sign
    max_gain_db: float


class Made(NamedTuple):
    """A Design or an Evaluation likewise, without what the service knows. taps: None for an evaluation."""

    basis: Basis
    figures: Plain
    times_ms: dict[str, float]
    taps: Plain | None = None
    method: str = ""
    refinement: dict[str, Any] | None = None
    replaces: str | None = None


def run(
    lanes: Sequence[Connection[Any, Any]],
    not_ours: Sequence[Connection[Any, Any]],
    memory: SharedMemory,
    n_threads: int,
    net: Net,
) -> None:
    """In the process: answer until the service hangs up, which it does when it ends, however it ends.

    not_ours: the service's ends, where they have come along. memory: where it puts arrays. n_threads: of a design.
    net: under its models.
    """
    for end in not_ours:
        end.close()
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # which are the service's, though all are sent them
        signal.signal(each, signal.SIG_IGN)
    share_one_heap()
    os.nice(NICENESS)
    tasks = Tasks(memory, net)
    designs, loads = lanes
    threading.Thread(target=_serve, args=(loads, tasks, 1), name="load", daemon=True).start()
    _serve(designs, tasks, n_threads)


def _serve(lane: Connection[Any, Any], tasks: Tasks, n_threads: int) -> NoReturn:
    """Until the service hangs up; the process ends with it, whatever the other lane is at. So it does where a
    question cannot be read: nobody is to wait for an answer that never comes."""
    try:
        _answer(lane, tasks, n_threads)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _answer(lane: Connection[Any, Any], tasks: Tasks, n_threads: int) -> None:
    prepare_thread(n_threads)
    with suppress(EOFError, OSError):  # the service has hung up
        while True:
            freed, task, key, given = lane.recv()
            tasks.forget(freed)
            try:
                answer = getattr(tasks, task)(key, *given)
            except Exception as error:
                answer = _portable(error)
            lane.send(answer)
            del given, answer  # nothing is kept until the next one


Task = Literal["load", "check", "design", "evaluate"]


class Tasks:
    """What the process can be asked to do, each for a model that the service has given a key."""

    def __init__(self, memory: SharedMemory, net: Net) -> None:
        """No model is there yet. net: under all of them."""
        self._memory = memory
        self._net = net
        self._models: dict[int, ResidentModel] = {}

    def forget(self, keys: Sequence[int]) -> None:
        """Free models that nobody holds any more."""
        for key in keys:
            self._models.pop(key, None)

    def load(self, key: int, store: ModelStore, version: ModelVersion, device: torch.device) -> object:
        """As `ResidentModel.load`; what the service wants to know of it."""
        model = self._models[key] = ResidentModel.load(store, version, device, self._net)
        if not gc.get_freeze_count():
            gc.collect()
            gc.freeze()  # modules and the first model stay: the collector need not look through them every time
        return model.golden_ear, model.scored_noise_reduction_db, model.tensor_bytes()

    def check(self, key: int) -> object:
        """As `ResidentModel.check`, and its memory."""
        return self._models[key].check(), self._models[key].tensor_bytes()

    def design(self, key: int, recipe: Recipe, ears: Sequence[Asked]) -> list[Made | SynthesisError]:
        """As `ResidentModel.design`."""
        return [_made(each) for each in self._models[key].design(recipe, [self._ear(each) for each in ears])]

    def evaluate(self, key: int, ears: Sequence[Asked], filters: Sequence[Placed]) -> list[Made | SynthesisError]:
        """As `ResidentModel.evaluate`."""
        given = [self._ear(each) for each in ears], [self._memory.get(each) for each in filters]
        return [_made(each) for each in self._models[key].evaluate(*given)]

    def _ear(self, given: Asked) -> Ear:
        primary, secondary, coherence, reference_psd = (each and self._memory.get(each) for each in given[:4])
        assert primary is not None
        assert secondary is not None
        return Ear(primary, secondary, coherence, reference_psd, given.sign, given.max_gain_db)


def asked(ear: Ear, memory: SharedMemory) -> Asked:
    """In the service: an ear as the process is told of it, its arrays in the memory of both."""
    primary, secondary = memory.put(ear.primary), memory.put(ear.secondary)
    coherence = None if ear.coherence is None else memory.put(ear.coherence)
    reference_psd = None if ear.reference_psd is None else memory.put(ear.reference_psd)
    return Asked(primary, secondary, coherence, reference_psd, ear.sign, ear.max_gain_db)


def _made(answer: Design | Evaluation | SynthesisError) -> Made | SynthesisError:
    if isinstance(answer, SynthesisError):
        return answer
    figures = answer.figures
    made = Made(figures.basis, _plain(figures.row()), answer.times_ms)
    if isinstance(answer, Evaluation):
        return made
    return made._replace(
        taps=_plain(answer.taps),
        method=answer.recipe.method,
        refinement=answer.refinement,
        replaces=answer.replaces,
    )


def design(
    made: Made | SynthesisError, recipe: Recipe, version: ModelVersion, sign: Sign
) -> Design | SynthesisError:
    """In the service: the design again, of what was asked of that version for an ear of that sign."""
    if isinstance(made, SynthesisError):
        return made
    assert made.taps is not None
    assert made.refinement is not None
    return Design(
        version,
        replace(recipe, method=made.method),
        sign,
        _array(made.taps),
        made.refinement,
        Figures.of(_array(made.figures), made.basis),
        made.times_ms,
        made.replaces,
    )


def evaluation(made: Made | SynthesisError, version: ModelVersion) -> Evaluation | SynthesisError:
    """In the service: the evaluation again."""
    if isinstance(made, SynthesisError):
        return made
    return Evaluation(version, Figures.of(_array(made.figures), made.basis), made.times_ms)


def _plain(values: NDArray[Any]) -> Plain:
    return values.dtype.str, values.tobytes()


def _array(given: Plain) -> NDArray[Any]:
    kind, content = given
    return np.frombuffer(bytearray(content), kind)  # which may be written to


def _portable(error: Exception) -> Exception:
    """An error that says the same, and where it came from, which no trace takes along: itself where it is made of
    its message alone, as what can be wrong with a design."""
    if not isinstance(error, SynthesisError):
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note("In the design process:\n" + traceback.format_exc())
    return error
