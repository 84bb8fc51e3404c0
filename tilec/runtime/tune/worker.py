"""A process that answers jobs, and its owner's side: a job that crashes or hangs takes the process with it, never the search.

    with Worker({"CUDA_VISIBLE_DEVICES": "1"}) as worker: worker.ask(job, timeout=60) -> Answer

Jobs and answers travel as pickles in frames (8 bytes of length, then the pickle) over the process's standard input and output.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import IO, Any

from tilec.runtime.tune.job import Answer, Job, run

_LENGTH = struct.Struct("<q")
_START_S = 120.0
"""How long a process may take to begin, which no candidate is blamed for."""
_READY = Answer("fine", "ready")


def send(out: IO[bytes], value: object) -> None:
    """Writes one frame."""
    data = pickle.dumps(value)
    out.write(_LENGTH.pack(len(data)) + data)
    out.flush()


def receive(source: IO[bytes]) -> Any:
    """Reads one frame. Raises EOFError at the end."""
    head = source.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (size,) = _LENGTH.unpack(head)
    data = source.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)


class Worker:
    """One process at a time, begun when the first job comes, and begun anew after a crash or a hang."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **(env or {})}
        self._errors: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        self._ready = False

    def ask(self, job: Job, timeout: float) -> Answer:
        """The answer, or `crashed` or `hangs` where there is none within `timeout` seconds."""
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            send(process.stdin, job)
            if not self._ready:
                self._ready = self._answers.get(timeout=_START_S) == _READY
            answer = self._answers.get(timeout=timeout) if self._ready else None
        except queue.Empty:
            self.close()
            return Answer("hangs", f"no answer within {timeout:g} s")
        except OSError:
            answer = None
        if answer is not None:
            if answer.status == "failed":  # a kernel that faults leaves a GPU context in which everything else fails, too
                self.close()
            return answer
        code, words = process.wait(), self._last_words()
        self.close()
        return Answer("crashed", f"its process ended with {f'signal {-code}' if code < 0 else f'code {code}'}{words}")

    def _last_words(self) -> str:
        """The last line that the process wrote to standard error."""
        errors = self._errors
        if errors is None:
            return ""
        try:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
        except ValueError:  # closed by the owner meanwhile
            return ""
        return f": {lines[-1][:200]}" if lines else ""

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tilec.runtime.tune.worker"]
        self._errors = errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=self._env)
        answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        self._answers, self._ready = answers, False
        threading.Thread(target=_listen, args=(process, answers), daemon=True).start()
        return process

    def close(self) -> None:
        """Ends the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdin is not None:
                with contextlib.suppress(OSError):  # what was still to be written has nobody to read it
                    self._process.stdin.close()
            self._process = None
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _listen(process: subprocess.Popen[bytes], answers: queue.SimpleQueue[Answer | None]) -> None:
    """Hands over answers until the process ends."""
    assert process.stdout is not None
    with process.stdout as source:
        try:
            while True:
                answers.put(receive(source))
        except (EOFError, OSError, pickle.UnpicklingError):
            answers.put(None)


def _leave_with(owner: int) -> None:
    """Ends this process soon after its owner: one that was killed closes nothing, and a job that hangs does not see its input end."""
    while os.getppid() == owner:
        time.sleep(1)
    os._exit(1)


def main() -> None:
    """Answers jobs until standard input ends, or its owner does. What kernels print goes nowhere."""
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    source, out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    meters: dict[str, Any] = {}
    import tilec.runtime.tune.meter  # noqa: F401 - what every job needs, before the first one's time begins to run

    send(out, _READY)
    while True:
        try:
            job = receive(source)
        except EOFError:
            return
        send(out, _answer(job, meters))


def _answer(job: Job, meters: dict[str, Any]) -> Answer:
    try:
        return run(job, meters)
    except Exception as fault:  # a broken GPU context raises anything: start afresh
        meters.clear()
        return Answer("failed", f"{type(fault).__name__}: {fault}"[:300])


if __name__ == "__main__":
    main()
