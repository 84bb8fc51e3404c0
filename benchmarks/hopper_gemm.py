"""GEMMs on a Hopper GPU: right on odd shapes, and how fast beside cuBLAS in one run.

    python benchmarks/hopper_gemm.py prepare FOLDER      compiles the kernels below with tilec (no GPU needed); with
                                                         --tilelang PYTHON also those of the speed table, by TileLang
    python3 benchmarks/hopper_gemm.py measure FOLDER     builds them with nvcc, checks and measures; needs torch, nothing of tilec

Inputs are N(0,1), buffers rotate past the L2 cache, contenders take turns in one process, launches come from CUDA graphs, so the
host's time does not count. A ratio above 1 means faster than cuBLAS. `sustained` runs back to back at the power limit, `burst`
idles before each graph.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from measuring import Call, launcher, matmul, race, relative_error, sets_past_the_cache, shared_library

SOURCE = '''import tilelang.language as T

{sizes}

@T.prim_func
def gemm(A: T.Tensor((M, K), "{dtype}"), B: T.Tensor({b_shape}, "{dtype}"), C: T.Tensor((M, N), "{out}"){more}):
    with T.Kernel(T.ceildiv(N, {bn}), T.ceildiv(M, {bm}), threads=256) as (bx, by):
        A_s = T.alloc_shared(({bm}, {bk}), "{dtype}")
        B_s = T.alloc_shared({b_tile}, "{dtype}")
        acc = T.alloc_fragment(({bm}, {bn}), "{acc}")
        T.clear(acc)
        for ko in T.Pipelined(T.ceildiv(K, {bk}), num_stages=3):
            T.copy(A[by * {bm}, ko * {bk}], A_s)
            T.copy({b_place}, B_s)
            T.gemm(A_s, B_s, acc, transpose_B={nk})
{epilogue}        T.copy(acc, C[by * {bm}, bx * {bn}])
'''

BIAS_RELU = """        for i, j in T.Parallel({bm}, {bn}):
            acc[i, j] = T.max(acc[i, j] + D[bx * {bn} + j], 0)
"""


def kernel(bm: int, bn: int, bk: int = 64, nk: bool = False, **more: Any) -> dict[str, Any]:
    """A kernel to compile: tile, whether B is [N,K], and dtype, out, acc, k (a fixed K), relu, level (-O)."""
    plain = {"bm": bm, "bn": bn, "bk": bk, "nk": nk, "dtype": "float16", "acc": "float32", "k": None, "relu": False, "level": 2}
    plain |= {"archs": "", **more}
    return {"out": plain["dtype"], **plain}


def name_of(k: dict[str, Any]) -> str:
    """The name of a kernel's files."""
    parts = [f"{k['bm']}x{k['bn']}x{k['bk']}", "nk" if k["nk"] else "kn", k["dtype"], k["acc"]]
    flags = {f"K{k['k']}": k["k"], "relu": k["relu"], "O3": k["level"] == 3, k["archs"]: k["archs"]}
    return "_".join([*parts, *(flag for flag, given in flags.items() if given)])


def both(bm: int, bn: int, bk: int = 64, **more: Any) -> list[dict[str, Any]]:
    """The kernel for both layouts of B."""
    return [kernel(bm, bn, bk, nk, **more) for nk in (True, False)]


