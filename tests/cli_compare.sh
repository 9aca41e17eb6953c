#!/bin/sh
# dro compare: help, table and errors to the letter; the same weights and batches for all; stopped, killed
# and continued it ends with the same weights. $1: the program.
. "$(dirname "$0")/expected/check.sh"
expected=$(cd "$expected" && pwd)
dro=$(cd "$(dirname "$dro")" && pwd)/$(basename "$dro")
cd "$work" || exit 1

small="--data synth:glyphs,n=120,test=30,size=12,classes=3 --epochs 2 --batch 20 --threads 2"

run 0 compare --help
same help_compare.txt
silent err

# ---- data that changes between two calls ----
printf 'a,y\n1,p\n2,q\n3,p\n4,q\n5,q\n6,q\n' >some.csv
changed() { run 0 compare --data csv:some.csv,label=y --optimizers sgd,scent --epochs 2 --out changing; }
changed
! grep -q 'not the same' out || fail "data that has not changed is said to have"
rm -r changing/scent-seed1
printf '7,p\n' >>some.csv
changed
grep -q 'changing/scent-seed1: the training data is not the same: it has changed' out ||
    fail "data that has changed between runs of one comparison goes unnoticed"

# ---- success ----
run 0 compare $small --seeds 2 --out all --lambda 5 --set recover.eta=0.3
shape
same compare.txt
silent err
for file in plan.json report.html sgd-seed1/result.json sgd-seed2/weights.safetensors \
    recover-seed1/config.json recover-seed2/metrics.jsonl; do
    [ -s "all/$file" ] || fail "dro compare: no $file"
done
grep -q '"eta": 0.29999' all/recover-seed1/config.json || fail "--set recover.eta=0.3 is ignored"
if grep -q '"eta": 0.29999' all/sgd-seed1/config.json; then fail "--set recover.eta=0.3 is for sgd, too"; fi
grep -q '"report_lambda": 5' all/sgd-seed1/config.json || fail "F is not the same function for all"

# Again: nothing is run, and in parallel comes out what came out in order.
before=$(ls -l --time-style=full-iso all/*/* 2>/dev/null || ls -lT all/*/*)
run 0 compare $small --seeds 2 --out all --lambda 5 --set recover.eta=0.3 --jobs 2 --json
json
has '"earlier": true'
[ "$before" = "$(ls -l --time-style=full-iso all/*/* 2>/dev/null || ls -lT all/*/*)" ] ||
    fail "finished runs are run again"
has '"examples_per_s": null'
run 0 compare $small --threads 4 --seeds 2 --out two --lambda 5 --set recover.eta=0.3 --jobs 2 --json
json
grep -q '"examples_per_s": [1-9]' out || fail "--json: no speed of all runs together"
run 0 compare $small --threads 4 --seeds 2 --out three --jobs 2
grep -q '^speed   [1-9][0-9]* examples/s, all runs together' out || fail "no speed of all runs together"
for name in sgd-seed1 recover-seed1 sgd-seed2 recover-seed2; do
    cmp all/$name/weights.safetensors two/$name/weights.safetensors || fail "two runs of $name differ"
done
# The folder of a run of its own is not one of many.
run 1 compare $small --out all/sgd-seed1
[ "$(cat err)" = "dro: all/sgd-seed1 already holds a run of \`dro train\`: choose another folder with --out" ] ||
    fail "$what: $(cat err)"
[ ! -e all/sgd-seed1/plan.json ] || fail "$what: wrote into the run's folder"
# A seed more: only that is run.
run 0 compare $small --seeds 3 --out all --lambda 5 --set recover.eta=0.3 --json
[ "$(grep -c '"earlier": true' out)" -eq 4 ] || fail "more seeds: not four runs kept"

# Arms: one optimiser several times, each with settings of its own, known by the arm's name.
run 0 compare $small --seeds 2 --out arms --arm 'plain: sgd' --arm 'la: sgd loss=logit-adjusted stages=0.4,0.8' \
    --arm 'chosen: recover config=all/recover-seed1/config.json lambda=7'
for name in plain la chosen; do
    [ -s arms/$name-seed2/result.json ] || fail "no run of the arm $name"
    grep -q "^$name  *2 " out || fail "the arm $name is not in the table"
done
grep -q '"loss": "logit-adjusted"' arms/la-seed1/config.json || fail "an arm's loss is ignored"
grep -q '"stages": "0.4[0-9]*,0.8' arms/la-seed1/config.json || fail "an arm's list is ignored"
grep -q '"loss": "cross-entropy"' arms/plain-seed1/config.json || fail "an arm's loss is another's, too"
grep -q '"eta": 0.29999' arms/chosen-seed1/config.json || fail "config= of an arm is ignored"
grep -q '"lambda": 7' arms/chosen-seed1/config.json || fail "an arm's setting does not win over its config"
cmp all/sgd-seed1/weights.safetensors arms/plain-seed1/weights.safetensors || fail "an arm is not its optimiser"

