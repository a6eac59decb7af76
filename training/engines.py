"""Where the pieces of an experiment are worked on: this machine's cores, or a Ray cluster.

An engine yields each piece with its rows as it is finished. What a worker that dies was at is done again by
another, a training from its last state if both see the same OUT; in a pool of local processes, what the others were
at as well. A piece that fails ends the run, which goes on from there when it is started again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from threading import Thread

import torch

from training.experiment import Options, Piece, open_experiment
from training.protocol import Row

Finished = tuple[Piece, list[Row]]
Engine = Callable[[Options, Sequence[Piece], int], Iterator[Finished]]

MAX_DEATHS = 3


class WorkerLost(RuntimeError):
    """Workers died again and again; the message says what was left to do."""


def run_piece(options: Options, piece: Piece) -> list[Row]:
    """In a worker: open the experiment once, do the piece."""
    return open_experiment(options).run(piece)


def local(options: Options, pieces: Sequence[Piece], n_workers: int) -> Iterator[Finished]:
    """On this machine: in this process for one worker, else in n_workers processes that share its cores."""
    if n_workers == 1:
        for piece in pieces:
            yield piece, run_piece(options, piece)
        return
    left = list(pieces)
    for _ in range(MAX_DEATHS):
        try:
            for piece, rows in _in_processes(options, left, n_workers):
                left.remove(piece)
                yield piece, rows
            return
        except BrokenProcessPool:
            print(f"a worker process died; {len(left)} pieces are left and go on in new ones", flush=True)
    raise WorkerLost(f"engine: found worker processes dying {MAX_DEATHS} times, {len(left)} pieces are left")


def _in_processes(options: Options, pieces: Sequence[Piece], n_workers: int) -> Iterator[Finished]:
    n_threads = max(1, (os.cpu_count() or 1) // n_workers)
    with ProcessPoolExecutor(
        n_workers, mp_context=get_context("spawn"), initializer=_start_worker, initargs=(n_threads,)
    ) as pool:
        futures: dict[Future[list[Row]], Piece] = {
            pool.submit(run_piece, options, piece): piece for piece in pieces
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _start_worker(n_threads: int) -> None:
    """In a new worker: take its share of the cores, and watch for the end of its parent."""
    torch.set_num_threads(n_threads)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed can stop nobody, and the run that takes over would have its workers doubled."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def ray(options: Options, pieces: Sequence[Piece], n_workers: int) -> Iterator[Finished]:
    """On a Ray cluster: the one at RAY_ADDRESS, or else one started here with n_workers cores.

    A piece whose worker dies is retried by Ray, MAX_DEATHS times. Data, OUT and the store must lie where every
    machine sees them.
    """
    try:
        import ray as cluster
    except ImportError as error:
        raise ImportError("--engine ray: found no ray, expected the extra: pip install .[cluster]") from error
    started = not cluster.is_initialized()
    if started:
        # Its own processes: never more of them than cores were granted.
        here = None if os.environ.get("RAY_ADDRESS") else n_workers
        cluster.init(num_cpus=here, include_dashboard=False, log_to_driver=True)
    try:
        work = cluster.remote(num_cpus=1, max_retries=MAX_DEATHS)(run_piece)
        waiting = {work.remote(options, piece): piece for piece in pieces}
        while waiting:
            done, _ = cluster.wait(list(waiting), num_returns=1)
            for reference in done:
                yield waiting[reference], cluster.get(reference)
                del waiting[reference]
    except cluster.exceptions.RayTaskError:
        raise  # the piece's own failure
    except cluster.exceptions.RayError as error:
        reason = str(error).partition("\n")[0]
        raise WorkerLost(
            f"engine: {reason} (retried {MAX_DEATHS} times), {len(waiting)} pieces are left"
        ) from error
    finally:
        if started:
            cluster.shutdown()


ENGINES: dict[str, Engine] = {"local": local, "ray": ray}