BIG, SQUARE, QUARTER, SKINNY = both(128, 256), both(128, 128), both(64, 128), both(128, 64)
FOUR, EIGHT = (4096, 4096, 4096), (8192, 8192, 8192)
SPEED: list[tuple[tuple[int, int, int], list[dict[str, Any]]]] = [
    (FOUR, BIG), (EIGHT, BIG), ((16384, 16384, 4096), BIG), ((8192, 8192, 512), [*BIG, *both(128, 256, k=512)]),
    ((2048, 2048, 2048), [*BIG, *SQUARE]), ((1024, 1024, 1024), QUARTER), ((128, 8192, 8192), SKINNY), ((1000, 1000, 1000), QUARTER),
    ((4104, 4088, 4072), [*BIG, *both(256, 192)]), ((4095, 4097, 4093), [*SQUARE, *both(256, 128), *both(128, 256, level=3)]),
]  # fmt: skip
RIGHT: list[tuple[tuple[int, int, int], list[dict[str, Any]]]] = [
    (shape, kernels)
    for kernels, shapes in (
        (BIG, [(128, 256, 64), (1, 8, 8), (129, 264, 72), (300, 1000, 520), (4104, 520, 136), (257, 257, 257), (64, 512, 0)]),
        (SQUARE, [(200, 136, 72), (1000, 1000, 1000), (513, 640, 4096), (127, 129, 131)]),
        (QUARTER, [(64, 128, 64), (65, 136, 200), (1, 8, 4096), (3000, 8, 64)]),
        (SKINNY, [(128, 64, 64), (130, 72, 264), (1500, 2000, 24)]),
        (both(256, 192), [(256, 192, 64), (700, 400, 328), (4104, 4088, 72)]),
        (both(128, 128, 32), [(200, 136, 72), (512, 384, 1000), (130, 264, 32)]),
        (both(192, 160), [(200, 336, 72), (1000, 808, 328)]),
        (both(128, 256, dtype="bfloat16"), [(300, 1000, 520), (129, 264, 72)]),
        (both(128, 128, acc="float16"), [(256, 256, 128), (300, 136, 200)]),
        (both(128, 256, relu=True), [(300, 1000, 520), (2000, 512, 1000)]),
        # One file for sm_80 and sm_90a: as machine code for both, and as the older one's PTX, where the launcher has to see that.
        (both(128, 128, archs="mixed"), [(512, 640, 520), (1000, 1000, 1000), (257, 257, 257)]),
        (both(128, 128, archs="older"), [(512, 640, 520), (1000, 1000, 1000)]),
        # Padded copies in a workspace.
        (both(128, 256, level=3), [(1025, 1027, 1029), (2000, 1111, 1337), (1024, 4096, 1031), (1025, 1032, 1024)]),
    )
    for shape in shapes
]  # fmt: skip