# Without --data, the data is that of the arms' files, which must agree; other differing settings are reported.
glyphs=synth:glyphs,n=120,test=30,size=12,classes=3
run 0 train --data $glyphs --steps 1 --batch 40 --model mlp --out other --json
run 0 compare --arm 'a: sgd' --arm 'b: recover config=other/config.json' --data $glyphs --steps 1 --batch 20 \
    --seeds 1 --out model
grep -q '^note: the arms differ in model: a [a-z0-9-]*, b mlp$' out || { fail "$what: no word of the model"; cat out; }
[ "$(grep -c '^note: ' out)" -eq 1 ] || fail "$what: a note of what is the same"
run 0 compare --arm 'a: sgd batch=30' --arm 'b: recover config=other/config.json' --data $glyphs --model mlp \
    --steps 1 --seeds 1 --out batch --json
json
has '"note: the arms differ in batch: a 30, b 40"'
if grep -q "note: model" out; then fail "$what: a note of what is the same"; fi
run 0 compare --arm 'a: recover config=other/config.json' --arm 'b: recover config=other/config.json lambda=3' \
    --seeds 1 --out theirs
has "comparing a,b on $glyphs:"
if grep -q "^note: " out; then fail "$what: a note of what is the same"; fi

# The same weights and the same first batch: the loss before the first step is the same.
run 0 compare --data synth:glyphs,n=120,test=30,size=12,classes=3 --steps 1 --batch 20 --seeds 1 \
    --optimizers sgd,recover,absgd --out first --json
losses=$(sed -n 's/.*"log_u":[^,]*,"loss":\([^,]*\),.*/\1/p' first/*/metrics.jsonl | sort -u | wc -l)
[ "$(cat first/*/metrics.jsonl | wc -l)" -eq 3 ] || fail "not one evaluation of each"
[ "$losses" -eq 1 ] || fail "the first batches differ: $losses losses"

# Without --lambda F is still one function: that of the first robust one, with its default.
[ "$(grep -h -A1 '"F": {' first/*/result.json | grep -c '"lambda": 20')" -eq 3 ] ||
    fail "F is not the same function for all"
run 0 compare --data synth:glyphs,n=120,test=30,size=12,classes=3 --steps 1 --batch 20 --seeds 1 \
    --optimizers sgd,recover --set recover.lambda=3 --set recover.tilt=class --out tilted
has "F, on the training set: lambda 3 over classes"

# Also where a recipe or a file says it; one without a tilt is not robust.
aim() {
    want=$1
    shift
    rm -rf aim
    run 0 compare --data $glyphs --steps 1 --batch 20 --seeds 1 --out aim "$@"
    has "F, on the training set: $want"
}
echo '{"optimizer": "recover", "report_lambda": 3, "optimizer_settings": {"lambda": 7, "tilt": "class"}}' >seven.json
echo '{"optimizer": "recover", "report_lambda": 3}' >three.json
echo '{"report_lambda": 9, "report_tilt": "class"}' >nine.json
awk 'BEGIN { print "a,place,y"; for (i = 0; i < 90; i++) print sin(i) "," i % 2 "," (i % 3 ? "p" : "q") }' >table.csv
rm -rf aim
run 0 compare --data csv:table.csv,label=y --steps 2 --seeds 1 --recipe imbalanced --out aim
has "F, on the training set: lambda 20 over examples" # without it, on a table, 1
aim "lambda 7 over classes" --arm 'a: sgd' --arm 'b: recover config=seven.json'
aim "lambda 20 over examples" --arm 'a: sgd' --arm 'b: recover config=three.json'
aim "lambda 4 over examples" --arm 'a: recover tilt=none lambda=3' --arm 'b: recover lambda=4'
aim "the mean loss" --arm 'a: recover tilt=none lambda=3' --arm 'b: sgd'
aim "lambda 6 over classes" --arm 'a: recover tilt=none switch_step=0.5 switch_tilt=class switch_lambda=6' --arm 'b: sgd'
aim "lambda 9 over classes" --optimizers sgd,recover --lambda 2 --config nine.json
aim "lambda 8 over examples" --optimizers sgd,recover --lambda 2 --set report_lambda=8

