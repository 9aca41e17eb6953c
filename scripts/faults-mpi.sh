#!/bin/sh
# faults-mpi.sh PROGRAM: a rank of a run is killed, stopped or cut off at a random moment, KILLS (200), STOPS (50) and
# LINKS (20) times. Each time all ranks must be gone within 10 s, the folder must be whole, and the run, resumed on
# another number of ranks, must end with the bytes of one that nothing has happened to. SEED repeats a campaign.
dro=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cd "$(dirname "$0")/../tests" && . ./ranks.sh
export DRO_JOIN_SECONDS=6
seed=${SEED:-$$}
run="--data synth:glyphs,n=96,test=24,size=12,classes=3 --epochs 4 --model resnet20 --batch 24 --threads 1
    --set exact=yes --set checkpoint_every=0"
"$dro" train $run --out right >log 2>&1 || fail "one process"

# The next of a row of numbers below $1.
random() {
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    drawn=$((seed / 65536 % $1))
}

worst=0
# ended STARTER PROCESS...: all are gone in time.
ended() {
    began=$(date +%s%N)
    starter=$1
    shift
    wait "$starter"
    for one in "$@"; do
        gone "$one" || fail "$what: process $one is left over"
    done
    took=$((($(date +%s%N) - began) / 1000000))
    [ $took -le 10000 ] || fail "$what: it took $took ms"
    [ $took -le $worst ] || worst=$took
}

# goes_on COMMAND...: with the run where it was, to the right bytes.
goes_on() {
    if [ ! -e out/config.json ]; then
        rm -rf out
        "$@" "$dro" train $run --out out >log 2>&1 &
    else
        "$@" "$dro" train --resume --threads 1 --out out >log 2>&1 &
    fi
    wait $! || fail "$what: cannot go on ($*)"
    cmp right/weights.safetensors out/weights.safetensors || fail "$what: other bytes"
}

until_started() { # mpirun has that many processes; 10 s at most
    tries=0
    until [ "$(children "$1" | grep -c .)" -ge "$2" ] || [ $tries -gt 200 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
}

wait_a_little() { # up to 3 s
    random 300
    sleep "$((drawn / 100)).$(printf %02d $((drawn % 100)))"
}

signals() { # signal, how often
    k=0
    while [ $k -lt "$2" ]; do
        k=$((k + 1))
        rm -rf out
        random 2
        count=$((2 << drawn))
        mpirun --oversubscribe -n $count "$dro" train $run --out out >log 2>&1 &
        starter=$!
        until_started $starter $count
        all=$(children $starter)
        wait_a_little
        random $count
        victim=$(echo "$all" | sed -n "$((drawn + 1))p")
        what="$1 number $k (rank $drawn of $count, seed $seed)"
        if kill -"$1" "$victim" 2>/dev/null; then ended $starter $all; else wait $starter; fi
        random 3
        goes_on ranks $((1 << drawn))
    done
    echo "$1: $2 times, all gone within $worst ms at most, every run went on to the same bytes"
    worst=0
}

links() {
    k=0
    while [ $k -lt "$1" ]; do
        k=$((k + 1))
        rm -rf out
        on_machines "$dro" train $run --out out >log 2>&1 &
        starter=$!
        until_file out/config.json
        wait_a_little
        all=$(pgrep -f "train .*--out out")
        what="link number $k (seed $seed)"
        cable down
        ended $starter $all
        cable up
        goes_on on_machines
    done
    echo "link down: $1 times, all gone within $worst ms at most, every run went on to the same bytes"
}

signals KILL "${KILLS:-200}"
signals STOP "${STOPS:-50}"
if [ "${LINKS:-20}" -gt 0 ]; then
    machines
    links "${LINKS:-20}"
fi