def drawn(count: int, seed: int = 20) -> list[tuple[tuple[int, int, int], list[dict[str, Any]]]]:
    """Shapes around the edges of tiles, one in four with rows that the copy engine cannot reach, each for one kernel."""
    rng = random.Random(seed)
    kernels = [*BIG, *SQUARE, *QUARTER, *SKINNY, *both(256, 192), *both(128, 128, 32, acc="float16")]

    def extent(tile: int, most: int) -> int:
        n = tile * rng.randint(0, most) + rng.choice([0, 8, 16, -8, 40, rng.randint(1, tile)])
        return max(1, n if rng.random() < 0.25 else n // 8 * 8 or 8)

    return [((extent(k["bm"], 9), extent(k["bn"], 6), extent(64, 12)), [k]) for k in (kernels[i % len(kernels)] for i in range(count))]


RIGHT += drawn(120)
EIGHT_BIT = {"bk": 128, "nk": True}
TYPES = [
    *both(128, 256, dtype="bfloat16"), kernel(128, 256, 32, True, dtype="float32"),
    kernel(128, 256, dtype="float8_e4m3", out="bfloat16", **EIGHT_BIT),
    kernel(128, 256, dtype="int8", acc="int32", out="int32", **EIGHT_BIT), *both(128, 128, 32, acc="float16"),
    *both(128, 128, 32, acc="float16", level=3), *both(256, 256, 64, acc="float16"),
]  # fmt: skip
"""Other types at 8192 x 8192 x 8192, and float16 accumulators: an article's 128x128x32 tiles at -O2 and -O3."""


def source_of(k: dict[str, Any], sizes: tuple[int, ...] = ()) -> str:
    """The Python of a kernel; for fixed sizes if they are given."""
    nk, bm, bn, bk = k["nk"], k["bm"], k["bn"], k["bk"]
    fixed = dict(zip("MNK", sizes, strict=False)) or {"K": k["k"]}
    return SOURCE.format(
        sizes="\n".join(f"{n} = {fixed.get(n) or f'T.dynamic({n!r})'}" for n in "MNK"),
        b_shape="(N, K)" if nk else "(K, N)", b_tile=f"({bn}, {bk})" if nk else f"({bk}, {bn})",
        b_place=f"B[bx * {bn}, ko * {bk}]" if nk else f"B[ko * {bk}, bx * {bn}]",
        more=', D: T.Tensor((N,), "float32")' if k["relu"] else "",
        epilogue=BIAS_RELU.format(bm=bm, bn=bn) if k["relu"] else "", **{x: k[x] for x in ("bm", "bn", "bk", "nk", "dtype", "out", "acc")},
    )  # fmt: skip


def prepare(folder: Path, tilelang: str | None) -> None:
    """Compiles every kernel to FOLDER/NAME.cu."""
    from tilec import targets
    from tilec.driver import Options, compile_source

    hopper, older = targets.lookup("sm_90a"), targets.lookup("sm_80")
    assert hopper is not None and older is not None
    folder.mkdir(parents=True, exist_ok=True)
    for name, k in all_kernels().items():
        target, also = (older, (hopper,)) if k["archs"] else (hopper, ())
        done = compile_source(Options(f"{name}.py", source_of(k).encode(), target, opt_level=k["level"], also=also))
        if not done.plans[0].launches[0].variants[0].tensor_maps:
            raise SystemExit(f"{name} does not take the Hopper path: {[d.message for d in done.diagnostics]}")
        (folder / f"{name}.cu").write_text(done.cu, encoding="utf-8")
    if tilelang:
        prepare_tilelang(folder, tilelang)


def rivals() -> dict[str, tuple[tuple[int, int, int], dict[str, Any]]]:
    """What TileLang compiles too, by file: the kernels of the speed table, each for its one shape."""
    pairs = [(shape, k) for shape, kernels in SPEED for k in kernels if not k["k"]]
    return {str(i): pair for i, pair in enumerate(pairs)}


def prepare_tilelang(folder: Path, python: str) -> None:
    """Compiles the speed table's kernels with TileLang, from the same source with the sizes filled in."""
    cases = []
    for name, (shape, k) in rivals().items():
        source = folder / f"{name}.tl.py"
        source.write_text(source_of(k, shape))
        cases.append({"name": f"{name_of(k)} {shape}", "file": str(source), "object": "gemm", "edits": [], "defines": {}})
    (folder / "cases.json").write_text(json.dumps(cases))
    subprocess.run([python, str(Path(__file__).with_name("tilelang_worker.py")), str(folder)], check=True)


def all_kernels() -> dict[str, dict[str, Any]]:
    """Every kernel by name."""
    return {name_of(k): k for _, kernels in (*SPEED, *RIGHT, ((), TYPES)) for k in kernels}


class Built:
    """A kernel as a shared library, and what ptxas said about it."""

    def __init__(self, folder: Path, name: str, k: dict[str, Any], source: Path | None = None) -> None:
        self.name, self.k, self.library = name, k, folder / f"{name}.so"
        codes = {"": ["90a,code=sm_90a"], "mixed": ["80,code=sm_80", "90a,code=sm_90a"], "older": ["80,code=compute_80"]}[k["archs"]]
        flags = [word for code in codes for word in ("-gencode", f"arch=compute_{code}")]
        self.log = shared_library(source or folder / f"{name}.cu", self.library, [*flags, f"-DB_NK={int(k['nk'])}"])

    def launcher(self, tensors: list[Any], m: int, n: int, k: int) -> Call:
        """A call that queues the kernel on torch's current stream."""
        return launcher(self.library, "gemm", tensors, [m, n] if self.k["k"] else [m, k, n])


def inputs(shape: tuple[int, int, int], k: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """A, B (as the kernel wants it), an output full of NaN, and a bias."""
    import torch

    m, n, depth = shape
    dtype = getattr(torch, k["dtype"])
    a = torch.randn(m, depth, dtype=torch.float32, device="cuda").to(dtype)
    b = torch.randn(*((n, depth) if k["nk"] else (depth, n)), dtype=torch.float32, device="cuda").to(dtype)
    c = torch.full((m, n), float("nan"), dtype=dtype, device="cuda")
    return a, b, c, torch.randn(n, dtype=torch.float32, device="cuda")


def check(built: dict[str, Built]) -> int:
    """Every kernel on odd shapes against float64, five repeats bit for bit. Returns the number of failures."""
    import torch

    failures = count = 0
    for shape, kernels in RIGHT:
        for k in kernels:
            m, n, depth = shape
            a, b, c, d = inputs(shape, k)
            tensors = [a, b, c, *([d] if k["relu"] else [])]
            go = built[name_of(k)].launcher(tensors, m, n, depth)
            go()
            exact = a.double() @ (b.double().t() if k["nk"] else b.double())
            if k["relu"]:
                exact = torch.clamp(exact + d.double(), min=0)
            error = relative_error(c, exact)
            first = c.clone()
            same = True
            for _ in range(5):
                c.fill_(float("nan"))
                go()
                same = same and torch.equal(c, first)
            limit = 4e-3 if k["dtype"] == "bfloat16" else 1e-3 if k["acc"] == "float32" else 1e-3 * max(1.0, depth / 16) ** 0.5
            count += 1
            if not (error < limit and same):
                failures += 1
                print(f"WRONG {name_of(k)} {shape}: error {error:.1e}, repeats {'equal' if same else 'differ'}", flush=True)
    print(f"{count - failures} of {count} checks on odd shapes hold", flush=True)
    return failures


def rival(folder: Path, shape: tuple[int, int, int], k: dict[str, Any]) -> Any:
    """TileLang's library for a kernel and a shape; None where it was not compiled."""
    found = next((name for name, (s, one) in rivals().items() if s == shape and one == k), "")
    path = folder / f"{found}.tl.so"
    if not found or not path.exists():
        return None
    library = ctypes.CDLL(str(path.resolve()))
    assert library.init() == 0
    return library.call


def launched(call: Any, tensors: list[Any]) -> Any:
    """A function that queues a kernel of TileLang's on torch's current stream."""
    import torch

    args = [ctypes.c_void_p(t.data_ptr()) for t in tensors]
    return lambda: call(*args, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))


def speed(built: dict[str, Built], folder: Path, pause: float, rounds: int) -> list[dict[str, Any]]:
    """The table: every kernel beside cuBLAS with the same layout of B, and beside TileLang's of the same source."""
    import torch

    ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)  # TileLang's libraries expect it
    out = []
    for shape, kernels in SPEED:
        m, n, depth = shape
        sets = min(16, sets_past_the_cache(2 * (m * depth + n * depth + m * n)))
        contenders: dict[str, list[Call]] = {}
        held: list[Any] = []
        for nk in (True, False):
            a = [torch.randn(m, depth, dtype=torch.half, device="cuda") for _ in range(sets)]
            b = [torch.randn(*((n, depth) if nk else (depth, n)), dtype=torch.half, device="cuda") for _ in range(sets)]
            c = [torch.empty(m, n, dtype=torch.half, device="cuda") for _ in range(sets)]
            held += [a, b, c]
            contenders[f"cuBLAS {'nk' if nk else 'kn'}"] = [matmul(a[i], b[i].t() if nk else b[i], c[i]) for i in range(sets)]
            for k in kernels:
                if k["nk"] == nk:
                    one = built[name_of(k)]
                    if k["bn"] == 256 and not k["k"] and all(extent % 8 == 0 for extent in shape):  # what the peer takes
                        peer = built[f"peer_{'nk' if nk else 'kn'}"]
                        contenders[peer.name] = [peer.launcher([a[i], b[i], c[i]], m, n, depth) for i in range(sets)]
                    contenders[one.name] = [one.launcher([a[i], b[i], c[i]], m, n, depth) for i in range(sets)]
                    if (call := rival(folder, shape, k)) is not None:
                        contenders[f"TileLang_{one.name}"] = [launched(call, [a[i], b[i], c[i]]) for i in range(sets)]
        flop = 2.0 * m * n * depth
        reps = max(sets, min(64, int(1e12 / flop)))
        times = race(contenders, reps, rounds, pause)
        base: dict[str, float] = {}
        for name, ms in times.items():
            tf = flop / ms / 1e9
            layout = "nk" if "nk" in name.replace("cuBLAS ", "").split("_") else "kn"
            if name.startswith("cuBLAS"):
                base[layout] = tf
            ratio = tf / base[layout]
            out.append({"shape": shape, "name": name, "tf": round(tf, 1), "ratio": round(ratio, 3), "pause": pause})
            print(f"{m}x{n}x{depth:6d}  {name:34s} {tf:7.1f} TF  {ratio:6.3f}", flush=True)
        del contenders, held
    return out


