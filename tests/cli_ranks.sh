#!/bin/sh
# dro train on several ranks: exact=yes ends with the same bytes on 1, 2 and 4 of them and any number of threads, also
# after a kill and a resume with another number; ranks that differ are refused; a rank that is killed or stopped ends
# all of them within 10 s, with one line that names it, and leaves a whole folder. $1: the program.
dro=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
. "$(dirname "$0")/ranks.sh"

images="--data synth:glyphs,n=96,test=24,size=12,classes=3 --epochs 1"
i=0
while [ $i -lt 60 ]; do
    echo "$((i % 2)),$((i * 7 % 11)).5,$((i * 5 % 13)),$((i * 3 % 7)).25"
    i=$((i + 1))
done | sed '1i label,a,b,c' >table.csv
table="--data csv:table.csv,label=label,holdout=0.2 --epochs 2"

# ---- the same bytes ----
# name, then the settings of a run
exact() {
    name=$1; shift
    "$dro" train "$@" --set exact=yes --threads 1 --out "$name-1" >log 2>&1 || fail "$name: one process"
    for n in 2 4; do
        ranks $n "$dro" train "$@" --set exact=yes --threads 1 --out "$name-$n" >log 2>&1 ||
            fail "$name: $n ranks"
        cmp "$name-1/weights.safetensors" "$name-$n/weights.safetensors" ||
            fail "$name: $n ranks end with other bytes"
        sed 's/"\(seconds\|wall\)":[^,]*,//g' "$name-1/metrics.jsonl" >one
        sed 's/"\(seconds\|wall\)":[^,]*,//g' "$name-$n/metrics.jsonl" >many
        cmp one many || fail "$name: $n ranks have other metrics"
    done
}
exact recover $images --batch 24 --model resnet20 --optimizer recover
# name, then the settings of a run: with another number of threads
same_threads() {
    name=$1; shift
    "$dro" train "$@" --set exact=yes --threads 2 --out "$name-threads" >log 2>&1 || fail "$name: 2 threads"
    cmp "$name-1/weights.safetensors" "$name-threads/weights.safetensors" || fail "$name: 2 threads end with other bytes"
    for run in 1 threads; do
        sed 's/"\(seconds\|wall\)":[^,]*,//g' "$name-$run/metrics.jsonl" >"$run"
    done
    cmp 1 threads || fail "$name: 2 threads have other metrics"
}
same_threads recover $images --batch 24 --model resnet20 --optimizer recover
exact class $images --batch 20 --optimizer recover --tilt class
exact sgd $images --batch 21 --optimizer sgd --augment yes
exact mixed $images --batch 21 --optimizer recover --augment autoaugment,cutout --mixup 0.2 --cutmix 1
exact ascpg $images --batch 16 --model mlp --optimizer ascpg
wide="--data synth:glyphs,n=96,test=24,size=12,classes=20 --epochs 1 --batch 16 --model mlp" # oneDNN: over 16 outputs
"$dro" train $wide --set exact=yes --threads 1 --out wide-1 >log 2>&1 || fail "20 classes"
same_threads wide $wide
exact agda $images --batch 16 --optimizer stoc-agda
exact rcivr $images --batch 16 --optimizer rcivr
exact table $table --batch 5 --optimizer recover
exact best $table --batch 8 --model mlp --optimizer sgd --best accuracy
exact adamw $table --batch 8 --model mlp --optimizer adamw
exact scent $table --batch 8 --optimizer scent
exact lbfgs --data csv:table.csv,label=label,holdout=0.2 # the default of tables
grep -q 'lbfgs is not divided' log || fail "lbfgs: no note that several ranks are no faster"
exact auto $table --batch 8 --model auto --optimizer recover
exact trial $table --batch 8 --model auto --optimizer sgd --lr 100 --set on_divergence=stop # the linear model diverges
grep -q 'model auto: mlp (the linear model diverged)' log || fail "auto: no line says that the linear model diverged"
exact halved $images --batch 24 --optimizer sgd --lr 1e9 --set on_divergence=halve
grep -q 'diverged at step' log || fail "a step of 1e9 has not diverged"

