#!/bin/sh
# dro train on two machines (network namespaces, joined by TCP): the same bytes as on one, and when the cable is pulled
# all ranks, and mpirun, end within 10 s with a line that names the rank; the run is resumed. $1: the program.
dro=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
. "$(dirname "$0")/ranks.sh"
machines
run="--data synth:glyphs,n=96,test=24,size=12,classes=3 --epochs 4 --model resnet20 --batch 24 --threads 1
    --set exact=yes --set checkpoint_every=0"
"$dro" train $run --out right >log 2>&1 || fail "one process"
on_machines_until two/result.json "$dro" train $run --out two
wait $starter || fail "two machines"
cmp right/weights.safetensors two/weights.safetensors || fail "two machines end with other bytes"

# A run that ends well had ended before the cable was pulled: on a busy machine that happens.
for try in 1 2 3 4 5; do
    rm -rf cut
    on_machines_until cut/previous.ckpt "$dro" train $run --out cut
    victim=$(machine_processes $space1)
    cable down
    ends_within $starter 10
    [ $status -eq 0 ] || break
    cable up
done
[ $status -ne 0 ] || fail "the cable is pulled and the run ends well, five times"
gone "$victim" || fail "a rank is left over"
grep -q "^dro: rank 1 on machine1: no sign of life" log || fail "no line says which rank is gone"
cable up
on_machines_until cut/result.json "$dro" train --resume --out cut
wait $starter || fail "resume"
cmp right/weights.safetensors cut/weights.safetensors || fail "resumed, it ends with other bytes"
