"""Attention forward on a Hopper GPU: right on odd shapes, and how fast beside cuDNN in one run.

    python benchmarks/hopper_attention.py prepare FOLDER [--rules]   compiles kernels/attention.py with tilec and nvcc (no GPU needed)
    python3 benchmarks/hopper_attention.py measure FOLDER [--rules]  needs a GPU and torch, nothing of tilec

Inputs are N(0,1). `A B` alternates launches with cuDNN (torch SDPA) for 0.8 s, `alone` is 0.4 s of one kernel back to back, of
either the second half, at the card's power limit; `burst` is the fastest of its first launches after a pause. CUDA events, medians.
TF counts 4 B H S S D operations, half of them when causal; a ratio above 1 means faster than cuDNN. `--rules` also measures what
single decisions of the plan are worth.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from measuring import Call, alternating, complaints, launcher, relative_error, settled, shared_library

HERE = Path(__file__).resolve().parent
Case = tuple[int, int, int, int, bool]
SPEED: list[Case] = [
    (b, h, s, d, causal)
    for b, h, s, d in ((4, 16, 8192, 128), (4, 32, 4096, 128), (8, 32, 2048, 64), (4, 16, 4096, 256))
    for causal in (False, True)
]
RIGHT: list[Case] = [
    (1, 3, 1000, 128, False), (1, 3, 1000, 128, True), (2, 2, 77, 64, False), (2, 2, 1537, 64, True), (1, 2, 129, 256, True),
    (1, 2, 640, 256, False), (2, 3, 128, 128, True), (1, 1, 1, 128, False),
]  # fmt: skip
BLOCKS = {64: (192, 128), 128: (128, 128), 256: (128, 64)}
RULES: dict[str, dict[str, Any]] = {
    "": {}, "no_lag": {"lag": ()}, "lag": {"lag": (1, 2, 3)}, "held_in_shared": {"held_in_registers": False}, "turns_2": {"turns": (2, 3)},
    "no_turns": {"turns": ()}, "three_stages": {"stages": 3}, "no_part": {"held_part": 0}, "two_parts": {"held_part": 32},
}  # fmt: skip


def name_of(case: Case, rule: str) -> str:
    """The name of a kernel's files."""
    b, h, s, d, causal = case
    return f"B{b}_H{h}_S{s}_D{d}_{'causal' if causal else 'full'}" + (f"_{rule}" if rule else "")


def wanted(rules: bool) -> list[tuple[Case, str]]:
    """The kernels to build: all cases, and the decisions for those where they may matter."""
    out = [(c, "") for c in (*SPEED, *RIGHT)]
    if rules:
        out += [(c, r) for c in SPEED if c[3] == 128 and c[2] == 8192 for r in ("lag", "held_in_shared", "turns_2")]
        out += [(c, r) for c in SPEED if c[3] == 64 for r in ("no_lag", "no_turns")]
        out += [(c, r) for c in SPEED if c[3] == 256 for r in ("lag", "no_part", "two_parts")]
    return out


def prepare(folder: Path, rules: bool) -> None:
    """Compiles every kernel to FOLDER/NAME.cu and NAME.so; says what ptxas has against one."""
    from tilec import targets
    from tilec.driver import Options, compile_source
    from tilec.plan.hopper import attention

    target = targets.lookup("sm_90a")
    assert target is not None
    folder.mkdir(parents=True, exist_ok=True)
    source = HERE / "kernels" / "attention.py"
    usual = attention.RULES
    for case, rule in wanted(rules):
        b, h, s, d, causal = case
        attention.RULES = replace(usual, **RULES[rule])
        m, n = BLOCKS[d]
        defines = {"batch": b, "heads": h, "seq": s, "dim": d, "causal": causal, "block_m": m, "block_n": n}
        done = compile_source(Options(str(source), source.read_bytes(), target, defines=defines))
        if not done.plans[0].launches[0].variants[0].tensor_maps:
            raise SystemExit(f"{case} does not take the Hopper path: {[x.message for x in done.diagnostics]}")
        (folder / f"{name_of(case, rule)}.cu").write_text(done.cu, encoding="utf-8")
    attention.RULES = usual
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda k: build(folder, name_of(*k)), wanted(rules)))


