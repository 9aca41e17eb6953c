#!/bin/sh
# faults-mpi.sh PROGRAM: a rank of a run is killed, stopped or cut off at a random moment, KILLS (200), STOPS (50) and
# LINKS (20) times. Each time all ranks and mpirun must be gone within 10 s, the folder must be whole, and the run,
# resumed on another number of ranks, must end with the bytes of one that nothing has happened to. A run that ends
# before the random moment does not count; nor does one of which only the stopped rank is left, after all others have
# ended well: no process is there to notice it. Every failure is printed with what is known about it, and the campaign
# goes on; the exit status says whether there was one. SEED repeats a campaign.
dro=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cd "$(dirname "$0")/../tests" && . ./ranks.sh
export DRO_JOIN_SECONDS=6
seed=${SEED:-$$}
failures=0
run="--data synth:glyphs,n=96,test=24,size=12,classes=3 --epochs 4 --model resnet20 --batch 24 --threads 1
    --set exact=yes --set checkpoint_every=0"
"$dro" train $run --out right >log 2>&1 || fail "one process"

# The next of a row of numbers below $1.
random() {
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    drawn=$((seed / 65536 % $1))
}

wrong() {
    echo "FAILED: $what: $*"
    failures=$((failures + 1))
}

# about PROCESS: what it does, and which threads it waits in.
about() {
    echo "  process $1: $(tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null | cut -c 1-60)"
    for thread in "/proc/$1/task/"*; do
        echo "    $(cut -d' ' -f3 "$thread/stat" 2>/dev/null) $(cat "$thread/wchan" 2>/dev/null)"
    done
    if command -v gdb >/dev/null 2>&1; then
        timeout 20 gdb -p "$1" -batch -ex 'thread apply all bt 12' 2>/dev/null | grep '^[#T]' | sed 's/^/    /'
    fi
}

there() { # PROCESS: it has not ended
    case $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -c 1) in '' | Z) return 1 ;; esac
}

worst=0
# ended PROCESS...: all of them are gone in time, mpirun (the first) too.
ended() {
    began=$(date +%s%N)
    took=0
    left=$*
    while [ -n "$left" ] && [ $took -le 10000 ]; do
        sleep 0.05
        some=
        for one in $left; do
            if there "$one"; then some="$some $one"; fi
        done
        left=$some
        took=$((($(date +%s%N) - began) / 1000000))
    done
    if [ "$left" = " $1 $victim" ] && [ -e out/result.json ] && ! grep -q '^dro: ' log; then
        last=$((last + 1))
        took=0
        kill -KILL "$victim"
    elif [ -n "$left" ]; then
        wrong "after $took ms there are still:"
        for one in $left; do about "$one"; done
        sed 's/^/  said: /' log
        kill -KILL $left
        took=0 # it is in the line above
    fi
    wait "$1"
    [ $took -le $worst ] || worst=$took
}

# goes_on COMMAND...: with the run where it was, to the right bytes; 120 s at most.
goes_on() {
    if [ ! -e out/config.json ]; then
        rm -rf out
        "$@" "$dro" train $run --out out >log 2>&1 &
    else
        "$@" "$dro" train --resume --threads 1 --out out >log 2>&1 &
    fi
    resumed=$!
    tries=0
    while there $resumed && [ $tries -lt 1200 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    if there $resumed; then
        wrong "resumed ($*), it hangs"
        for one in $resumed $(children $resumed); do about "$one"; done
        kill -KILL $(children $resumed) $resumed
    fi
    wait $resumed || { wrong "cannot go on ($*)"; sed 's/^/  said: /' log; return; }
    cmp right/weights.safetensors out/weights.safetensors || wrong "other bytes ($*)"
}

until_started() { # mpirun has that many processes; 10 s at most
    tries=0
    until [ "$(children "$1" | grep -c .)" -ge "$2" ] || [ $tries -gt 200 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
}

now() { echo $(($(date +%s%N) / 1000000)); } # in ms

wait_within() { # MS: for a random time below
    random "$1"
    sleep "$((drawn / 1000)).$(printf %03d $((drawn % 1000)))"
}

start() { # N: a run on so many ranks
    rm -rf out
    mpirun --oversubscribe -n "$1" "$dro" train $run --out out >log 2>&1 &
    starter=$!
    until_started $starter "$1"
}

# length N: the ms that a run on so many ranks takes once they have started.
length() {
    start "$1"
    began=$(now)
    wait $starter || fail "$1 ranks"
    echo $(($(now) - began + 1))
}

signals() { # signal, how often
    [ "$2" -gt 0 ] || return
    k=0
    hits=0
    last=0
    before=$failures
    while [ $((hits - last)) -lt "$2" ]; do
        k=$((k + 1))
        [ $k -le $((20 * $2)) ] || fail "$1: only $hits of $k runs were hit before their end"
        random 2
        count=$((2 << drawn))
        start $count
        all=$(children $starter)
        if [ $count -eq 2 ]; then wait_within "$length2"; else wait_within "$length4"; fi
        random $count
        victim=$(echo "$all" | sed -n "$((drawn + 1))p")
        what="$1 number $k (rank $drawn of $count, seed $seed)"
        if kill -"$1" "$victim" 2>/dev/null; then
            hits=$((hits + 1))
            ended $starter $all
            [ $((hits % 10)) -ne 0 ] || echo "$1: $hits so far, at most $worst ms, $((failures - before)) failures"
        else
            wait $starter
        fi
        random 3
        goes_on ranks $((1 << drawn))
    done
    echo "$1: $((hits - last)) of $k runs were hit before their end; $((failures - before)) failures;" \
        "otherwise all gone within $worst ms; not counted: $last stopped when the others had ended"
    worst=0
}

# link MS: a run whose cable is cut within so many ms (0: never). Sets $all to the ranks that are there then, or $took.
link() {
    rm -rf out
    on_machines "$dro" train $run --out out >log 2>&1 &
    starter=$!
    until_file out/config.json
    began=$(now)
    if [ "$1" -eq 0 ]; then
        wait $starter || fail "two machines"
        took=$(($(now) - began + 1))
        return
    fi
    wait_within "$1"
    all=$(pgrep -f "$dro train .*--out out")
    cable down
}

links() {
    k=0
    hits=0
    before=$failures
    link 0
    length=$took
    while [ $hits -lt "$1" ]; do
        k=$((k + 1))
        [ $k -le $((20 * $1)) ] || fail "links: only $hits of $k runs were hit before their end"
        what="link number $k (seed $seed)"
        link "$length"
        if [ -n "$all" ] && [ ! -e out/result.json ]; then hits=$((hits + 1)); fi
        ended $starter $all
        cable up
        goes_on on_machines
    done
    echo "link down: $hits of $k runs were hit before their end; $((failures - before)) failures;" \
        "otherwise all gone within $worst ms"
}

length2=$(length 2)
length4=$(length 4)
signals KILL "${KILLS:-200}"
signals STOP "${STOPS:-50}"
if [ "${LINKS:-20}" -gt 0 ]; then
    machines
    links "${LINKS:-20}"
fi
[ $failures -eq 0 ]
