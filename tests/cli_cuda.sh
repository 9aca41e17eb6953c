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

# Convolutions that cuDNN does, large enough for its plans to be chosen by time in another mode: two processes give the
# same weights, and so does one that is stopped in the middle and goes on.
wide="--model glyphnet $data"
[ "$backend" != cuda ] || wide="--model resnet18 --data synth:glyphs,n=512,test=64,size=64,classes=4 --precision bf16"
wide="$wide --batch 64 --steps 160 --optimizer recover --eval-every 10 --backend $backend --set deterministic=yes"
run 0 train $wide --out first
run 0 train $wide --out second
cmp first/weights.safetensors second/weights.safetensors || fail "$what: not the same twice"
"$dro" train $wide --out third >out 2>err &
for turn in 1 2 3 4 5 6 7 8 9 10; do
    sleep 0.3
    [ ! -s third/metrics.jsonl ] || break
done
kill -INT $! 2>/dev/null && wait $!
[ ! -s third/result.json ] || fail "$what: it ended before it could be stopped"
run 0 train $wide --out third --resume
cmp first/weights.safetensors third/weights.safetensors || fail "$what: stopped and resumed it is another"

# Weights that a GPU trained are those of any backend.
run 0 eval --weights one/recover-seed1/weights.safetensors $data --backend $backend
run 0 eval --weights one/recover-seed1/weights.safetensors $data --backend ref

finish
