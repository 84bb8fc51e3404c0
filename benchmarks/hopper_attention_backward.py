"""Attention backward on a Hopper GPU: right on odd shapes, and how fast beside cuDNN in one run.

    python benchmarks/hopper_attention_backward.py prepare FOLDER    compiles samples/attention/backward.py, tilec and nvcc (no GPU)
    python3 benchmarks/hopper_attention_backward.py measure FOLDER   needs a GPU and torch, nothing of tilec

`gradients` is the kernel that does the work; `all` is what a user waits for: delta, zeroes for dQ, gradients, and dQ to float16.
`queries` is dQ alone without atomics. Inputs are N(0,1), [batch, seq, heads, dim]; cuDNN (torch SDPA) takes [batch, heads, seq, dim].
Launches take turns for 0.8 s, CUDA events, medians of the second half. TF counts 10 B H S S D operations, half of them when causal.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from measuring import alternating, complaints, launcher, relative_error, settled, shared_library

HERE = Path(__file__).resolve().parent
Case = tuple[int, int, int, int, bool]
SPEED: list[Case] = [(b, h, s, d, causal) for b, h, s, d in ((4, 32, 4096, 128), (8, 32, 2048, 64)) for causal in (False, True)]
RIGHT: list[Case] = [
    (2, 3, 1000, 128, False), (2, 3, 1000, 128, True), (1, 2, 132, 128, True), (1, 2, 64, 128, False), (2, 2, 1540, 64, True),
    (2, 2, 1540, 64, False), (1, 1, 4, 64, True), (1, 3, 516, 128, True),
]  # fmt: skip
LOG2E = 1.4426950408889634


def name_of(case: Case) -> str:
    """The name of a kernel's files."""
    b, h, s, d, causal = case
    return f"B{b}_H{h}_S{s}_D{d}_{'causal' if causal else 'full'}"


def prepare(folder: Path) -> None:
    """Compiles every case to FOLDER/NAME.cu and NAME.so; says what ptxas has against one."""
    from tilec import targets
    from tilec.driver import Options, compile_source

    target = targets.lookup("sm_90a")
    assert target is not None
    folder.mkdir(parents=True, exist_ok=True)
    source = HERE.parent / "samples" / "attention" / "backward.py"
    for case in (*SPEED, *RIGHT):
        b, h, s, d, causal = case
        defines = {"batch": b, "heads": h, "seq": s, "dim": d, "causal": causal, "block_m": 64, "block_n": 128, "threads": 256}
        done = compile_source(Options(str(source), source.read_bytes(), target, defines=defines))
        for plan in done.plans:
            if plan.symbol.endswith("gradients") and not plan.launches[0].variants[0].tensor_maps:
                raise SystemExit(f"{plan.symbol} of {case} does not take the Hopper path: {[x.message for x in done.diagnostics]}")
        (folder / f"{name_of(case)}.cu").write_text(done.cu, encoding="utf-8")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda case: build(folder, name_of(case)), (*SPEED, *RIGHT)))


def build(folder: Path, name: str) -> None:
    """One shared library."""
    bad = complaints(shared_library(folder / f"{name}.cu", folder / f"{name}.so"), "gradients", "query_gradients")
    print(name, *(bad or ["ptxas has nothing to complain about"]), sep=": ", flush=True)


def drawn(case: Case) -> list[Any]:
    """Q, K, V, dO."""
    import torch

    b, h, s, d, _ = case
    g = torch.Generator("cuda").manual_seed(s + d)
    return [torch.randn(b, s, h, d, device="cuda", dtype=torch.float16, generator=g) for _ in range(4)]


def exact(q: Any, k: Any, v: Any, do: Any, causal: bool) -> tuple[Any, Any, Any, Any, Any]:
    """dQ, dK, dV, the row sums of dO * O, and the base-2 logarithm of the softmax's sums, in float64."""
    import torch

    q, k, v, do = (x.double().transpose(1, 2) for x in (q, k, v, do))
    scale = q.shape[-1] ** -0.5
    s = q @ k.transpose(-1, -2) * scale
    if causal:
        s.masked_fill_(torch.ones(s.shape[-2:], dtype=torch.bool, device="cuda").triu(1), float("-inf"))
    p = s.softmax(-1)
    delta = ((p @ v) * do).sum(-1)
    ds = p * (do @ v.transpose(-1, -2) - delta[..., None]) * scale
    grads = (x.transpose(1, 2) for x in (ds @ k, ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ do))
    return (*grads, delta, s.logsumexp(-1) * LOG2E)


