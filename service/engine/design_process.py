"""A process of its own for models on a CPU, so that designs do not share Python's lock with the event loop.

There a design is hundreds of short NumPy calls, each of which needs the lock again afterwards. Beside an event loop
that refuses hundreds of requests a second it took up to three times as long as alone. The price of a process is the
way there and back, about a millisecond on a slow processor. On a GPU the worker waits for the device without the
lock, and what it has to say to it is short: there models stay in the service's own process.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from model_store.errors import ModelStoreError
from model_store.store import ModelStore, ModelVersion
from service.designs import Design, Ear, Evaluation, Float32, Recipe
from service.engine import design_worker
from service.engine.design_worker import LANES, Lane, Task
from service.engine.net import USUAL, Net
from service.engine.shared_memory import SharedMemory
from synthesis.errors import SynthesisError

logger = logging.getLogger(__name__)

ENDS_WITHIN_S = 10.0


class DesignProcessDied(RuntimeError):
    """The process has ended before it has answered, or there was no way to begin it."""


class DesignProcess:
    """The process, and its successor where that has died, into which models are loaded when they are next asked."""

    def __init__(self, n_threads: int, net: Net = USUAL) -> None:
        """Starts nothing yet. n_threads: of one design. net: under all models."""
        self._n_threads = n_threads
        self._net = net
        self._beginning = threading.Lock()
        self._is_closed = False
        self.n_deaths = 0
        self.on_death: Callable[[], object] = lambda: None
        """Called once for each process that has died, in a thread of its own; not for one that has never designed:
        so may the next, which is begun when somebody asks."""
        self._life: Life | None = None

    def start(self) -> None:
        """Start the process, which `life` does otherwise: at a moment when it can be forked."""
        self.life()

    def load(self, store: ModelStore, version: ModelVersion, device: torch.device) -> ModelApart:
        """As `ResidentModel.load`, in the process; without holding up its designs."""
        return ModelApart(self, store, version, device)

    def life(self) -> Life:
        """The process of now, begun anew where the last one has died. DesignProcessDied once closed."""
        with self._beginning:
            if self._is_closed:
                raise DesignProcessDied("found the design process closed")
            if self._life is None:
                atexit.register(self.close)  # or our exit would wait for it, and it for ours
            if self._life is None or self._life.has_died:
                try:
                    self._life = self._begun()
                except (OSError, RuntimeError) as error:  # no process, descriptor or thread is to be had
                    logger.error("The design process cannot be started: %s", error)
                    raise DesignProcessDied("found no way to start the design process") from error
            return self._life

    def resident_bytes(self) -> int:
        """Its resident memory; 0 where there is none, or the system does not say."""
        if self._life is None:
            return 0
        try:
            n_pages = int(Path(f"/proc/{self._life.process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return 0
        return n_pages * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        """End it by force, as it does not answer: its successor designs what it was at."""
        if self._life is not None:
            self._life.process.kill()

    def abandon(self) -> None:
        """End it by force for good: whoever waits for it or still asks is told DesignProcessDied."""
        with self._beginning:
            self._is_closed = True
        self.kill()

    def close(self) -> None:
        """End it; whoever still asks is told DesignProcessDied."""
        atexit.unregister(self.close)
        with self._beginning:
            self._is_closed = True
        if self._life is not None:
            self._life.end()

    def _begun(self) -> Life:
        """Forked where nothing else runs that could hold a lock meanwhile, as at the start of `python -m service`:
        it then has all modules at once and shares their memory. Spawned elsewhere."""
        context = multiprocessing.get_context("fork" if _is_alone() else "spawn")
        pairs = [context.Pipe() for _ in LANES]
        ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        # A forked process has our ends, too, and would never see them closed.
        not_theirs = ours if context.get_start_method() == "fork" else []
        memory = SharedMemory()
        process = context.Process(  # type: ignore[attr-defined]
            target=design_worker.run, args=(theirs, not_theirs, memory, self._n_threads, self._net), daemon=True
        )
        process.start()
        memory.close_file()
        for end in theirs:
            end.close()
        life = Life(process, ours, memory)
        threading.Thread(target=self._watch, args=(life,), name="watch-designs", daemon=True).start()
        return life

    def _watch(self, life: Life) -> None:
        wait([life.process.sentinel])
        life.has_died = True
        if not self._is_closed:
            self.n_deaths += 1
            life.process.join()
            logger.error("The design process has died (exit status %s); another is started", life.process.exitcode)
            if life.has_designed:
                self.on_death()


class Life:
    """One process, from its start to its end."""

    def __init__(self, process: BaseProcess, lanes: Sequence[Connection[Any, Any]], memory: SharedMemory) -> None:
        """lanes: our ends, as LANES. memory: for the arrays of what is asked in the lane of designs."""
        self.process = process
        self._memory = memory
        self.has_died = False
        self.has_designed = False
        """Whether it was good for more than to load a model."""
        self.freed: deque[int] = deque()
        """Models that nobody holds any more; said with the next question."""
        self._lanes = dict(zip(LANES, lanes, strict=True))
        self._taken = {lane: threading.Lock() for lane in LANES}

    def ask(self, lane: Lane, task: Task, key: int, *given: object) -> Any:
        """Have the process do one of its `design_worker.Tasks` for a model, and await its answer or its error."""
        with self._taken[lane]:
            return self._answer(lane, task, key, given)

    def ask_about(self, task: Task, key: int, told: Callable[[SharedMemory], tuple[object, ...]]) -> Any:
        """Likewise, in the lane of designs: `told` puts arrays into the memory and says the rest."""
        with self._taken["designs"]:
            self._memory.clear()
            return self._answer("designs", task, key, told(self._memory))

    def _answer(self, lane: Lane, task: Task, key: int, given: tuple[object, ...]) -> Any:
        try:
            self._lanes[lane].send(([*self._let_go()], task, key, given))
            found = self._lanes[lane].recv()
        except (EOFError, OSError, MemoryError) as error:
            self.has_died = True
            self.process.kill()  # half an answer may be left of one that lives
            raise DesignProcessDied("found the design process gone, expected its answer") from error
        if isinstance(found, Exception):
            raise found
        self.has_designed |= task != "load"
        return found

    def _let_go(self) -> Iterator[int]:
        """What is in `freed`, of which both lanes take."""
        with suppress(IndexError):
            while True:
                yield self.freed.popleft()

    def end(self) -> None:
        """Hang up, which ends it."""
        for lane in self._lanes.values():
            lane.close()
        self.process.join(ENDS_WITHIN_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class ModelApart:
    """A model in the design process, to be used like a `ResidentModel` in the same thread."""

    _keys = count()

    def __init__(self, home: DesignProcess, store: ModelStore, version: ModelVersion, device: torch.device) -> None:
        """Loads it, and raises what `ResidentModel.load` raises."""
        self.version = version
        self.device = device
        self.graph_bytes = 0
        self._home = home
        self._store = store
        self._key = next(self._keys)
        self._life: Life | None = None
        self._in_process("loads", lambda life: None)

    def check(self) -> float:
        """As `ResidentModel.check`."""
        spent_s, self._tensor_bytes = self._in_process(
            "designs", lambda life: life.ask("designs", "check", self._key)
        )
        return float(spent_s)

    def tensor_bytes(self) -> int:
        """Memory of its weights and buffers, when it was last checked."""
        return self._tensor_bytes

    def design(self, recipe: Recipe, ears: Sequence[Ear]) -> list[Design | SynthesisError]:
        """As `ResidentModel.design`."""

        def told(memory: SharedMemory) -> tuple[object, ...]:
            return recipe, [design_worker.asked(ear, memory) for ear in ears]

        return [
            design_worker.design(made, recipe, self.version, ear.sign)
            for made, ear in zip(self._ask_about("design", told), ears, strict=True)
        ]

    def evaluate(self, ears: Sequence[Ear], filters: Sequence[Float32]) -> list[Evaluation | SynthesisError]:
        """As `ResidentModel.evaluate`."""

        def told(memory: SharedMemory) -> tuple[object, ...]:
            return [design_worker.asked(ear, memory) for ear in ears], [memory.put(taps) for taps in filters]

        return [design_worker.evaluation(made, self.version) for made in self._ask_about("evaluate", told)]

    def _ask_about(self, task: Task, told: Callable[[SharedMemory], tuple[object, ...]]) -> Any:
        return self._in_process("designs", lambda life: life.ask_about(task, self._key, told))

    def _in_process(self, lane: Lane, work: Callable[[Life], Any]) -> Any:
        """Do it in the process; where that dies meanwhile, in its successor, once: it may have died of this."""
        try:
            return work(self._life_with_this(lane))
        except DesignProcessDied:
            return work(self._life_with_this(lane))

    def _life_with_this(self, lane: Lane) -> Life:
        """The process of now, into which the model is loaded where it was in another."""
        life = self._home.life()
        if life is not self._life:
            try:
                self._load(life, lane)
            except DesignProcessDied:
                raise
            except Exception as error:
                if self._life is None:
                    raise
                raise ModelStoreError(f"found {self.version} gone or damaged, expected it as it was") from error
        return life

    def _load(self, life: Life, lane: Lane) -> None:
        loaded = life.ask(lane, "load", self._key, self._store, self.version, self.device)
        self.golden_ear, self.scored_noise_reduction_db, self._tensor_bytes = loaded
        self._life = life
        weakref.finalize(self, life.freed.append, self._key).atexit = False


def _is_alone() -> bool:
    """Whether this is the only thread of its process, those of libraries counted."""
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False
