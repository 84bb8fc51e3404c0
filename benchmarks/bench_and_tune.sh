#!/usr/bin/env bash
# Tries `tilec bench` and `tilec tune` on a GPU: every peer, every way to print, a search on each path.
#
#     PYTHON=python3 benchmarks/bench_and_tune.sh OUT        needs CuPy, torch and what tilec needs; about six minutes
#     STEPS="attention sweep" benchmarks/bench_and_tune.sh OUT    only these
#
# Each step leaves OUT/STEP.txt; the last lines tell how each ended. Exit code 1 if any step failed.
set -u
cd "$(dirname "$0")/.."
out=${1:-build/bench_and_tune}
mkdir -p "$out"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
failed=0
summary=""

step() { # NAME EXPECTED-CODE ARGS...: one call of tilec
    local name=$1 want=$2
    shift 2
    [[ -z "${STEPS:-}" || " $STEPS " == *" $name "* ]] || return 0
    local start=$SECONDS
    timeout 200 "${PYTHON:-python3}" -m tilec "$@" >"$out/$name.txt" 2>&1
    local code=$?
    [ "$code" = "$want" ] || failed=1
    summary+="$([ "$code" = "$want" ] && echo fine || echo "WRONG ($code)") $name, $((SECONDS - start)) s"$'\n'
    echo "== $name"
    tail -n 14 "$out/$name.txt"
}

gemm=benchmarks/kernels/gemm.py
size=(-D M=4096 -D N=4096 -D K=4096)
step article 0 bench samples/article_gemm.py -q "${size[@]}" --arch sm_90a
step gemm_sm80 0 bench $gemm -q -k matmul_nk "${size[@]}" --arch sm_80
step gemm_rotate 0 bench $gemm -q -k matmul_kn "${size[@]}" --arch sm_90a --mode rotate
step gemm_torch 0 bench $gemm -q -k matmul_nk "${size[@]}" --against cublas --against torch --against 'torch:A @ B.T'
step gemm_wrong_peer 1 bench $gemm -q -k matmul_nk "${size[@]}" --against 'torch:A @ B'
step others 0 bench $gemm -q -k matmul_kn "${size[@]}" --against samples/gemm_eager_jit.py --against cublas --seconds 1
step sweep 0 bench $gemm -q -k matmul_nk --arch sm_90a --sweep M,N,K=1024:8192:*2 --seconds 1 --svg "$out/sweep.svg" --plot
step sweep_csv 0 bench $gemm -q -k matmul_nk --sweep M=512:2048:*2 -D N=4096 -D K=4096 --seconds 0.5 --csv
step batched 0 bench samples/products/gemm_batched.py -q -D B=16 -D M=1024 -D N=1024 -D K=1024
heads=(-D batch=4 -D heads=16 -D kv_heads=4 -D seq=4096 -D dim=128)
step attention 0 bench samples/attention/forward.py -q "${heads[@]}" --against torch --against cudnn
step attention_causal 0 bench samples/attention/forward.py -q "${heads[@]}" -D causal=True --json
step vector_add 0 bench samples/vector_add.py -q -D N=16777216 --against 'torch:A + B' --check-seconds 5
step softmax 0 bench samples/rows/softmax.py -q -D M=8192 -D N=4096 --against 'torch:torch.softmax(X, -1)' --check-seconds 5
space=(--space block_M=64,128 block_N=128,256 block_K=32,64 num_stages=3,4 --timeout 60)
step tune_sm80 0 tune $gemm -q -k matmul_nk "${size[@]}" "${space[@]}" --arch sm_80 --table "$out/sm80.json" -o "$out/sm80.cu"
step tune_sm90a 0 tune $gemm -q -k matmul_nk "${size[@]}" "${space[@]}" --arch sm_90a --table "$out/sm90a.json" -o "$out/sm90a.cu"
step tune_resumed 0 tune $gemm -q -k matmul_nk "${size[@]}" "${space[@]}" --arch sm_90a --table "$out/sm90a.json" -o "$out/sm90a.cu"
step tuned 0 bench $gemm -q -k matmul_nk "${size[@]}" --arch sm_90a -D "@$out/sm90a.json" --against cublas --against "$out/sm80.cu"
fates=(benchmarks/kernels/hostile.py -q -D M=512 -D N=512 -D K=512 --space fate=fine,wrong,crash,hang,illegal block_M=64,128 --timeout 20)
step hostile 0 tune "${fates[@]}" --table "$out/hostile.json" -o "$out/hostile.cu"
step hostile_resumed 0 tune "${fates[@]}" --table "$out/hostile.json" -o "$out/hostile.cu"
step doctor 0 doctor
echo
printf '%s' "$summary"
exit $failed
