#!/bin/sh
# Every script of experiments/ works, at a scale of seconds, and does not run again what is finished. $1: the
# program. tabular.sh needs data and scikit-learn: `make test-peers` has the peers.
. "$(dirname "$0")/expected/check.sh"
top=$(cd "$(dirname "$0")/.." && pwd)
DRO=$(cd "$(dirname "$dro")" && pwd)/$(basename "$dro") RATIOS=0.1 OUT=$work/out JOBS=2
export DRO RATIOS OUT JOBS

for script in "$top"/experiments/*.sh; do
    name=$(basename "$script" .sh)
    case $name in lib | collect | tabular) continue ;; esac
    sh "$script" --scale tiny >"$work/log" 2>&1 || { fail "$name.sh: status $?"; tail -5 "$work/log"; }
    [ -n "$(find "$OUT/$name" -name result.json 2>/dev/null)" ] || fail "$name.sh: no results"
done
for script in table2 fig12; do
    before=$(find "$OUT/$script" -name result.json -exec ls -l --time-style=full-iso {} +)
    sh "$top/experiments/$script.sh" --scale tiny >"$work/log" 2>&1 || fail "$script.sh again: status $?"
    [ "$before" = "$(find "$OUT/$script" -name result.json -exec ls -l --time-style=full-iso {} +)" ] ||
        fail "$script.sh runs again what is finished"
done
[ "$(find "$OUT/table2/0.1/final" -name result.json | wc -l)" -eq 5 ] || fail "table2.sh: not five arms"
grep -q '"train":{"objective":' "$OUT/fig12/cifar10/final/recover-seed1/metrics.jsonl" ||
    fail "fig12.sh: no F over the training set"
OUT=$work/kept sh "$top/experiments/fig12.sh" --scale tiny --tuned "$top/docs/results/fig12.txt" \
    --arms "ascpg scent-default" >"$work/log" 2>&1 || { fail "fig12.sh --tuned: status $?"; tail -5 "$work/log"; }
grep -q '"eta": 0.533' "$work/kept/fig12/cifar10/final/ascpg-seed1/config.json" ||
    fail "fig12.sh --tuned: not the setting that was chosen"

# Mistakes are found before anything runs, each with a line that names it; a result that cannot be read is not passed over.
mistake() { # PART COMMAND...: status 2 and PART on the last line
    part=$1
    shift
    "$@" >"$work/log" 2>&1
    [ $? -eq 2 ] && tail -n 1 "$work/log" | grep -qF -- "$part" || { fail "$*: no '$part'"; cat "$work/log"; }
}
awk 'BEGIN { srand(5); print "a,b,y"; for (i = 0; i < 400; i++) { x = rand(); print x "," rand() "," (x > 0.5 ? "p" : "q") } }' \
    >"$work/t.csv"
sh "$top/experiments/flipped.sh" --scale tiny --on table --data "csv:$work/t.csv,label=y" --arms sgd >"$work/log" 2>&1 ||
    { fail "flipped.sh --on table: status $?"; tail -5 "$work/log"; }
grep -q "^sgd kl:1: 8 of 400 labels are wrong" "$work/log" || fail "flipped.sh --on table: no shares of a table"
mistake "unknown option '--scale=tiny'" sh "$top/experiments/table2.sh" --scale=tiny
mistake "unknown option 'extra'" sh "$top/experiments/table2.sh" extra
mistake "--scale needs a value" sh "$top/experiments/table2.sh" --scale
mistake "without spaces" sh "$top/experiments/table2.sh" --scale tiny --out "$work/a b"
mistake "RATIOS 'x'" env RATIOS="0.1 x" sh "$top/experiments/table2.sh" --scale tiny
mistake "was trained for 1 epochs: PRETRAIN=1" env PRETRAIN=3 sh "$top/experiments/fig3_finetune.sh" --scale tiny
mistake "unknown option '--tuned'" sh "$top/experiments/table2.sh" --scale tiny --tuned x
mistake "--tuned x: cannot be read" sh "$top/experiments/fig12.sh" --scale tiny --tuned x
mistake "which experiments?" sh "$top/experiments/collect.sh" copy
one=$OUT/table2/0.1/final/recipe-seed1/result.json
cp "$one" "$work/whole"
echo '{"half":' >"$one"
sh "$top/experiments/table2.sh" --scale tiny >"$work/log" 2>&1 && fail "table2.sh, a broken result.json: no error"
tail -n 1 "$work/log" | grep -q "recipe-seed1/result.json cannot be read: remove that folder" ||
    { fail "table2.sh, a broken result.json"; cat "$work/log"; }
cp "$work/whole" "$one"

# A method of which every setting diverges is left out; any other error of its sweep is the script's.
sweeps() { # STATUS: a program that is dro, but whose sweep ends with STATUS
    printf '#!/bin/sh\n[ "$1" != sweep ] || exit %s\nexec "%s" "$@"\n' "$1" "$DRO" >"$work/sweeps"
    chmod +x "$work/sweeps"
}
sweeps 3
DRO=$work/sweeps sh "$top/experiments/fig12.sh" --scale tiny >"$work/log" 2>&1 || fail "fig12.sh, all diverged: status $?"
[ "$(grep -c 'every setting diverged: it is left out' "$work/log")" -eq 8 ] || fail "fig12.sh: not all are left out"
sweeps 1
DRO=$work/sweeps sh "$top/experiments/fig12.sh" --scale tiny >"$work/log" 2>&1
[ $? -eq 1 ] || fail "fig12.sh, an error of dro sweep: not status 1"
for wrong in "--backend nonsense" "--precision foo"; do
    sh "$top/experiments/fig12.sh" --scale tiny $wrong >"$work/log" 2>&1 && fail "fig12.sh $wrong: no error"
    if grep "left out" "$work/log"; then fail "fig12.sh $wrong: taken for divergence"; fi
done

# What the holdout chose from is kept beside what it chose.
if command -v python3 >/dev/null 2>&1; then
    python3 "$top/experiments/collect.py" "$OUT/table2" "$work/kept" || fail "collect.py: status $?"
    (cd "$work/kept/0.1/tune-sgd" && python3 - <<'END') || fail "scores.json is not what best.json was chosen from"
import json
best, scores = (json.load(open(name + ".json")) for name in ("best", "scores"))
by = best["sweep"]["by"]
assert len(scores) == 6 and all(sorted(s) == sorted(["eta", "weight_decay", by]) for s in scores), scores
top = max(scores, key=lambda s: s[by])
assert top[by] == best["sweep"]["holdout"], (top, best["sweep"])
END
    # From runs to the document: a table and four figures of fig12, nothing of what was not run.
    RESULTS=$work/results sh "$top/experiments/collect.sh" copy fig12 || fail "collect.sh copy: status $?"
    mkdir "$work/docs" && cp "$top/docs/results.md" "$work/docs"
    RESULTS=$work/results sh "$top/experiments/collect.sh" write "$work/docs" || fail "collect.sh write: status $?"
    grep -q "^| recover-fixed | 1 |" "$work/docs/results.md" || fail "collect.sh write: no table of fig12"
    [ "$(grep -c '^!\[.*(results/fig12-cifar10-final-.*\.svg)$' "$work/docs/results.md")" -eq 4 ] ||
        fail "collect.sh write: not four figures of fig12"
    [ "$(find "$work/docs" -name '*.svg' -size +0 | wc -l)" -eq 4 ] || fail "collect.sh write: not the figures that it shows"
    "$dro" sweep --data synth:glyphs,n=200,test=30,size=12,classes=3 --epochs 1 --batch 20 --optimizer sgd \
        --grid eta=1e8,0.1 --out "$work/far/tune-sgd" >"$work/log" 2>&1 || fail "sweep: status $?"
    python3 "$top/experiments/collect.py" "$work/far" "$work/kept" || fail "collect.py: status $?"
    grep -q '{"eta":100000000,"balanced_accuracy":"diverged"}' "$work/kept/tune-sgd/scores.json" ||
        fail "scores.json does not say that a run diverged"
    rm -r "$work/far/tune-sgd"/*-seed1
    python3 "$top/experiments/collect.py" "$work/far" "$work/gone" || fail "collect.py without runs: status $?"
    [ ! -e "$work/gone/tune-sgd/scores.json" ] || fail "scores.json of runs that are gone"
fi

# Seeds: a script's own number, or the one that is asked for.
for script in stability first recipe fig12; do
    arm=sgd
    [ $script != stability ] || arm=lambda=5-eta=1
    sh "$top/experiments/$script.sh" --scale tiny --arms $arm --seeds 2 --out "$work/two" >"$work/log" 2>&1 ||
        fail "$script.sh --seeds 2: status $?"
    [ "$(find "$work/two/$script" -path "*/$arm-seed2/result.json" ! -path '*/tune-*' | wc -l)" -eq 1 ] ||
        fail "$script.sh --seeds 2: no second seed"
