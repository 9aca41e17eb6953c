#!/bin/sh
# Streams on several ranks: from one file or a pipe rank 0 reads for all; the files of a pattern are divided over the
# ranks. Every row is learned from once, also when a run is killed and resumed with another number of ranks.
# $1: the program.
dro=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/ranks.sh"

. "$tests/shards.sh"

same() { cmp "$1/weights.safetensors" "$2/weights.safetensors"; }
examples() { sed -n 's/.*"examples":\([0-9]*\),"evaluations".*/\1/p' "$1/metrics.jsonl" | tail -1; }
one() { # folder, then the settings of a run
    out=$1; shift
    "$dro" train "$@" --threads 1 --out "$out" >log 2>&1 || fail "$out: one process"
}
many() { # folder, ranks, then the settings
    out=$1; count=$2; shift 2
    ranks "$count" "$dro" train "$@" --threads 1 --out "$out" >log 2>&1 || fail "$out: $count ranks"
}

# ---- one file, or a pipe: the same bytes on any number of ranks with exact=yes ----
one exact-1 --data libsvm:all.svm,features=3 --progressive --set exact=yes
for n in 2 4; do
    many exact-$n $n --data libsvm:all.svm,features=3 --progressive --set exact=yes
    same exact-1 exact-$n || fail "a stream on $n ranks ends with other bytes"
done
ranks 2 "$dro" train --data csv:-,label=label --progressive --set exact=yes --threads 1 --out piped <all.csv >log 2>&1 ||
    fail "a pipe"
one piped-1 --data csv:all.csv,label=label --progressive --set exact=yes
same piped piped-1 || fail "a pipe on 2 ranks ends with other bytes than a file"
ranks 2 "$dro" train --data 'libsvm:part-*.svm*,features=3' --progressive --set exact=yes --out wrong >log 2>&1 &&
    fail "exact=yes with a pattern"
grep -q 'dro: rank 0 .*exact=yes with a pattern of files: the order of the rows depends on the number of ranks' log ||
    fail "exact=yes with a pattern: no such line"

# ---- four classes ----
awk -F, '{ print (NR == 1 ? "kind" : $1 ($4 == "x" ? " and\tx" : "")) "," $0 }' all.csv | cut -d, -f1,3- >kinds.csv
one kinds-1 --data csv:kinds.csv,label=kind --progressive --set exact=yes
many kinds-4 4 --data csv:kinds.csv,label=kind --progressive --set exact=yes
same kinds-1 kinds-4 || fail "four classes on 4 ranks end with other bytes"
grep -q '"1 and\\tx"' kinds-4/result.json || fail "the names of the classes are lost"
many kinds-3 3 --data csv:kinds.csv,label=kind --progressive
[ "$(examples kinds-3)" -eq 6000 ] || fail "four classes: $(examples kinds-3) rows of 6000"
mkdir kinds && for k in 1 2 3; do awk -v k=$k 'NR == 1 || NR % 3 == k % 3' kinds.csv >kinds/part-$k.csv; done
many kinds-parts 3 --data 'csv:kinds/part-*.csv,label=kind' --progressive
[ "$(examples kinds-parts)" -eq 6000 ] || fail "four classes, a pattern: $(examples kinds-parts) rows of 6000"

# ---- a pattern over ranks: every row once, twice the same, metrics those of all rows ----
for n in 2 3 8; do
    many shared-$n $n --data 'csv:part-*.csv*,label=label' --progressive
    [ "$(examples shared-$n)" -eq 6000 ] || fail "$n ranks have learned from $(examples shared-$n) rows of 6000"
done
many again 3 --data 'csv:part-*.csv*,label=label' --progressive
same shared-3 again || fail "two runs on 3 ranks differ"
sed -i '6s/^.,/maybe,/' part-3.csv # of the third of three ranks
ranks 3 "$dro" train --data 'csv:part-*.csv*,label=label,learn=100' --progressive --out labels >log 2>&1 &&
    fail "a label that is none"
