#!/bin/sh
# Wrong usage is status 2 with one clear line and nothing on stdout; a stdout that cannot be written to
# is status 1. $1: the program.
. "$(dirname "$0")/expected/check.sh"

: >"$work/all"
wrong() {
    run 2 "$@"
    silent out
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$what: not one line"
    echo "\$ dro $*" >>"$work/all"
    cat "$work/err" >>"$work/all"
}
wrong lst
wrong help lst
wrong nonsense
wrong list optimisers
wrong list nonsense
wrong list optimizers recovr
wrong list optimizers nonsense
wrong list optimizers sgd more
wrong list backends more
wrong list optimizers --jsn
wrong list optimizers --nonsense
wrong list optimizers --json=yes
wrong list optimizers -j
wrong list optimizers --threads
wrong list optimizers --threads --json
wrong list optimizers --threads 0
wrong list optimizers --threads=2.5
wrong list optimizers --threads many
wrong bench memry
wrong bench nonsense --max 3
wrong bench memory more
wrong bench memory --max 10
wrong bench memory --seconds nan
wrong bench memory --optimizers sgd,recovr
wrong bench memory --optimizers nonsense
wrong bench memory --optimizers ''
wrong bench linear --rows 100
wrong bench vector --lenght 100
cp "$work/all" "$work/out"
same errors.txt

run 2 list optimizers --backend nonsense
has "--backend nonsense: expected auto or what this build has" err

# help COMMAND is COMMAND --help.
for command in train "bench memory"; do
    run 0 $command --help
    cp "$work/out" "$work/help"
    run 0 help $command
    cmp "$work/out" "$work/help" || fail "$what: not $command --help"
done

# Without a word: what there is, on stderr.
run 2
silent out
same help.txt err
run 2 bench
silent out
has "bench: no name" err
has "memory" err

if [ -w /dev/full ]; then
    for more in "" --json; do
        "$dro" list optimizers $more >/dev/full 2>"$work/err"
        [ $? -eq 1 ] || fail "a full disk is not status 1"
        echo "dro: cannot write to standard output: No space left on device" | cmp - "$work/err" ||
            fail "a full disk is not reported in one line"
    done
fi
# Many that complain at the same time, into one file: every line stays whole.
for k in $(seq 60); do "$dro" nonsense 2>>"$work/mixed" & done
wait
[ "$(sort -u "$work/mixed" | wc -l)" -eq 1 ] || fail "lines of several processes are mixed"

{
    sleep 0.3
    "$dro" list optimizers 2>"$work/err"
    echo $? >"$work/status"
} | :
while [ ! -s "$work/status" ]; do sleep 0.1; done
[ "$(cat "$work/status")" -eq 1 ] || fail "a closed pipe is not status 1"
[ ! -s "$work/err" ] || fail "a closed pipe is not quiet"

finish
