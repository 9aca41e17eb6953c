#!/bin/sh
# bench-mpi.sh PROGRAM: examples per second of 1 rank x 1 thread, 1 rank x 2 threads and 2 ranks x 1 thread, on a machine
# with two cores and nothing else to do. ROUNDS (7) interleaved rounds; the order within a round changes. Prints for each
# case the median of each, the efficiency (2 ranks against the faster of the other two, median of the rounds' ratios),
# and what a step of 2 ranks sends and waits. The cases: resnet20 (RECOVER, batch 128) and a linear model of 256 features
# (RECOVER, batch 8192). EPOCHS (2) and STEPS (300) shorten them.
dro=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cd "$(dirname "$0")/../tests" && . ./ranks.sh
rounds=${ROUNDS:-7}

# 32,768 rows of 256 numbers and a label.
awk 'BEGIN {
    srand(1)
    for (i = 0; i < 32768; i++) {
        row = rand() < 0.5
        for (k = 0; k < 256; k++)
            row = row "," int(2000 * rand() - 1000) / 1000
        print row
    }
}' >table.csv

glyphs="--data synth:glyphs,n=2560,test=10 --model resnet20 --optimizer recover --batch 128 --epochs ${EPOCHS:-2}"
linear="--data csv:table.csv,label=1,header=no --model linear --optimizer recover --batch 8192 --steps ${STEPS:-300}"

# field FOLDER NAME: a number of its result.json
field() { sed -n "s/^ *\"$2\": *\([0-9.e-]*\).*/\1/p" "$1/result.json" | head -1; }

# once FOLDER RANKS THREADS SETTINGS...: a run that evaluates as little as it can
once() {
    out=$1 count=$2 threads=$3
    shift 3
    rm -rf "$out"
    if [ "$count" -eq 1 ]; then
        "$dro" train "$@" --threads "$threads" --set eval_train=no --set eval_every=1000 --out "$out" >log 2>&1
    else
        mpirun --bind-to core --map-by core -n "$count" \
            "$dro" train "$@" --threads "$threads" --set eval_train=no --set eval_every=1000 --out "$out" >log 2>&1
    fi || fail "$count x $threads"
    awk -v e="$(field "$out" examples)" -v s="$(field "$out" seconds)" 'BEGIN { print e / s }'
}

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

measure() { # name, then the settings
    name=$1
    shift
    rm -f one two ranks
    k=0
    while [ $k -lt "$rounds" ]; do
        case $((k % 3)) in 0) order="one two ranks" ;; 1) order="two ranks one" ;; 2) order="ranks one two" ;; esac
        for which in $order; do
            case $which in
            one) once run 1 1 "$@" ;;
            two) once run 1 2 "$@" ;;
            ranks) once both 2 1 "$@" ;;
            esac >>$which
        done
        k=$((k + 1))
    done
    paste one two ranks | awk '{ best = $1 > $2 ? $1 : $2; print $3 / best }' >ratios
    printf '%s: %.0f examples/s on 1 x 1, %.0f on 1 x 2, %.0f on 2 ranks x 1; efficiency %.3f (%.3f to %.3f)\n' "$name" \
        "$(median <one)" "$(median <two)" "$(median <ranks)" "$(median <ratios)" "$(sort -g ratios | head -1)" \
        "$(sort -g ratios | tail -1)"
    awk -v m="$(field both messages)" -v b="$(field both bytes)" -v w="$(field both waited)" -v s="$(field both step)" \
        -v t="$(field both seconds)" \
        'BEGIN { printf "  a step of 2 ranks: %.2f ms, of which %.2f ms in exchanges; %.1f messages, %.0f bytes\n",
            1000 * t / s, 1000 * w / s, m / s, b / s }'
}

measure resnet20 $glyphs
measure linear $linear
