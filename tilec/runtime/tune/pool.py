"""Many workers at once: processes of this machine, one a GPU, or the workers of a Dask cluster.

    for job, answer in LocalPool([{"CUDA_VISIBLE_DEVICES": "0"}]).answers(jobs, timeout=60, best=lambda: 0.0): ...
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Protocol

from tilec.runtime.request import MissingError, RunError
from tilec.runtime.tune.job import Answer, Job
from tilec.runtime.tune.worker import Worker

Best = Callable[[], float]
"""The median of the best candidate so far in seconds, 0 for none: read when a job is handed out."""


class Pool(Protocol):
    """Where jobs are answered, in whatever order they end."""

    def answers(self, jobs: Sequence[Job], timeout: float, best: Best) -> Iterator[tuple[Job, Answer]]:
        """Every job with its answer; each may take `timeout` seconds."""

    def close(self) -> None:
        """Lets go of the workers."""


class LocalPool:
    """One worker process for each environment, from its first job to `close`: a GPU is set up once."""

    def __init__(self, environments: Sequence[Mapping[str, str]]) -> None:
        self._workers = [Worker(env) for env in environments]

    def answers(self, jobs: Sequence[Job], timeout: float, best: Best) -> Iterator[tuple[Job, Answer]]:
        """See Pool."""
        todo: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in jobs:
            todo.put(job)
        done: queue.SimpleQueue[tuple[Job, Answer]] = queue.SimpleQueue()
        stop = threading.Event()
        for worker in self._workers[: len(jobs)]:
            threading.Thread(target=_serve, args=(worker, todo, done, stop, timeout, best), daemon=True).start()
        try:
            for _ in jobs:
                yield done.get()
        finally:
            stop.set()

    def close(self) -> None:
        """Ends the processes."""
        for worker in self._workers:
            worker.close()


def _serve(
    worker: Worker, todo: queue.SimpleQueue[Job], done: queue.SimpleQueue[tuple[Job, Answer]], stop: threading.Event, timeout: float,
    best: Best,
) -> None:  # fmt: skip
    while not stop.is_set():
        try:
            job = todo.get_nowait()
        except queue.Empty:
            return
        done.put((job, worker.ask(replace(job, stop_above=best()), timeout)))


class DaskPool:
    """The workers of a Dask cluster that runs already. Raises MissingError without Dask, RunError if nobody answers there."""

    def __init__(self, address: str) -> None:
        try:
            self._distributed: Any = import_module("distributed")
        except ImportError as fault:
            raise MissingError(f"Dask is not here ({fault}): pip install 'tilec[cluster]'") from None
        _, colon, port = address.rpartition(":")
        if "://" not in address and not (colon and port.isdecimal()):
            raise RunError(f"--dask {address}: expected an address with a port, such as tcp://10.0.0.1:8786")
        try:
            self._client: Any = self._distributed.Client(address, timeout=10, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as fault:
            raise RunError(f"--dask {address}: {fault}") from None

    def answers(self, jobs: Sequence[Job], timeout: float, best: Best) -> Iterator[tuple[Job, Answer]]:
        """See Pool. No more jobs are under way than there are threads, so that late ones know the best of the early ones."""
        waiting = list(reversed(jobs))
        running: dict[str, Job] = {}

        def submit() -> Any:
            job = replace(waiting.pop(), stop_above=best())
            future = self._client.submit(answer_there, job, timeout, pure=False, retries=0)
            running[future.key] = job
            return future

        count = max(1, sum(self._client.nthreads().values()))
        order = self._distributed.as_completed([submit() for _ in range(min(count, len(waiting)))], loop=self._client.loop)
        for future in order:
            job = running.pop(future.key)
            if waiting:
                order.add(submit())
            yield job, future.result() if future.status == "finished" else Answer("failed", f"on the cluster: {future.exception()}")

    def close(self) -> None:
        """Leaves the cluster; its workers live on."""
        self._client.close()


def answer_there(job: Job, timeout: float) -> Answer:
    """Answers one job on a worker of a cluster, in a process of its own."""
    with Worker() as worker:
        return worker.ask(job, timeout)


def gpus(count: int) -> list[dict[str, str]]:
    """The environments of `count` workers, a GPU each, of those that this process may see."""
    visible = [g for g in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if g] or [str(i) for i in range(count)]
    return [{"CUDA_VISIBLE_DEVICES": g} for g in visible[:count]]