# An objective by its name is F for all, also for those with the mean loss; with several of them each has its own.
aim "cvar:0.3 over examples" --arm 'a: sgd' --arm 'b: sgd objective=cvar:0.3' --arm 'c: recover objective=cvar:0.3'
aim "chi2:1 over classes" --arm 'a: sgd' --arm 'b: adamw objective=chi2:1 tilt=class'
own='not the same function in all runs: cvar:0.3 over examples, chi2:1 over examples, lambda 4 over examples, the mean loss'
aim "$own" --arm 'a: sgd objective=cvar:0.3' --arm 'b: sgd objective=chi2:1' --arm 'c: recover lambda=4' --arm 'd: sgd'
grep -q '"objective": "chi2:1"' aim/b-seed1/result.json || fail "$what: b is not scored by its own objective"
aim "cvar:0.5 over examples" --arm 'a: sgd objective=cvar:0.3' --arm 'b: sgd objective=chi2:1' \
    --set report_objective=cvar:0.5
run 2 compare --data $glyphs --out no --set report_objective=cvar:2
has "objective cvar:2: expected a number from 1e-12 to 1" err

run 0 compare --data $glyphs --steps 1 --batch 20 --seeds 1 --out named --arm 'x: sgd lr=0.25' --arm 'y: sgd eta=0.25'
grep -q '"eta": 0.25' named/x-seed1/config.json || fail "$what: lr of an arm is not eta"
cmp named/x-seed1/weights.safetensors named/y-seed1/weights.safetensors || fail "$what: lr is not eta"

# The loss and the regulariser of F are each run's own, and it says so where they differ.
aim "lambda 20 over examples, with each run's own loss and regulariser: not the same function in all runs" \
    --arm 'a: sgd' --arm 'b: recover loss=focal reg=l2 reg_strength=1e-3'
grep -q "each run&#39;s own loss and regulariser: not the same" aim/report.html || fail "$what: not on the page"
aim "lambda 20 over examples" --arm 'a: sgd' --arm 'b: recover weight_decay=0.1 focal_gamma=3'
grep -q "^F.* over examples$" out || { fail "$what: F is said to differ"; cat out; }

# Without a test set the figures are of the holdout, and it says so.
run 0 compare --data csv:table.csv,label=y,group=place,holdout=0.2 --steps 2 --batch 40 --eval-every 0.5 --seeds 1 --optimizers sgd --out untested
has "worst group %"
has "untested/sgd-seed1: there is no test set: figures are of the holdout set"
grep -q "^sgd  *1  *[0-9]" out || { fail "$what: no figures"; cat out; }
for text in "on the holdout set" "Measured on the holdout set" "Holdout accuracy over time" "Holdout loss" \
    "Holdout accuracy of each class" "Of the holdout examples"; do
    grep -q "$text" untested/report.html || fail "the page does not say: $text"
done
if grep -v "there is no test set" untested/report.html | grep -q "[Tt]est \(set\|accuracy\|loss\)"; then
    fail "the page speaks of a test set that is not there"
fi

# ---- stopped and killed ----
long="--data synth:glyphs,n=120,test=30,size=12,classes=3 --epochs 60 --batch 20 --threads 2 --jobs 2 --seeds 1"
run 0 compare $long --out whole --json
stop() {
    "$dro" compare $long --out cut >out 2>err &
    pid=$!
    while [ ! -s cut/recover-seed1/metrics.jsonl ] || [ ! -s cut/sgd-seed1/metrics.jsonl ]; do sleep 0.05; done
    kill -"$1" $pid
    wait $pid 2>/dev/null
    status=$?
}
for signal in TERM INT KILL; do
    rm -rf cut
    stop $signal
    what="compare stopped by $signal"
    if [ $signal != KILL ] && [ ! -s cut/report.html ]; then
        [ $status -eq 1 ] || fail "$what: status $status"
        has "of 2 runs are done: run the same command again to resume" err
        [ "$(wc -l <err)" -eq 1 ] || fail "$what: not one line"
    fi
    # At once: processes whose parent was killed stop by themselves, with a checkpoint, and are waited for.
    "$dro" compare $long --out cut --json >out 2>err || fail "$what, then restarted at once: $(cat err)"
    for name in sgd-seed1 recover-seed1; do
        cmp whole/$name/weights.safetensors cut/$name/weights.safetensors || fail "$what: other weights"
        for folder in whole cut; do
            sed -e 's/"seconds":[^,]*,//' -e 's/"wall":[^,]*,//' $folder/$name/metrics.jsonl >$folder.metrics
        done
        cmp whole.metrics cut.metrics || fail "$what: other metrics"
    done
done

# A run that another process still holds is waited for, with a line.
mkdir -p held/sgd-seed1
flock held/sgd-seed1 sleep 1 &
while flock -n held/sgd-seed1 true; do sleep 0.02; done
run 0 compare $small --seeds 1 --out held --json
[ "$(cat err)" = "dro: held/sgd-seed1: another process is training there: waiting for it" ] || fail "$what: $(cat err)"
wait

