#!/bin/sh
# bench_cuda.sh [--only steps|runs|torch] BUILD: the figures of docs/gpu-notes.md that are times, as tables, measured on
# this machine's GPU with the programs in BUILD (`make bench-cuda`). PYTHON: one with torch and torchvision, for the
# comparison with PyTorch, which is left out where there is none; VARIANTS: of torch_gpu.py. Every time is a median;
# SGD / RECOVER. It writes only torch.compile's cache, into BUILD. Exit status 77 where there is no GPU.
set -eu
only=
if [ "${1:-}" = --only ]; then
    only=${2:-none}
    shift
    [ $# -eq 0 ] || shift
fi
case $#:$only in
1: | 1:steps | 1:runs | 1:torch) ;;
*) echo "usage: bench_cuda.sh [--only steps|runs|torch] BUILD" >&2; exit 2 ;;
esac
build=$1
dro=$build/dro
step=$build/tests/peer_cuda_step
runs=$build/tests/peer_cuda_runs
for program in "$dro" "$step" "$runs"; do
    [ -x "$program" ] || { echo "bench_cuda: no program $program: \`make cuda\` builds it" >&2; exit 1; }
done
said=$(mktemp)
trap 'rm -f "$said"' EXIT
began=$(date +%s)
wanted() { [ -z "$only" ] || [ "$only" = "$1" ]; }

# number PATTERN COMMAND...: the number that a line of COMMAND has before PATTERN. What fails ends this script.
number() {
    pattern=$1
    shift
    "$@" >"$said" 2>&1 || { status=$?; cat "$said" >&2; exit $status; }
    found=$(sed -n "s/\(.*[: ]\)*\([0-9][0-9.]*\) $pattern.*/\2/p" "$said" | tail -n 1)
    [ -n "$found" ] || { cat "$said" >&2; echo "bench_cuda: no \`$pattern\` in what $1 says" >&2; exit 1; }
    echo "$found"
}
# SGD / RECOVER by `dro bench step` and by peer_cuda_step: MODEL PRECISION BATCH STEPS [WORDS...]
bench() {
    with="--backend cuda --model $1 --precision $2 --batch $3 --rounds $4"
    sgd=$(number "ms per step" "$dro" bench step $with --optimizer sgd)
    recover=$(number "ms per step" "$dro" bench step $with --optimizer recover)
    echo "$sgd / $recover"
}
peer() {
    model=$1 precision=$2 batch=$3 steps=$4
    shift 4
    sgd=$(number "ms per step" "$step" "$model" sgd "$precision" "$batch" "$steps" "$@")
    recover=$(number "ms per step" "$step" "$model" recover "$precision" "$batch" "$steps" "$@")
    echo "$sgd / $recover"
}
row() { # MODEL PRECISION BATCH STEPS, and words: in what other ways
    ways=" $5 "
    set -- "$1" "$2" "$3" "$4"
    program=$(bench "$@")
    queued=$(peer "$@")
    line="| $1 | $3 | $2 | $program | $queued |"
    for way in deterministic host; do
        case $ways in
        *" $way "*) time=$(peer "$@" $way) ;;
        *) time= ;;
        esac
        line="$line $time |"
    done
    echo "$line"
}
rates() { # MODEL OPTIMIZER PRECISION COUNTS [WORDS...]: steps per second of all, for each count of runs
    model=$1 optimizer=$2 precision=$3 counts=$4 line=
    shift 4
    for count in 1 2 4 6 8 12; do
        case " $counts " in
        *" $count "*) found=$(number "steps.s of all" "$runs" "$model" "$optimizer" "$precision" 128 300 $count "$@") ;;
        *) found= ;;
        esac
        line="$line $found |"
    done
    echo "| $model $optimizer $precision${*:+, $*} |$line"
}

"$step" resnet20 sgd bf16 8 1 >"$said" 2>&1 || {
    status=$?
    [ $status -ne 77 ] || echo "bench_cuda: run it where there is a GPU" >>"$said"
    cat "$said" >&2
    exit $status
}
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || :
git -C "$(dirname "$0")" describe --always --dirty 2>/dev/null || :

if wanted steps; then
    printf '\nMilliseconds per step, SGD / RECOVER; the first by `dro bench step`, the others by peer_cuda_step:\n\n'
    echo "| | batch | precision | dro bench step | queued | deterministic | host-driven |"
    echo "| --- | --- | --- | --- | --- | --- | --- |"
    for model in resnet20 resnet32; do
        row $model bf16 128 300 "deterministic host"
        row $model tf32 128 300 ""
    done
    for model in resnet50 inception_v3; do
        row $model bf16 64 30 deterministic
    done
    printf '\nWho convolves, milliseconds per step, SGD / RECOVER (peer_cuda_step):\n\n'
    echo "| | batch | precision | own kernels | cuDNN's |"
    echo "| --- | --- | --- | --- | --- |"
    for batch in 32 128 512; do
        for precision in bf16 tf32; do
            own=$(peer resnet20 $precision $batch 100)
            theirs=$(peer resnet20 $precision $batch 100 cudnn)
            echo "| resnet20 | $batch | $precision | $own | $theirs |"
        done
    done
fi
if wanted runs; then
    printf '\nSeveral runs at once, batch 128, steps per second of all (peer_cuda_runs):\n\n'
    echo "| | 1 | 2 | 4 | 6 | 8 | 12 |"
    echo "| --- | --- | --- | --- | --- | --- | --- |"
    for optimizer in sgd recover; do
        rates resnet20 $optimizer bf16 "1 2 4 6 8 12"
        rates resnet20 $optimizer bf16 "1 8" deterministic
        rates resnet20 $optimizer tf32 "1 2 4 8"
    done
    rates resnet32 recover bf16 "1 8"
    rates resnet32 recover bf16 "1 8" deterministic
fi
if wanted torch; then
    printf '\nBeside PyTorch, bf16, its whole step a graph, rounds interleaved (torch_gpu.py):\n\n'
    python=${PYTHON:-python3}
    if "$python" -c 'import torch, torchvision; assert torch.cuda.is_available()' 2>/dev/null; then
        TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$build/inductor} \
            "$python" "$(dirname "$0")/torch_gpu.py" --dro "$dro" --variants "${VARIANTS:-compile+cl}"
    else
        echo "left out: $python has no torch and torchvision that see the GPU (PYTHON=... names another)"
        [ -z "$only" ] || exit 1
    fi
fi
printf '\ntook %d s\n' $(($(date +%s) - began))