def build(folder: Path, name: str) -> None:
    """One shared library."""
    said = shared_library(folder / f"{name}.cu", folder / f"{name}.so")
    print(name, *(complaints(said, "attention") or ["ptxas has nothing to complain about"]), sep=": ", flush=True)


def drawn(case: Case) -> list[Any]:
    """Q, K, V."""
    import torch

    g = torch.Generator("cuda").manual_seed(case[2] + case[3])
    return [torch.randn(*case[:4], device="cuda", dtype=torch.float16, generator=g) for _ in range(3)]


def exact(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Attention in float64."""
    import torch

    s = q.double() @ k.double().transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        s.masked_fill_(torch.ones(s.shape[-2:], dtype=torch.bool, device="cuda").triu(1), float("-inf"))
    return s.softmax(-1) @ v.double()


def check(folder: Path) -> None:
    """Small and odd shapes against float64, keys ramped so that the maximum keeps growing, outputs poisoned, repeats equal."""
    import torch

    print("| shape | relative error | keys that grow | repeats |\n|---|---|---|---|")
    for case in RIGHT:
        q, k, v = drawn(case)
        errors = []
        same = True
        for ramp in (False, True):
            if ramp:
                k = k * torch.linspace(0.1, 6, case[2], device="cuda")[:, None].half()
            o = torch.full_like(q, float("nan"))
            go = launcher(folder / f"{name_of(case, '')}.so", "attention", [q, k, v, o])
            go()
            first = o.clone()
            for _ in range(4):
                o.fill_(float("nan"))
                go()
                same = same and torch.equal(o, first)
            errors.append(relative_error(o, exact(q, k, v, case[4])))
        mark = "" if max(errors) < 1e-3 else " **WRONG**"
        print(f"| {name_of(case, '')} | {errors[0]:.1e} | {errors[1]:.1e}{mark} | {'equal' if same else '**DIFFER**'} |", flush=True)


def measure(folder: Path, rules: bool) -> None:
    """The tables."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}\n")
    check(folder)
    print("\n| case | kernel | error | A B TF | cuDNN | ratio | alone TF | cuDNN | ratio | burst TF | cuDNN | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for case in SPEED:
        q, k, v = drawn(case)
        causal = case[4]

        def cudnn(q: Any = q, k: Any = k, v: Any = v, causal: bool = causal) -> Any:
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

        base = cudnn()
        ref = exact(q[:1, :1], k[:1, :1], v[:1, :1], causal)
        flop = 4 * case[0] * case[1] * case[2] ** 2 * case[3] / (2 if causal else 1)
        theirs = alone(cudnn)
        for _, rule in (x for x in wanted(rules) if x[0] == case):
            o = torch.full_like(q, float("nan"))
            go = launcher(folder / f"{name_of(case, rule)}.so", "attention", [q, k, v, o])
            go()
            wrong = relative_error(o[:1, :1], ref)
            far = float((o.float() - base.float()).abs().max())
            a, b = pair(go, cudnn)
            mine = alone(go)
            cells = [x for m, c in ((a, b), (mine[0], theirs[0]), (mine[1], theirs[1])) for x in (flop / m / 1e9, flop / c / 1e9, c / m)]
            text = " | ".join(f"{x:.3f}" if n % 3 == 2 else f"{x:.0f}" for n, x in enumerate(cells))
            note = "" if wrong < 1e-3 and far < 0.02 else " **WRONG**"
            print(f"| {name_of(case, '')} | {rule or 'as planned'} | {wrong:.1e}{note} | {text} |", flush=True)


def pair(a: Call, b: Call) -> tuple[float, float]:
    """Two kernels that alternate for 0.8 s."""
    first, second = alternating([a, b], 0.8)
    return settled(first), settled(second)


def alone(f: Call) -> tuple[float, float]:
    """One kernel back to back for 0.4 s, and the best of the first launches."""
    (times,) = alternating([f], 0.4, pause=0.3)
    return settled(times), min(times[:8])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("prepare", "measure"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rules", action="store_true")
    given = parser.parse_args()
    (prepare if given.what == "prepare" else measure)(given.folder, given.rules)


if __name__ == "__main__":
    main()
