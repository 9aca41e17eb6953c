#!/bin/sh
# dro train on two machines (network namespaces, joined by TCP): the same bytes as on one, and when the cable is pulled
# all ranks, and mpirun, end within 10 s with a line that names the rank; the run goes on. $1: the program.
dro=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
. "$(dirname "$0")/ranks.sh"
machines
run="--data synth:glyphs,n=96,test=24,size=12,classes=3 --epochs 4 --model resnet20 --batch 24 --threads 1
    --set exact=yes --set checkpoint_every=0"
"$dro" train $run --out right >log 2>&1 || fail "one process"
on_machines "$dro" train $run --out two >log 2>&1 &
wait $! || fail "two machines"
cmp right/weights.safetensors two/weights.safetensors || fail "two machines end with other bytes"

on_machines "$dro" train $run --out cut >log 2>&1 &
starter=$!
until_file cut/previous.ckpt
victim=$(pgrep -n -f "train .*--out cut")
cable down
began=$(date +%s)
wait $starter && fail "the cable is pulled and the run ends well"
[ $(($(date +%s) - began)) -le 10 ] || fail "it took $(($(date +%s) - began)) s"
gone "$victim" || fail "a rank is left over"
grep -q "^dro: rank 1 on machine1: no sign of life" log || fail "no line says which rank is gone"
cable up
on_machines "$dro" train --resume --out cut >log 2>&1 &
wait $! || fail "resume"
cmp right/weights.safetensors cut/weights.safetensors || fail "resumed, it ends with other bytes"