def types(built: dict[str, Built], rounds: int) -> list[dict[str, Any]]:
    """TYPES beside cuBLAS at 8192 x 8192 x 8192, each with its error against float64 (or exact integers) at 1024 rows."""
    import torch

    out = []
    n = 8192
    for k in TYPES:
        one = built[name_of(k)]
        kind = torch.float8_e4m3fn if k["dtype"] == "float8_e4m3" else getattr(torch, k["dtype"])

        def fresh(kind: Any = kind) -> Any:
            if kind == torch.int8:
                return torch.randint(-128, 128, (n, n), dtype=kind, device="cuda")
            return torch.randn(n, n, dtype=torch.float32, device="cuda").to(kind)

        a, b = [fresh() for _ in range(2)], [fresh() for _ in range(2)]
        c = [torch.empty(n, n, dtype=getattr(torch, k["out"]), device="cuda") for _ in range(2)]
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cuda.matmul.allow_fp16_accumulation = k["acc"] == "float16"
        mine = [one.launcher([a[i], b[i], c[i]], n, n, n) for i in range(2)]
        mine[0]()
        right = (b[0].t() if k["nk"] else b[0]).double()
        exact = a[0][:1024].double() @ right
        error = relative_error(c[0][:1024], exact)
        theirs = [_library(k, a[i], b[i], torch.empty_like(c[i])) for i in range(2)]
        times = race({"cuBLAS": theirs, one.name: mine}, 4, rounds)
        tf = {name: 2.0 * n**3 / ms / 1e9 for name, ms in times.items()}
        ratio = tf[one.name] / tf["cuBLAS"]
        row = {"name": one.name, "tf": round(tf[one.name], 1), "cublas": round(tf["cuBLAS"], 1), "ratio": round(ratio, 3)}
        out.append({**row, "error": error})
        torch.backends.cuda.matmul.allow_fp16_accumulation = False
        print(f"{row['name']:44s} {row['tf']:7.1f} TF, cuBLAS {row['cublas']:7.1f}  {row['ratio']:6.3f}  error {error:.1e}", flush=True)
    return out