# ---- a disk that is full (a limit on the size of files stands for it): the same command goes on ----
(ulimit -f 16; exec "$dro" compare $small --seeds 1 --out full) >out 2>err
status=$?
what="compare with ulimit -f"
[ $status -eq 1 ] || fail "$what: status $status"
[ "$(wc -l <err)" -eq 1 ] || fail "$what: not one line"
has "dro: sgd-seed1: cannot write full/sgd-seed1/last.ckpt.tmp: File too large: raise \`ulimit -f\`, then run the same command again" err
run 0 compare $small --seeds 1 --out full --json
run 0 compare $small --seeds 1 --out roomy --json
cmp full/sgd-seed1/weights.safetensors roomy/sgd-seed1/weights.safetensors || fail "$what: other weights"

# ---- one that diverges does not stop the others ----
run 0 compare $small --seeds 1 --out far --set sgd.eta=1e6 --set sgd.warmup=0 --on-divergence stop
grep -q "^sgd-seed1: .*diverged at step" out || { fail "no word about a run that diverged"; cat out; }
grep -q "^sgd  *1 (1 diverged)  *-  *-  *-  *-  *-$" out || { fail "$what: figures of a run that diverged"; cat out; }
has "far/sgd-seed1: diverged: its figures are left out"
grep -q "<small> (1 diverged)</small>" far/report.html || fail "the page does not say that a run diverged"
run 0 compare $small --seeds 1 --out far --set sgd.eta=1e6 --set sgd.warmup=0 --on-divergence stop --json
json
has '"state": "diverged"'
has '"diverged": 1'
run 0 compare $small --seeds 1 --out gone --optimizers sgd --set sgd.eta=1e6 --set sgd.warmup=0 --on-divergence stop
grep -q "All runs diverged: there are no results." gone/report.html || fail "a page of nothing but divergence"
[ -s far/recover-seed1/result.json ] || fail "a run that diverged stopped the other"

# ---- errors ----
: >all.txt
wrong() {
    run "$@"
    silent out
    shift
    [ "$(wc -l <err)" -eq 1 ] || fail "$what: not one line"
    echo "\$ dro $*" >>all.txt
    cat err >>all.txt
}
wrong 2 compare --optimizers sgd,recovr
wrong 2 compare --set tau=x
wrong 2 compare --arm 'a: sgd' --arm 'b: sgd loss=fokal'
wrong 2 sweep --grid tau=1,x
wrong 2 compare --optimizers nonsense
wrong 2 compare --optimizers sgd,sgd
wrong 2 compare --optimizers sgd,,recover
wrong 2 compare --optimizers ''
wrong 2 compare --optimizers sgd --lambda 5
wrong 2 compare --lambda -5
wrong 2 compare --epochs many
wrong 2 compare --max-time soon
wrong 2 compare --seeds 0
wrong 2 compare --jobs many
wrong 2 compare --set lambda
wrong 2 compare --set lamda=1
wrong 2 compare --set cover.lambda=1
wrong 2 compare --set recover.lamda=1
wrong 2 compare --set recover.lambda=-1
wrong 2 compare --arm sgd
wrong 2 compare --arm 'a/b: sgd'
wrong 2 compare --arm 'a:'
wrong 2 compare --arm 'a: sgdd'
wrong 2 compare --arm 'a: sgd' --arm 'a: recover'
wrong 2 compare --arm 'a: sgd lambda=1'
wrong 2 compare --arm 'a: sgd eta'
wrong 2 compare --arm 'a: sgd eta=-1'
wrong 2 compare --arm 'a: sgd seed=3'
wrong 2 compare --arm 'a: sgd data=synth:glyphs'
wrong 2 compare --arm 'a: sgd' --arm 'b: recover config=other/config.json' --out early
wrong 2 compare --set recover.data=synth:glyphs,n=100 --out early
wrong 2 compare --reg l1 --out early
wrong 2 compare --arm 'a: sgd reg_strength=3' --out early
wrong 2 compare --data libsvm:-,features=3 --out early
wrong 2 compare --arm 'a: sgd' --optimizers sgd
wrong 2 compare --recipe soup
wrong 1 compare --arm 'a: sgd config=missing.json'
wrong 2 compare more
wrong 1 compare --json --out err
wrong 1 compare --json --out err/below
wrong 1 compare --json --config missing.json
wrong 1 compare --json --data synth:nothing --out none
wrong 1 compare --json --out all --epochs 2
cp all.txt out
same compare_errors.txt
[ ! -e early ] || fail "a mistake is reported after a folder was made"

finish
