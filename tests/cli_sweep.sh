#!/bin/sh
# dro sweep: help, table and errors to the letter; what is chosen is chosen on the holdout; stopped it goes
# on. $1: the program.
. "$(dirname "$0")/expected/check.sh"
expected=$(cd "$expected" && pwd)
dro=$(cd "$(dirname "$dro")" && pwd)/$(basename "$dro")
cd "$work" || exit 1

small="--data synth:glyphs,n=200,test=30,size=12,classes=3 --epochs 2 --batch 20 --threads 2"

run 0 sweep --help
same help_sweep.txt
silent err

# ---- success: all combinations ----
run 0 sweep $small --grid lambda=1,20 --grid eta=0.1,1 --seeds 2 --out grid --jobs 2
grep -v "^lambda=.*-seed" out | sed 's/^\* /  /' >kept # they end, and one is chosen, in any order
mv kept out
shape
same sweep.txt
silent err
[ "$(ls -d grid/*-seed*/ | wc -l)" -eq 8 ] || fail "not 8 runs"
grep -q 'holdout=0.1' grid/lambda=1,eta=1-seed2/config.json || fail "no examples are set aside"
grep -q '"holdout"' grid/lambda=20,eta=0.1-seed1/result.json || fail "the holdout is not measured"

# The page: names as in the table, the figure that chose and no other in bold, and which one it was.
page=grid/report.html
for text in "Holdout, balanced accuracy" ">lambda=1 eta=0.1" ">lambda=20 eta=1"; do
    grep -qF -- "$text" $page || fail "no '$text' in the page"
done
[ "$(grep -c '(chosen)</th>.*class="best"' $page)" -eq 1 ] || fail "not one is marked in the page"
[ "$(grep -o 'class="best"' $page | grep -c .)" -eq 1 ] || fail "a figure of the test set is bold"

# The chosen one has the largest mean on the holdout, whatever the test set says.
run 0 sweep $small --grid lambda=1,20 --grid eta=0.1,1 --seeds 2 --out grid --json
json
[ "$(grep -c '"earlier": true' out)" -eq 8 ] || fail "finished runs are run again"
[ "$(grep -c '"chosen": true' out)" -eq 1 ] || fail "not one is chosen"
if command -v python3 >/dev/null 2>&1; then
    python3 - <<'END' || fail "the chosen one is not the best on the holdout"
import json
rows = json.load(open("out"))["settings"]
best = max(r["holdout"]["mean"] for r in rows)
chosen = [r for r in rows if r["chosen"]][0]
assert chosen["holdout"]["mean"] == best
config = json.load(open("grid/best.json"))["optimizer_settings"]
for name, value in chosen["settings"].items():
    assert abs(config[name] - float(value)) < 1e-9
END
fi
run 0 train --config grid/best.json --out again --json
chosen=$(sed -n 's/^ *"eta": \(.*\),$/\1/p' grid/best.json)
grep -qF "\"eta\": $chosen" again/config.json || fail "best.json does not run again"
cmp -s again/weights.safetensors grid/"$(
    for folder in grid/*-seed1; do
        cmp -s "$folder/weights.safetensors" again/weights.safetensors && basename "$folder"
    done
)"/weights.safetensors || fail "best.json does not give the weights of the best run"

# ---- success: random, a measure of which less is better, and two of three done before ----
run 0 sweep $small --random 2 --grid lambda=1..100 --grid eta=0.05,0.1 --by loss --out random --json
run 0 sweep $small --random 3 --grid lambda=1..100 --grid eta=0.05,0.1 --by loss --out random --json
[ "$(grep -c '"earlier": true' out)" -eq 2 ] || fail "random: not two runs kept"
run 0 sweep --data synth:glyphs,n=200,test=30,size=12,classes=3,holdout=0.2 --steps 3 --batch 20 \
    --grid lambda=5 --out own --json
grep -q 'holdout=0.2",' own/lambda=5-seed1/config.json || fail "the holdout of the SPEC is not kept"

run 0 sweep $small --reg l2 --grid reg_strength=0,1e-4 --out strengths --json # 0 is one of them

# ---- by objective: one F for all settings, that of the first robust one; weights that stand still are as good ----
standing="--data synth:glyphs,n=200,test=30,size=12,classes=3 --model mlp:8 --steps 5 --batch 20 --threads 2 --lr 0"
run 0 sweep $standing --grid lambda=0.3,5,100 --by objective --out aims
has "objective is F, of every setting: lambda 0.3 over examples"
[ "$(grep -c "^[* ] *lambda=" out)" -eq 3 ] || fail "$what: not three settings"
[ "$(sed -n 's/^[* ] *lambda=[^ ]*  *\([^ ]*\) .*/\1/p' out | sort -u | wc -l)" -eq 1 ] ||
    { fail "$what: F is not the same function for all"; cat out; }