def check(folder: Path) -> None:
    """Small and odd shapes against float64, outputs poisoned; repeats of what is not added up by atomics equal."""
    import torch

    print("| shape | dQ | dK | dV | dQ without atomics | delta | repeats |\n|---|---|---|---|---|---|---|")
    for case in RIGHT:
        q, k, v, do = drawn(case)
        *want, delta, lse = exact(q, k, v, do, case[4])
        stats = [lse.float().contiguous(), delta.float().contiguous()]
        o = exact_output(q, k, v, case[4])
        mine = torch.full_like(stats[1], float("nan"))
        library = folder / f"{name_of(case)}.so"
        launcher(library, "delta", [o, do, mine])()
        seen: list[list[Any]] = []
        for _ in range(4):
            dq = torch.zeros(q.shape, device="cuda")
            dk, dv, alone = (torch.full_like(q, float("nan")) for _ in range(3))
            launcher(library, "gradients", [q, k, v, do, *stats, dq, dk, dv])()
            launcher(library, "query_gradients", [q, k, v, do, *stats, alone])()
            seen.append([dq, dk, dv, alone])
        same = all(torch.equal(x, y) for one in seen[1:] for x, y in zip(one[1:], seen[0][1:], strict=True))
        errors = [relative_error(x, w) for x, w in zip(seen[0], (*want, want[0]), strict=True)] + [relative_error(mine, delta)]
        mark = "" if max(errors) < 2e-3 else " **WRONG**"
        print(f"| {name_of(case)} | {' | '.join(f'{e:.1e}' for e in errors)}{mark} | {'equal' if same else '**DIFFER**'} |", flush=True)


def exact_output(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """The outputs of attention, in float16."""
    import torch

    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        s.masked_fill_(torch.ones(s.shape[-2:], dtype=torch.bool, device="cuda").triu(1), float("-inf"))
    return (s.softmax(-1) @ v).transpose(1, 2).half().contiguous()


def statistics(q: Any, k: Any, causal: bool) -> Any:
    """The base-2 logarithm of the softmax's sums, head by head."""
    import torch

    b, s, h, d = q.shape
    out = torch.empty(b, h, s, device="cuda")
    hidden = torch.ones(s, s, dtype=torch.bool, device="cuda").triu(1)
    for n in range(b * h):
        scores = (q[n // h, :, n % h].float() @ k[n // h, :, n % h].float().T) * d**-0.5
        out[n // h, n % h] = (scores.masked_fill_(hidden, float("-inf")) if causal else scores).logsumexp(-1) * LOG2E
    return out


def measure(folder: Path) -> None:
    """The tables."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}\n")
    check(folder)
    print("\n| case | what | difference from cuDNN: dQ, dK, dV | ms | TF | cuDNN ms | TF | ratio |\n|---|---|---|---|---|---|---|---|")
    for case in SPEED:
        q, k, v, do = drawn(case)
        causal = case[4]
        theirs = [x.transpose(1, 2).contiguous().requires_grad_() for x in (q, k, v)]
        grad = do.transpose(1, 2).contiguous()
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            out = torch.nn.functional.scaled_dot_product_attention(*theirs, is_causal=causal)

        def cudnn(out: Any = out, theirs: Any = theirs, grad: Any = grad) -> Any:
            return torch.autograd.grad(out, theirs, grad, retain_graph=True)

        o, lse = out.detach().transpose(1, 2).contiguous(), statistics(q, k, causal)
        delta = torch.empty_like(lse)
        dq = torch.zeros(q.shape, device="cuda")
        narrow, dk, dv, alone = (torch.full_like(q, float("nan")) for _ in range(4))
        name, library = name_of(case), folder / f"{name_of(case)}.so"
        first, last = launcher(library, "delta", [o, do, delta]), launcher(library, "narrow", [dq, narrow])
        main = launcher(library, "gradients", [q, k, v, do, lse, delta, dq, dk, dv])
        queries = launcher(library, "query_gradients", [q, k, v, do, lse, delta, alone])

        def everything(first: Any = first, last: Any = last, main: Any = main, dq: Any = dq) -> None:
            first()
            dq.zero_()
            main()
            last()

        everything()
        queries()
        want = [x.transpose(1, 2) for x in cudnn()]
        errors = [relative_error(x, w.double()) for x, w in zip((narrow, dk, dv), want, strict=True)]
        flop = 10 * case[0] * case[1] * case[2] ** 2 * case[3] / (2 if causal else 1)
        mark = "" if max(*errors, relative_error(alone, want[0].double())) < 2e-3 else " **WRONG**"
        for what, go, share in (("gradients", main, 1.0), ("all", everything, 1.0), ("queries", queries, 0.6)):
            mine, base = (settled(times) for times in alternating([go, cudnn], 0.8))
            text = f"{mine:.3f} | {share * flop / mine / 1e9:.0f} | {base:.3f} | {flop / base / 1e9:.0f} | {base / mine:.3f}"
            print(f"| {name} | {what} | {', '.join(f'{e:.1e}' for e in errors)}{mark} | {text} |", flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("prepare", "measure"))
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    (prepare if given.what == "prepare" else measure)(given.folder)


if __name__ == "__main__":
    main()