done

# Only some arms; more of them later, in the same folder.
OUT=$work/some
sh "$top/experiments/table2.sh" --scale tiny --arms "sgd" >"$work/log" 2>&1 || fail "--arms: status $?"
[ "$(ls -d "$OUT"/table2/0.1/final/*-seed1 | wc -l)" -eq 1 ] || fail "--arms: not one arm"
sh "$top/experiments/table2.sh" --scale tiny --arms "sgd recover" >"$work/log" 2>&1 || fail "--arms later: status $?"
[ -s "$OUT/table2/0.1/final/recover-seed1/result.json" ] || fail "--arms later: no result"

# An unknown arm, alone or with a known one, is refused before anything is run.
sh "$top/experiments/table2.sh" --scale tiny --arms "sgd recpie" --out "$work/typo" >"$work/log" 2>&1
[ $? -eq 2 ] || fail "--arms with a mistake: not status 2"
tail -1 "$work/log" | grep -q "no arm 'recpie', only sgd recover sgd+recipe recover-default recipe$" || fail "--arms: not the arms there are"
[ ! -e "$work/typo" ] || fail "--arms with a mistake: something was run"

refused() { # SCRIPT arguments...
    script=$1
    shift
    sh "$top/experiments/$script.sh" "$@" >"$work/log" 2>&1
    [ $? -eq 2 ] || fail "$script.sh $*: not status 2"
    [ "$(wc -l <"$work/log")" -eq 1 ] || { fail "$script.sh $*: not one line"; cat "$work/log"; }
}
for wrong in "--scale huge" "--scale full" "--nonsense 1" "--scale" "--seeds x" "--seeds 0" "--seeds 1000" "--jobs 0" \
    "--jobs -1" "--arms nothing" "--on cifar10"; do
    refused table2 --scale tiny $wrong
done
refused fig12 --scale tiny --on mars
refused fig3_finetune --scale tiny --on mars
refused fig12 --scale full --data . --on mars

for script in "$top"/experiments/*.sh; do
    case $script in */lib.sh | */collect.sh) continue ;; esac
    sh "$script" --help >"$work/log" 2>&1 || fail "$script --help: status $?"
    [ "# $(head -1 "$work/log")" = "$(sed -n 2p "$script")" ] || fail "$script --help: not its own words"
    grep -q '^  --seeds N' "$work/log" || fail "$script --help: no options"
done
sh "$top/experiments/fig12.sh" --help | grep -q '^  --on cifar10' || fail "fig12.sh --help: no --on"

# Without scikit-learn nothing is begun.
PYTHON=false sh "$top/experiments/tabular.sh" --scale tiny --data "$work" --out "$work/tables" >"$work/log" 2>&1
[ $? -eq 1 ] && [ "$(wc -l <"$work/log")" -eq 1 ] && [ ! -e "$work/tables" ] ||
    { fail "tabular.sh without scikit-learn: not one line before anything"; cat "$work/log"; }

finish