run 0 sweep $standing --grid tilt=none,class,example --by objective --out tilts --json
json
has '"F": "lambda 20 over classes"'
[ "$(grep -h '"over"' tilts/*/result.json | sort -u)" = '    "over": "classes"' ] || fail "$what: F over several things"
run 0 sweep $standing --grid lambda=0.3,5 --by objective --set report_lambda=5 --out told
has "objective is F, of every setting: lambda 5 over examples"
run 0 sweep $standing --grid loss=focal --grid lambda=1,2 --by objective --out one --json # one loss for all
run 0 sweep $standing --grid lambda=0.3,5 --out plain # by another measure each has its own
if grep -q "report_lambda\|report_like" plain/plan.json; then fail "$what: F is made the same"; fi

run 2 sweep $standing --optimizer sgd --grid objective=cvar:0.3,chi2:1 --by objective --out several
has "name one with --set report_objective=NAME:X" err
run 0 sweep $standing --optimizer sgd --grid objective=cvar:0.3,chi2:1 --by objective --set report_objective=kl:2 --out several
has "objective is F, of every setting: lambda 2 over examples"
run 0 sweep $standing --optimizer sgd --grid objective=cvar:0.3,chi2:1 --out their-own
[ "$(grep -h '"objective": "c' their-own/*seed1/result.json | sort -u | wc -l)" -ge 2 ] || fail "$what: F is not each one's own"
run 0 sweep $standing --optimizer sgd --objective cvar:0.3 --grid eta=0,1e-9 --by objective --out cvars
has "objective is F, of every setting: cvar:0.3 over examples"

# ---- none is chosen: a status of its own only if every setting diverged ----
run 3 sweep $small --optimizer sgd --grid eta=1e7,1e8 --out far
has "every setting diverged, so none was chosen" err
[ ! -e far/best.json ] || fail "$what: chose one that diverged"
run 3 sweep $small --optimizer sgd --grid eta=1e7,1e8 --out far --json
has '"state": "diverged"'
run 0 sweep $small --optimizer sgd --grid eta=1e7,0.1 --out near
grep -q '"eta": 0.1' near/best.json || fail "$what: not the one that did not diverge"
run 1 sweep $small --grid lambda=5 --by auroc --out blind # of more than two classes there is none
has "no setting has a auroc on the holdout, so none was chosen" err

# ---- stopped ----
long="--data synth:glyphs,n=200,test=30,size=12,classes=3 --epochs 40 --batch 20 --threads 2"
"$dro" sweep $long --grid lambda=2,30 --out cut >out 2>err &
pid=$!
while [ ! -s cut/lambda=2-seed1/metrics.jsonl ]; do sleep 0.05; done
kill -TERM $pid
wait $pid
[ $? -eq 1 ] || fail "a sweep that was stopped: not status 1"
has "run the same command again to resume" err
run 0 sweep $long --grid lambda=2,30 --out cut --json

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
wrong 2 sweep
wrong 2 sweep --optimizer recovr --grid lambda=1,2
wrong 2 sweep --optimizer sgd --grid lambda=1,2
wrong 2 sweep --grid lambda
wrong 2 sweep --grid lambda=
wrong 2 sweep --grid lambda=1,,2
wrong 2 sweep --grid lambda=1,many
wrong 2 sweep --grid lambda=1..9
wrong 2 sweep --grid lambda=9..1 --random 3
wrong 2 sweep --grid lambda=1 --grid lambda=2
wrong 2 sweep --grid seed=1,2
wrong 2 sweep --grid epochs=1,-2
wrong 2 sweep --grid reg_strength=0,1e-4 --out early
wrong 2 sweep --grid lambda=1,2 --data csv:-,label=y --out early
wrong 2 sweep --grid lambda=1 --by accurcy
wrong 2 sweep --grid lambda=1 --by seconds
wrong 2 sweep --grid lambda=1 --random 0
wrong 2 sweep --grid loss=cross-entropy,focal --by objective --out early
wrong 2 sweep --grid focal_gamma=1..3 --random 2 --by loss --out early
wrong 2 sweep --grid recipe=none,imbalanced --by objective --out early
wrong 2 sweep --reg l2 --grid lambda=1,2 --grid reg_strength=0,1e-4 --by objective --out early
wrong 2 sweep --grid group_prior=uniform,data --by objective --out early
wrong 1 sweep --grid lambda=1,2 --json --data synth:nothing --out none
wrong 1 sweep --grid lambda=2,30 --json --out cut
cp all.txt out
same sweep_errors.txt
[ ! -e early ] || fail "a mistake is reported after a folder was made"

finish
