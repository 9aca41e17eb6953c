#!/bin/sh
# scale-mpi.sh PROGRAM: a list of images as long as that of ImageNet-LT, 115,846 lines (LINES_COUNT) in 1,000 classes with a
# long tail, on 1, 2 and 4 ranks (RANKS). The images are made up: 1,000 names of ten files of 32 x 32 noise. Prints for
# each number of ranks: the time until the run begins, the largest memory of a rank, and the examples per second of the
# first 20 steps (STEPS) of resnet20, SGD, batch 256.
dro=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cd "$(dirname "$0")/../tests" && . ./ranks.sh
lines=${LINES_COUNT:-115846}

mkdir -p images/train
k=0
while [ $k -lt 10 ]; do
    { printf 'P6\n32 32\n255\n'; head -c 3072 /dev/urandom; } >image
    i=0
    while [ $i -lt 100 ]; do
        ln image "images/train/n0$((1000000 + k))_$((1000 + i)).ppm"
        i=$((i + 1))
    done
    rm image
    k=$((k + 1))
done
# Class c has a share of the lines in proportion to 0.995^c: the first 200 times as many as the last.
awk -v n="$lines" 'BEGIN {
    for (c = 0; c < 1000; c++) total += 0.995 ^ c
    for (c = 0; c < 1000; c++) {
        sum += 0.995 ^ c
        for (last = c == 999 ? n : int(n * sum / total); i < last; i++)
            print "train/n0" 1000000 + i % 10 "_" 1000 + int(i / 10) % 100 ".ppm " c
    }
}' >list.txt
echo "$(wc -l <list.txt) lines, $(cut -d' ' -f2 list.txt | sort -u | wc -l) classes"

for count in ${RANKS:-1 2 4}; do
    rm -rf out
    began=$(date +%s%N)
    mpirun --oversubscribe -n "$count" "$dro" train --data list:list.txt,root=images --size 32 --model resnet20 \
        --optimizer sgd --batch 256 --steps "${STEPS:-20}" --threads 1 --set eval_train=no --out out >log 2>&1 &
    starter=$!
    begun=
    most=0
    while [ -e "/proc/$starter/status" ] && [ "$(cut -d' ' -f3 "/proc/$starter/stat")" != Z ]; do
        [ -z "$begun" ] && [ -s out/config.json ] && begun=$((($(date +%s%N) - began) / 1000000))
        for one in $(children $starter); do
            memory=$(sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$one/status" 2>/dev/null)
            [ "${memory:-0}" -gt $most ] && most=$memory
        done
        sleep 0.05
    done
    wait $starter || fail "$count ranks"
    speed=$(awk -v e="$(sed -n 's/^ *"examples": *\([0-9]*\).*/\1/p' out/result.json | head -1)" \
        -v s="$(sed -n 's/^ *"seconds": *\([0-9.e-]*\).*/\1/p' out/result.json | head -1)" 'BEGIN { printf "%.0f", e / s }')
    echo "$count ranks: begins after ${begun:-?} ms, at most $((most / 1024)) MiB on a rank, $speed examples/s"
done