# ---- not exact: close to one process, metrics over the whole split ----
"$dro" train $table --batch 8 --model mlp --threads 1 --out alone >log 2>&1 || fail "one process"
ranks 3 "$dro" train $table --batch 8 --model mlp --threads 1 --out three >log 2>&1 || fail "3 ranks"
loss() { sed -n 's/.*"train":{"objective":[^,]*,"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl" | tail -1; }
awk -v a="$(loss alone)" -v b="$(loss three)" 'BEGIN { d = a - b; exit !(a > 0 && d * d < 1e-8 * a * a) }' ||
    fail "3 ranks: loss $(loss three), one process $(loss alone)"
ranks 3 "$dro" train $table --batch 2 --model mlp --out few >log 2>&1 || fail "3 ranks, a batch of 2"
grep -q 'batch=2 on 3 ranks: in each step 1 of them' log || fail "3 ranks, a batch of 2: no note"
ranks 2 "$dro" train $images --batch 24 --set sync_norm=yes --threads 1 --out synced >log 2>&1 || fail "sync_norm"
[ "$(grep -c '^files' log)" -eq 1 ] || fail "not one rank prints"

# ---- whole runs, shared out ----
ranks 2 "$dro" compare $table --batch 8 --optimizers sgd,recover --seeds 2 --out shared >log 2>&1 || fail "compare"
for name in sgd-seed1 sgd-seed2 recover-seed1 recover-seed2; do
    [ -s "shared/$name/result.json" ] || fail "compare on 2 ranks: no run $name"
done
[ -s shared/report.html ] && [ "$(grep -c '^report' log)" -eq 1 ] || fail "compare on 2 ranks: not one report"
ranks 2 "$dro" sweep $table --batch 8 --optimizer sgd --grid eta=0.1,0.01 --seeds 1 --out swept >log 2>&1 ||
    fail "sweep"
[ -s swept/best.json ] || fail "sweep on 2 ranks: nothing was chosen"

# ---- refusals ----
run="$table --batch 8"
refused() { # text, then a shell command for rank 1
    ranks 2 sh -c 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then '"$2"'; else exec "$0" "$@"; fi' "$dro" train $run \
        --out refused >log 2>&1 && fail "ranks that differ were not refused"
    grep -q "^dro: rank 1 on .*$1" log || fail "no line says: $1"
    [ "$(grep -c '^dro: ' log)" -eq 1 ] || fail "more than one line"
    [ ! -e refused/config.json ] || fail "a refused run has left files"
}
# Errors of one rank, or of all, before the ranks have joined: text, then the commands of rank 0 and of rank 1
unstarted() {
    timeout 60 mpirun --oversubscribe -n 2 sh -c 'if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then '"$2"'; else '"$3"'; fi' \
        "$dro" >log 2>&1 && fail "ranks that cannot start: $2, $3"
    grep -q "^dro: .*$1" log || fail "no line says: $1" # where all fail, rank 1 may have been first
    [ "$(grep -c '^dro: ' log)" -eq 1 ] || fail "$1: more than one line"
}
train='exec "$0" train --data csv:table.csv,label=label --out refused'
unstarted 'some ranks run `dro train` and others `dro compare`' "$train" 'exec "$0" compare --seeds 1 --out refused'
unstarted 'train: no option --bogus' "$train --bogus" "$train --bogus"
unstarted 'rank 1 on [^:]*: train: no option --bogus' "$train" "$train --bogus"
unstarted 'rank 1 on [^:]*: none.json: cannot read the settings' "$train" "$train --config none.json"
unstarted 'rank 1 on [^:]*: nothing to resume in none: .*: share the folder, or repeat the settings' \
    "$train" 'exec "$0" train --resume --out none'
unstarted '--config -: of several ranks only rank 0 has standard input' "$train --config -" "$train --config -"
refused 'it has eta=0.123, rank 0 has eta=' 'exec "$0" "$@" --lr 0.123'
refused 'seed=7' 'exec "$0" "$@" --seed 7'
sed '5s/^\(.\),/\1,9/' table.csv >other.csv
sed '$d' table.csv >shorter.csv
refused 'it has examples to train, test and hold out=47, 0, 12, rank 0 has .*=48, 0, 12' \
    'mkdir -p short; cp shorter.csv short/table.csv; cd short; exec "$0" "$@"'
refused 'checksum of the training examples' \
    'mkdir -p there; cp other.csv there/table.csv; cd there; exec "$0" "$@"'
sed '40,$s/^\(.\),/\1,9/' table.csv >other.csv # the test set is in a file of its own
run="--data csv:table.csv,label=label,test=test.csv --batch 8 --epochs 1"
cp table.csv test.csv
refused 'checksum of the test examples' \
    'mkdir -p test; cp table.csv test; cp other.csv test/test.csv; cd test; exec "$0" "$@"'
for seed in 1 2; do
    mkdir -p init-$seed
    "$dro" train $images --model mlp --seed $seed --out start-$seed >log 2>&1 || fail "weights to start from"
    cp start-$seed/weights.safetensors init-$seed/init.st
done
cp init-1/init.st .
run="$images --model mlp --init init.st"
refused 'checksum of the initial weights' 'cd init-2; exec "$0" "$@"'
run="$table --batch 8"
case $(uname -m) in x86_64 | amd64)
    refused 'it has instruction set=sse, rank 0 has .*: set DRO_CPU' 'export DRO_CPU=sse; exec "$0" "$@"' ;;
