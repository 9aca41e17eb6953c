#!/bin/sh
# dro compare on a GPU, several runs at once in threads of one process: every run ends, with the same weights as alone
# (deterministic mode), and what is done is not run again. $1: the program. DRO_BACKEND: another backend, to try this
# script without a GPU. Exit status 77 where the backend does not work.
. "$(dirname "$0")/expected/check.sh"
dro=$(cd "$(dirname "$dro")" && pwd)/$(basename "$dro")
cd "$work" || exit 1
backend=${DRO_BACKEND:-cuda}

if ! "$dro" list models --backend $backend >out 2>err; then
    echo "skipped: $(cat err)"
    exit 77
fi
data="--data synth:glyphs,n=400,test=100,size=16,classes=4"
common="$data --model resnet20 --batch 32 --epochs 2 --seeds 2 --backend $backend --set deterministic=yes"
[ "$backend" != cuda ] || common="$common --precision bf16"

run 0 compare $common --jobs 4 --threads 4 --out four --json
json
grep -q '"examples_per_s": [1-9]' out || fail "$what: no speed of all runs together"
run 0 compare $common --jobs 1 --threads 1 --out one --json
json
for name in sgd-seed1 sgd-seed2 recover-seed1 recover-seed2; do
    [ -s four/$name/result.json ] || fail "no result of $name"
    cmp four/$name/weights.safetensors one/$name/weights.safetensors || fail "four at once: another $name"
done
if cmp -s one/sgd-seed1/weights.safetensors one/sgd-seed2/weights.safetensors; then fail "two seeds, one result"; fi

# What is done is not run again; a seed more is.
run 0 compare $common --jobs 4 --threads 4 --out four --json
[ "$(grep -c '"earlier": true' out)" -eq 4 ] || fail "finished runs are run again"
run 0 compare $common --seeds 3 --jobs 4 --threads 4 --out four --json
[ "$(grep -c '"earlier": true' out)" -eq 4 ] || fail "a seed more: not four runs kept"
[ -s four/recover-seed3/result.json ] || fail "a seed more: no result"

# Weights that a GPU trained are those of any backend.
run 0 eval --weights one/recover-seed1/weights.safetensors $data --backend $backend
run 0 eval --weights one/recover-seed1/weights.safetensors $data --backend ref

finish
