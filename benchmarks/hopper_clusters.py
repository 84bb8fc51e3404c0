"""What clusters of blocks bring on a Hopper GPU: pairs of blocks that share a tile of a GEMM, and softmax rows held by several blocks.

    python benchmarks/hopper_clusters.py prepare FOLDER      compiles the kernels with tilec (no GPU needed)
    python3 benchmarks/hopper_clusters.py measure FOLDER     builds them with nvcc, checks and times them; needs torch

Everything is checked before it is timed. Inputs are N(0,1), buffers rotate past the L2 cache, contenders take turns in one process,
launches come from CUDA graphs. `sustained` runs back to back at the power limit, `burst` idles before each graph.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from measuring import Call, launcher, matmul, race, relative_error, sets_past_the_cache, shared_library

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

GEMM = '''import tilelang.language as T

M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")

@T.prim_func
def gemm(A: T.Tensor((M, K), "float16"), B: T.Tensor({b_shape}, "float16"), C: T.Tensor((M, N), "float16")):
    with T.Kernel(T.ceildiv(N, {bn}), T.ceildiv(M, 128), threads=256) as (bx, by):
        A_s = T.alloc_shared((128, 64), "float16")
        B_s = T.alloc_shared({b_tile}, "float16")
        acc = T.alloc_fragment((128, {bn}), "float32")
        T.clear(acc)
        for ko in T.Pipelined(T.ceildiv(K, 64), num_stages=3):
            T.copy(A[by * 128, ko * 64], A_s)
            T.copy({b_place}, B_s)
            T.gemm(A_s, B_s, acc, transpose_B={nk})
        T.copy(acc, C[by * 128, bx * {bn}])
'''
EXCHANGE = '''import tilelang.language as T

@T.prim_func
def exchange(A: T.Tensor((264, 64, 64), "float16"), C: T.Tensor((264, 64, 64), "float16")):
    with T.Kernel(264, threads=128, cluster_dims=4) as b:
        rank = T.block_rank_in_cluster()
        mine = T.alloc_shared((64, 64), "float16")
        got = T.alloc_shared((64, 64), "float16")
        for turn in T.serial(50):
            T.copy(A[b, 0, 0], mine)
            T.copy_cluster(mine[0:32, :], got[32:64, :], dst_block=(rank + turn) % 4)
            T.copy_cluster(mine[32:64, :], got[0:32, :], dst_block=(rank + turn) % 4)
            T.cluster_sync()
            T.copy(got, C[b, 0, 0])
            T.cluster_arrive()
            T.cluster_wait()
'''
RING = '''import tilelang.language as T

@T.prim_func
def ring(A: T.Tensor((128, 500, 256), "int32"), B: T.Tensor((128, 500, 256), "int32")):
    with T.Kernel(128, threads=160, cluster_dims=4) as block:
        tx = T.get_thread_binding()
        rank = T.block_rank_in_cluster()
        mine = T.alloc_shared((3, 256), "int32")
        box = T.alloc_shared((3, 256), "int32")
        ready = T.alloc_cluster_barrier([1, 1, 1])
        free = T.alloc_cluster_barrier([128, 128, 128])
        if tx < 32:
            for s in T.serial(500):
                T.barrier_wait(free[s % 3], (s // 3 + 1) % 2)
                T.copy(A[block, s, 0], mine[s % 3, :])
                T.copy_cluster(mine[s % 3, :], box[s % 3, :], dst_block=(rank + 1) % 4, remote_barrier=ready[s % 3])
        else:
            for s in T.serial(500):
                T.barrier_wait(ready[s % 3], s // 3 % 2)
                T.copy(box[s % 3, :], B[block, s, 0])
                T.barrier_arrive(free[s % 3], (rank + 3) % 4)
'''
MULTICAST = '''import tilelang.language as T

@T.prim_func
def multicast(A: T.Tensor((4096, 4096), "float16"), B: T.Tensor((4096, 4096), "float16"), C: T.Tensor((4096, 4096), "float32")):
    with T.Kernel(32, 32, threads=256, cluster_dims=(1, 2)) as (bx, by):
        tx = T.get_thread_binding()
        A_s = T.alloc_shared((4, 128, 64), "float16")
        B_s = T.alloc_shared((4, 64, 128), "float16")
        acc = T.alloc_fragment((128, 128), "float32")
        full = T.alloc_barrier([1, 1, 1, 1])
        empty = T.alloc_cluster_barrier([256, 256, 256, 256])
        T.cluster_sync()
        if tx < 128:
            if tx == 0:
                for k in T.serial(64):
                    T.barrier_wait(empty[k % 4], (k // 4 + 1) % 2)
                    T.tma_copy(A[by * 128, k * 64], A_s[k % 4, :, :], barrier=full[k % 4])
                    T.tma_copy(B[k * 64, bx * 128], B_s[k % 4, :, :], barrier=full[k % 4], cluster_mask=3)
                    T.barrier_arrive(full[k % 4])
        else:
            T.clear(acc)
            for k in T.serial(64):
                T.barrier_wait(full[k % 4], k // 4 % 2)
                T.gemm(A_s[k % 4, :, :], B_s[k % 4, :, :], acc)
                for r in T.serial(2):
                    T.barrier_arrive(empty[k % 4], r)
            T.copy(acc, C[by * 128, bx * 128])
'''
GEMMS = [(bn, nk, pairs) for bn in (256, 128) for nk in (True, False) for pairs in ("off", "on")]
SIZES = [(4096, 4096, 4096), (8192, 8192, 8192), (4104, 4088, 4072)]
ODD = [(129, 264, 72), (300, 1000, 520), (1, 8, 4096), (4104, 520, 136), (640, 8, 64), (127, 136, 1000)]
ROWS = [(4096, 16384), (1024, 65536), (512, 131072)]
CLUSTERS = (1, 2, 4, 8)


def gemm_name(bn: int, nk: bool, pairs: str) -> str:
    """The name of a GEMM's files."""
    return f"gemm_128x{bn}_{'nk' if nk else 'kn'}_pairs_{pairs}"