esac
refused 'it has resume=yes, rank 0 has resume=no' 'exec "$0" "$@" --resume'
refused 'it has model=auto, rank 0 has model=(by the data)' 'exec "$0" "$@" --model auto'
refused 'it has progressive=yes, rank 0 has progressive=no' 'exec "$0" train --data csv:table.csv,label=label --progressive'
cp "$dro" ./another && printf x >>another && cp "$(dirname "$dro")/libdro_mpi.so" .
refused 'build=' 'exec ./another "$@"'
# Batch norm needs an example in each slice: without this all ranks would wait for the one that has none.
too_small() { # ranks, a text, then the settings
    n=$1; text=$2; shift 2
    timeout 60 mpirun --oversubscribe -n "$n" "$dro" train $images --model glyphnet --threads 1 --out small "$@" \
        >log 2>&1 && fail "$n ranks, $*: not refused"
    grep -q "^dro: .*$text" log || fail "$n ranks, $*: no line says: $text"
    [ "$(grep -c '^dro: ' log)" -eq 1 ] || fail "$n ranks, $*: more than one line"
    [ ! -e small/config.json ] || fail "a refused run has left files"
}
too_small 4 'batch=6 with exact=yes.* 8 shards.*set batch=8 or more' --batch 6 --exact
too_small 2 'batch=1 on 2 ranks.*set batch=2 or more' --batch 1 --sync-norm
too_small 2 'batch=1 on 2 ranks.*set batch=2 or more' --batch 1
ranks 3 "$dro" train $images --set exact=yes --out wrong >log 2>&1 && fail "3 ranks with exact=yes"
grep -q 'exact=yes: expected 1, 2, 4 or 8 ranks, not 3' log || fail "exact=yes with 3 ranks"

ranks 2 "$dro" train --data csv:-,label=label --out wrong <table.csv >log 2>&1 && fail "a table from a pipe on 2 ranks"
grep -q '^dro: .*csv:-,label=label: a table from a pipe: of several ranks only rank 0 has standard input' log ||
    fail "a table from a pipe: no such line"
[ "$(grep -c '^dro: ' log)" -eq 1 ] || fail "a table from a pipe: more than one line"

env PMI_RANK=0 PMI_SIZE=4 "$dro" train $table --out wrong >log 2>&1 && fail "one process as one of four"
grep -q '^dro: started as one of 4 ranks, but MPI found 1: use srun --mpi=pmix' log || fail "one of four: no such line"
[ "$(grep -c '^dro: ' log)" -eq 1 ] || fail "one of four: more than one line"

ranks 2 "$dro" eval --weights recover-1/weights.safetensors --data synth:glyphs >log 2>&1 && fail "eval on 2 ranks"
grep -q 'dro eval runs in one process: leave out mpirun' log || fail "eval on 2 ranks: no such line"
[ "$(grep -c '^dro' log)" -eq 1 ] || fail "eval on 2 ranks: more than one line"

ranks 2 "$dro" bench ranks --rounds 2 --json >log 2>&1 || fail "bench ranks"
[ "$(grep -c '"seconds"' log)" -eq 3 ] && [ "$(grep -c '"ranks": 2' log)" -eq 1 ] || fail "bench ranks: not one table"