grep -q "^dro: rank 2 on [^:]*: part-3.csv: line 6: column 'label': 'maybe'" log || fail "it is not named"
[ "$(grep -c '^dro: ' log)" -eq 1 ] || fail "more than one line"
sed -i '6s/^maybe,/1,/' part-3.csv

# ---- killed and resumed ----
stream="--progressive --batch 40 --set checkpoint_every=0 --threads 1"
killed() { # folder, ranks, then the settings: killed in mid-run
    out=$1; count=$2; shift 2
    rm -rf "$out"
    mpirun --oversubscribe -n "$count" "$dro" train "$@" $stream --out "$out" >log 2>&1 &
    starter=$!
    until_file "$out/previous.ckpt"
    kill -KILL "$(children $starter | tail -1)" || fail "$out: it has ended before it could be killed"
    wait $starter && fail "$out: the run has ended well"
    [ -e "$out/result.json" ] && fail "$out: it has a result"
    return 0
}
for n in 1 2 4; do
    killed parts 2 --data 'libsvm:part-*.svm*,features=3'
    ranks $n "$dro" train --resume --out parts >log 2>&1 || fail "resume with $n ranks"
    [ "$(examples parts)" -eq 6000 ] || fail "resumed with $n ranks: $(examples parts) rows of 6000"
    cp -r parts parts-$n
done
many right 2 --data 'libsvm:part-*.svm*,features=3' $stream
same right parts-2 || fail "killed and resumed by as many ranks: other bytes"
killed shuffled 2 --data 'libsvm:part-*.svm*,features=3,shuffle=500'
ranks 4 "$dro" train --resume --out shuffled >log 2>&1 && fail "another order of rows"
grep -q 'shuffle= with a pattern of files: the run was made by 2 ranks' log || fail "no line about shuffle="
ranks 2 "$dro" train --resume --out shuffled >log 2>&1 || fail "resume with shuffle="
many right-shuffled 2 --data 'libsvm:part-*.svm*,features=3,shuffle=500' $stream
same right-shuffled shuffled || fail "shuffle=, killed and resumed: other bytes"
killed moved 2 --data 'libsvm:part-*.svm*,features=3'
mv part-7.svm part-8.svm
ranks 2 "$dro" train --resume --out moved >log 2>&1 && fail "other files"
grep -q 'it names other files than when the run began' log || fail "no line about other files"
killed file 2 --data libsvm:all.svm,features=3 --set exact=yes
"$dro" train --resume --threads 1 --out file >log 2>&1 || fail "resume of one file"
one right-file --data libsvm:all.svm,features=3 --set exact=yes $stream
same right-file file || fail "one file, killed on 2 ranks and resumed on 1: other bytes"

# ---- a silent pipe: rank 0 does not wait for it when another rank is stopped, or when the time is over ----
mkfifo pipe
silent() { (cat all.csv; exec sleep 120) >pipe & feeder=$!; }
silent
mpirun --oversubscribe -n 2 "$dro" train --data csv:-,label=label,learn=100 $stream --out waits <pipe >log 2>&1 &
starter=$!
until_file waits/previous.ckpt || fail "a silent pipe: no checkpoint"
sleep 1 # all rows are read
kill -STOP "$(children $starter | tail -1)"
ends_within $starter 10
kill $feeder
[ $status -ne 0 ] && grep -q '^dro: rank 1 on [^:]*: no sign of life' log || fail "a silent pipe: no line about rank 1"
silent
ranks 2 "$dro" train --data csv:-,label=label,learn=100 $stream --max-time 3 --out timed <pipe >log 2>&1 || fail "max_time and a pipe"
kill $feeder
grep -q '"ended": *"time"' timed/result.json || fail "max_time and a silent pipe: it has not ended for the time"

echo "all passed"
