"""The second process that reads the file: the same outcome with it, without it, and whatever becomes of it."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.samples.cases import CASES
from tests.samples.kit import SAMPLES
from tilec import aside
from tilec.driver import Options, compile_source, read_source
from tilec.ir.dtypes import ALL, STORED, DType, vector_of
from tilec.targets import lookup

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="one processor reads and writes in one process"
)
ALONE = partial(os.sched_setaffinity, 0, {min(os.sched_getaffinity(0))}) if sys.platform == "linux" else None
BAD = """import tilelang.language as T

@T.prim_func
def scale(X: T.Tensor((256,), "float32")):
    with T.Kernel(1, threads=128) as bx:
        for i in T.Parallel(256):
            X[i] = X[i] * unknown
            X[i] = T.no_such_name(X[i])
"""
PROGRAM = """
import sys
from tilec import __main__, aside
{patch}
code = __main__.main()
print(code, "libcst" in sys.modules)
import os
try:
    os.waitpid(-1, 0)
    print("a process is left")
except ChildProcessError:
    pass
"""


def command(*args: str, cwd: Path, alone: bool = False) -> subprocess.CompletedProcess[str]:
    """`tilec` with two processors, or with one."""
    line = [sys.executable, "-m", "tilec", *args]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, check=False, preexec_fn=ALONE if alone else None)


def program(patch: str, cwd: Path) -> tuple[str, str]:
    """What a process of its own prints that compiles k.py after `patch`, and the file that it writes."""
    text = PROGRAM.format(patch=patch)
    done = subprocess.run([sys.executable, "-c", text, "compile", "k.py", "-q"], cwd=cwd, capture_output=True, text=True, check=False)
    out = cwd / "k.cu"
    return done.stdout, out.read_text() if out.exists() else done.stderr


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / "k.py").write_text((SAMPLES / "gemm_prim_func.py").read_text())
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "two.py").write_text("from part import BLOCK\n" + (SAMPLES / "vector_add.py").read_text().replace("BLOCK = 1024\n", ""))
    (tmp_path / "part.py").write_text("BLOCK = 512\n")
    return tmp_path


@pytest.mark.parametrize(
    "args",
    [
        ("compile", "k.py", "-o", "out.cu", "--emit", "ir,plan,json", "--header", "k.h"), ("compile", "two.py", "-o", "out.cu", "-MD"),
        ("compile", "bad.py", "-o", "out.cu"), ("compile", "bad.py", "--error-format", "json"), ("compile", "none.py"),
        ("compile", "k.py", "-k", "other"), ("compile", "k.py", "-D", "oops"), ("explain", "k.py"), ("explain", "TL0312"), ("check", "k.py"),
        ("compile", "k.py", "--nothing"), ("compile", "--help"), ("compile", str(SAMPLES / "by_hand" / "attention.py"), "-o", "out.cu", "-D", "S=128"),
    ],
)  # fmt: skip
def test_the_outcome_is_the_same_with_one_processor(args: tuple[str, ...], room: Path) -> None:
    told = []
    for alone in (True, False):
        done = command(*args, cwd=room, alone=alone)
        written = {f.name: f.read_text() for f in room.iterdir() if f.suffix != ".py" and f.is_file()}
        told.append((done.returncode, done.stdout, done.stderr, written))
        for name in written:
            (room / name).unlink()
    assert told[0] == told[1] and told[0][0] in (0, 1, 2)


@pytest.mark.parametrize("dtype", [*ALL, *STORED], ids=str)
def test_types_are_the_same_objects_beyond_a_pipe(dtype: DType) -> None:
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert pickle.loads(pickle.dumps(vector_of(dtype, 4))) == vector_of(dtype, 4)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_every_sample_is_the_same_beyond_a_pipe(arch: str) -> None:
    target = lookup(arch)
    assert target is not None
    for name, case in {**CASES, "article_gemm": None, "gemm_prim_func": None}.items():
        path = SAMPLES / f"{name}.py"
        options = Options(str(path), path.read_bytes(), target, defines=case.defines if case else {}, ptxas="never")
        sent = pickle.loads(pickle.dumps(read_source(options)))
        assert compile_source(options, lambda _, sent=sent: sent).cu == compile_source(options).cu, name


def test_the_first_process_does_not_load_the_parser(room: Path) -> None:
    said, text = program("", room)
    assert said == "0 False\n" and "__global__" in text


@pytest.mark.parametrize(
    "serve",
    [
        "os._exit(3)", "os.kill(os.getpid(), 9)", "os.write(tell, b'')", "os.close(asked); os.close(tell)",
        "sys.modules['tilec.frontend'] = None; real(asked, tell)",
    ],
)  # fmt: skip
def test_a_process_that_is_lost_is_made_up_for(serve: str, room: Path) -> None:
    _, whole = program("", room)
    (room / "k.cu").unlink()
    patch = f"import os\nreal = aside._serve\ndef serve(asked, tell):\n  try:\n    {serve}\n  finally:\n    os._exit(1)\naside._serve = serve"
    said, text = program(patch, room)
    assert said == "0 True\n" and text == whole


def test_no_process_can_be_started(room: Path) -> None:
    _, whole = program("", room)
    said, text = program("import os\ndef fork():\n  raise BlockingIOError(11, 'no more')\nos.fork = fork", room)
    assert said == "0 True\n" and text == whole


def test_nothing_is_started_beside_other_work(monkeypatch: pytest.MonkeyPatch, room: Path) -> None:
    """Programs that call tilec may have threads and a GPU, of which a fork has none."""
    from tilec import __main__

    monkeypatch.setattr(aside, "begin", lambda: pytest.fail("a process was started"))
    monkeypatch.chdir(room)
    assert __main__.main(["compile", "k.py", "-q"]) == 0


SLEEPS = "import time\nfrom tilec import driver\ndriver.read_source = lambda options: time.sleep(60)"


def test_an_interruption_ends_both(room: Path) -> None:
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # which those who run tests in the background have shut out
    line = [sys.executable, "-c", PROGRAM.format(patch=SLEEPS), "compile", "k.py"]
    with subprocess.Popen(line, cwd=room, stdout=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=heed) as running:
        until = time.monotonic() + 30
        while len(_session(running.pid)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.5)
        os.killpg(running.pid, signal.SIGINT)
        said, _ = running.communicate(timeout=30)
    assert said.startswith("130 ") and not (room / "k.cu").exists() and not _session(running.pid)


def _session(leader: int) -> list[int]:
    """The processes that a session holds, but for those that have ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        found += [int(stat.parent.name)] if int(session) == leader and state != "Z" else []
    return found