# ---- faults ----
long="$images --model resnet20 --batch 24 --set exact=yes --set checkpoint_every=0 --epochs 6 --threads 1"
"$dro" train $long --out right >log 2>&1 || fail "the run itself"
# A run that ends well had ended before the signal came: on a busy machine that happens.
fault() { # signal, rank, ranks to resume with
    for try in 1 2 3 4 5; do
        rm -rf broken
        mpirun --oversubscribe -n 2 "$dro" train $long --out broken >log 2>&1 &
        starter=$!
        until_file broken/previous.ckpt || fail "no checkpoint"
        victim=$(children $starter | sed -n "$(($2 + 1))p")
        kill -"$1" "$victim"
        ends_within $starter 10
        [ $status -eq 0 ] || break
    done
    [ $status -ne 0 ] || fail "$1 of rank $2: the run has ended well five times"
    gone "$victim" || fail "$1 of rank $2: it is left over"
    grep -q "^dro: rank $2 on [^:]*: $4" log || fail "$1 of rank $2: no line says $4"
    [ "$(grep -c '^dro: ' log)" -eq 1 ] || fail "$1 of rank $2: more than one line"
    if [ "$3" -eq 1 ]; then set -- "$dro"; else set -- ranks "$3" "$dro"; fi
    "$@" train --resume --out broken >log 2>&1 || fail "resume"
    cmp right/weights.safetensors broken/weights.safetensors || fail "resumed, it ends with other bytes"
    grep -q 'may differ in the last bits' log && fail "exact=yes, resumed with other ranks: a note that bytes may differ"
}
fault KILL 1 4 "its connection closed"
fault KILL 0 1 "its connection closed"
fault STOP 1 2 "no sign of life"
fault STOP 0 2 "no sign of life"

# compare: a rank whose runs are other processes ends too.
mpirun --oversubscribe -n 2 "$dro" compare $images --model resnet20 --epochs 500 --optimizers sgd,recover --jobs 1 --threads 1 \
    --set checkpoint_every=0 --out lost >log 2>&1 &
starter=$!
until_file lost/recover-seed1/last.ckpt || fail "compare: no checkpoint"
kill -STOP "$(children $starter | sed -n 2p)"
ends_within $starter 10
[ $status -ne 0 ] && grep -q '^dro: rank 1 on [^:]*: no sign of life.*run the same command again' log ||
    fail "compare: no line about the rank that was stopped"
[ "$(grep -c '^dro: ' log)" -eq 1 ] || fail "compare, rank 1 was stopped: more than one line"

# A signal to mpirun stops all ranks; the run is resumed from the last checkpoint.
rm -rf broken
mpirun --oversubscribe -n 2 "$dro" train $long --out broken >log 2>&1 &
starter=$!
until_file broken/previous.ckpt || fail "no checkpoint"
victims=$(children $starter)
kill -INT $starter
wait $starter
for victim in $victims; do
    gone "$victim" || fail "interrupted, a rank is left over"
done
"$dro" train --resume --out broken >log 2>&1 || fail "resume after an interrupt"
cmp right/weights.safetensors broken/weights.safetensors || fail "interrupted and resumed: other bytes"

# A run that stops while it is evaluated says after which step, and resumes there.
rm -rf broken
mpirun --oversubscribe -n 2 "$dro" train $images --model glyphnet --epochs 20 --eval-every 0.05 --threads 1 --out broken >log 2>&1 &
starter=$!
until_file broken/metrics.jsonl || fail "no evaluation"
# shellcheck disable=SC2046
kill -INT $(children $starter)
wait $starter
stopped=$(sed -n 's/^dro: stopped after step \([0-9]*\),.*/\1/p' log)
[ -n "$stopped" ] || fail "interrupted, no line says after which step"
"$dro" train --resume --max-time 1 --out broken >log 2>&1 || fail "resume after an evaluation"
grep -q 'made with .* ranks=2 and resumes with .* may differ in the last bits' log ||
    fail "resumed with another number of ranks: no note that the last bits may differ"
grep -q "^dro: resuming after step $stopped " log || fail "stopped after step $stopped and resumed after another one"

echo "all passed"