def _library(k: dict[str, Any], a: Any, b: Any, c: Any) -> Any:
    """What torch does for a product of these types."""
    import torch

    if k["dtype"] == "int8":
        return lambda: torch._int_mm(a, b.t(), out=c)
    if k["dtype"].startswith("float8"):
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True, out=c)
    return matmul(a, b.t() if k["nk"] else b, c)


def measure(folder: Path, rounds: int, out: Path | None) -> int:
    """Builds, checks and times."""
    import torch

    peer = Path(__file__).resolve().parent / "peers" / "gemm_sm90.cu"
    work: list[tuple[str, dict[str, Any], Path | None]] = [(name, k, None) for name, k in all_kernels().items()]
    work += [(f"peer_{name}", kernel(128, 256, 64, name == "nk"), peer) for name in ("nk", "kn")]
    with ThreadPoolExecutor(16) as pool:
        built = {b.name: b for b in pool.map(lambda item: Built(folder, *item), work)}
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    for b in built.values():
        hopper = b.log[b.log.find("'gemm'") :] if "'gemm'" in b.log else b.log
        first = [line.strip() for line in hopper.splitlines() if "registers" in line or "spill" in line][:2]
        print(f"{b.name:40s} {' '.join(first)}", flush=True)
    failures = check(built)
    others = types(built, rounds)
    tables = {"types": others, "sustained": speed(built, folder, 0.0, rounds), "burst": speed(built, folder, 0.02, rounds)}
    if out is not None:
        out.write_text(json.dumps(tables, indent=1), encoding="utf-8")
    return 1 if failures else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("prepare", "measure"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--tilelang", metavar="PYTHON", help="a Python with tilelang, for prepare")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.what == "prepare":
        prepare(options.folder, options.tilelang)
        return 0
    return measure(options.folder, options.rounds, options.out)


if __name__ == "__main__":
    sys.exit(main())