def softmax_threads(part: int) -> int:
    """Threads for `part` elements of a row, at most 32 of them a thread where that is possible."""
    return min(1024, max(128, part // 32))


def prepare(folder: Path) -> None:
    """Compiles every kernel to FOLDER/NAME.cu."""
    from tilec import targets
    from tilec.driver import Options, compile_source

    target = targets.lookup("sm_90a")
    assert target is not None
    folder.mkdir(parents=True, exist_ok=True)

    def write(name: str, text: str, **options: Any) -> None:
        compiled = compile_source(Options(f"{name}.py", text.encode(), target, **options))
        (folder / f"{name}.cu").write_text(compiled.cu, encoding="utf-8")

    for bn, nk, pairs in GEMMS:
        text = GEMM.format(
            bn=bn, nk=nk, b_shape="(N, K)" if nk else "(K, N)", b_tile=f"({bn}, 64)" if nk else f"(64, {bn})",
            b_place=f"B[bx * {bn}, ko * 64]" if nk else f"B[ko * 64, bx * {bn}]",
        )  # fmt: skip
        write(gemm_name(bn, nk, pairs), text, pairs=pairs)
    for name, text in (("exchange", EXCHANGE), ("ring", RING), ("multicast", MULTICAST)):
        write(name, text)
    sample = (ROOT / "samples" / "clusters" / "softmax.py").read_text(encoding="utf-8")
    for rows, n in ROWS:
        for blocks in CLUSTERS:
            threads = softmax_threads(n // blocks)
            if n // blocks // threads <= 64:
                write(f"softmax_{n}_by_{blocks}", sample, defines={"M": rows, "N": n, "blocks": blocks, "threads": threads})


class Built:
    """A kernel as a shared library, and what ptxas said about it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.library = name, folder / f"{name}.so"
        said = shared_library(folder / f"{name}.cu", self.library)
        bodies = [text for text in said.split("Compiling entry function '")[1:] if "__general'" not in text.splitlines()[0]]
        self.clean = all(" 0 bytes spill stores" in text for text in bodies) and "C75" not in said

    def launch(self, symbol: str, tensors: list[Any], *sizes: int) -> Call:
        """A call that queues the kernel on torch's current stream."""
        return launcher(self.library, symbol, tensors, sizes)


def check(folder: Path, built: dict[str, Built]) -> int:
    """Tiles exchanged between blocks, from C++ and from Python; pairs on odd sizes, as precise and the same bits every time."""
    import torch

    import tilec

    wrong = []
    a = torch.randn(264, 64, 64, device="cuda").half()
    ring = a.view(66, 4, 2, 32, 64).roll(49 % 4, 1).flip(2).reshape(a.shape)
    for how in ("C++", "Python"):
        c = torch.full_like(a, float("nan"))
        if how == "C++":
            built["exchange"].launch("exchange", [a, c])()
        else:
            tilec.load(folder / "exchange.cu")(a, c)
        torch.cuda.synchronize()
        if not torch.equal(c, ring):
            wrong.append(f"exchange from {how}")
    wrong += by_hand(folder, built)
    for bn, nk, pairs in GEMMS:
        one = built[gemm_name(bn, nk, pairs)]
        for m, n, k in ODD:
            x, y = torch.randn(m, k, device="cuda").half(), torch.randn(*((n, k) if nk else (k, n)), device="cuda").half()
            exact = x.double() @ (y.double().t() if nk else y.double())
            results = []
            for _ in range(4):
                out = torch.full((m, n), float("nan"), dtype=torch.half, device="cuda")
                one.launch("gemm", [x, y, out], m, k, n)()
                results.append(out)
            error = relative_error(results[0], exact)
            if not error < 1e-3 or any(not torch.equal(r, results[0]) for r in results[1:]):
                wrong.append(f"{one.name} {m}x{n}x{k}: error {error:.1e}")
    for rows, n in ROWS:
        x = torch.randn(rows, n, device="cuda").half() * 3
        want = torch.softmax(x[:64].double(), 1)
        for name in (s for s in built if s.startswith(f"softmax_{n}_")):
            y = torch.full_like(x, float("nan"))
            built[name].launch("softmax", [x, y])()
            error = (y[:64].double() - want).abs().max().item()
            if not error < 1e-3 or y.isnan().any().item():
                wrong.append(f"{name}: error {error:.1e}")
    count = 6 + len(GEMMS) * len(ODD) + sum(s.startswith("softmax") for s in built)
    print(f"{count - len(wrong)} of {count} checks hold", *wrong, sep="\n", flush=True)
    print("spills or serialised products:", [b.name for b in built.values() if not b.clean] or "none", flush=True)
    return len(wrong)


def by_hand(folder: Path, built: dict[str, Built]) -> list[str]:
    """Rows sent around clusters with an arrival at each, and a GEMM in which one block loads for two; both ways of launching them."""
    import torch

    import tilec

    wrong = []
    rows = torch.randint(0, 1 << 30, (128, 500, 256), dtype=torch.int32, device="cuda")
    a, b = (torch.randn(4096, 4096, device="cuda").half() for _ in range(2))
    sent = rows.view(32, 4, 500, 256).roll(1, 1).reshape(rows.shape)
    cases = {"ring": ([rows], sent, 0.0), "multicast": ([a, b], a.double() @ b.double(), 1e-3)}
    for name, (given, want, limit) in cases.items():
        for how in ("C++", "Python"):
            out = torch.full(want.shape, -1, dtype=torch.int32 if limit == 0 else torch.float32, device="cuda")
            if how == "C++":
                built[name].launch(name, [*given, out])()
            else:
                tilec.load(folder / f"{name}.cu")(*given, out)
            torch.cuda.synchronize()
            if not ((out.double() - want.double()).norm() <= limit * want.double().norm()).item():
                wrong.append(f"{name} from {how}")
    return wrong


def gemms(built: dict[str, Built], rounds: int) -> list[dict[str, Any]]:
    """Both settings beside cuBLAS, sustained and in bursts."""
    import torch

    out = []
    for m, n, k in SIZES:
        sets = sets_past_the_cache(2 * (m * k + n * k + m * n))
        for nk in (True, False):
            a = [torch.randn(m, k, device="cuda").half() for _ in range(sets)]
            b = [torch.randn(*((n, k) if nk else (k, n)), device="cuda").half() for _ in range(sets)]
            c = [torch.empty(m, n, dtype=torch.half, device="cuda") for _ in range(sets)]
            contenders = {"cuBLAS": [matmul(x, y.t() if nk else y, z) for x, y, z in zip(a, b, c, strict=True)]}
            for bn, layout, pairs in GEMMS:
                if layout == nk:
                    one = built[gemm_name(bn, nk, pairs)]
                    contenders[f"128x{bn} pairs {pairs}"] = [one.launch("gemm", list(t), m, k, n) for t in zip(a, b, c, strict=True)]
            flop = 2.0 * m * n * k
            for kind, pause in (("sustained", 0.0), ("burst", 0.02)):
                times = race(contenders, max(sets, min(64, int(1e12 / flop))), rounds, pause)
                for name, ms in times.items():
                    row = {"size": f"{m}x{n}x{k}", "layout": "nk" if nk else "kn", "kind": kind, "name": name}
                    out.append({**row, "tf": round(flop / ms / 1e9, 1), "ratio": round(times["cuBLAS"] / ms, 3)})
                    print(*out[-1].values(), flush=True)
    return out


def softmaxes(built: dict[str, Built], rounds: int) -> list[dict[str, Any]]:
    """Rows held by 1 to 8 blocks beside torch.softmax, in TB/s read and written."""
    import torch

    out = []
    for rows, n in ROWS:
        x = [torch.randn(rows, n, device="cuda").half() for _ in range(3)]
        y = [torch.empty_like(t) for t in x]
        contenders: dict[str, list[Call]] = {"torch": [_softmax(s, t) for s, t in zip(x, y, strict=True)]}
        for name, one in built.items():
            if name.startswith(f"softmax_{n}_"):
                contenders[name.rpartition("_")[2] + " blocks a row"] = [one.launch("softmax", [s, t]) for s, t in zip(x, y, strict=True)]
        times = race(contenders, 12, rounds)
        for name, ms in times.items():
            out.append({"rows": f"{rows}x{n}", "name": name, "tb_s": round(4e-9 * rows * n / ms, 2)})
            print(*out[-1].values(), flush=True)
    return out


def _softmax(x: Any, y: Any) -> Any:
    import torch

    return lambda: torch.softmax(x, 1, out=y)


def measure(folder: Path, rounds: int, out: Path | None) -> int:
    """Builds, checks and times."""
    import torch

    with ThreadPoolExecutor(16) as pool:
        built = {b.name: b for b in pool.map(lambda p: Built(folder, p.stem), sorted(folder.glob("*.cu")))}
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    failures = check(folder, built)
    tables = {"softmax": softmaxes(built, rounds), "gemm": gemms(built, rounds)}
    if out is not None:
        out.write_text(json.dumps(tables, indent=1), encoding="utf-8")
    return 1 if failures else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("prepare", "measure"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.what == "prepare":
        prepare(options.folder)
        return 0
    return measure(options.folder, options.rounds, options.out)


if __name__ == "__main__":
    sys.exit(main())
