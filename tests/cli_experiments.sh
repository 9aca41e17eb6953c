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
[ "$(find "$OUT/table2/0.1/final" -name result.json | wc -l)" -eq 4 ] || fail "table2.sh: not four arms"
grep -q '"train":{"objective":' "$OUT/fig12/cifar10/final/recover-seed1/metrics.jsonl" ||
    fail "fig12.sh: no F over the training set"

# Only some arms; more of them later, in the same folder.
OUT=$work/some
sh "$top/experiments/table2.sh" --scale tiny --arms "sgd recipe" >"$work/log" 2>&1 || fail "--arms: status $?"
[ "$(ls -d "$OUT"/table2/0.1/final/*-seed1 | wc -l)" -eq 2 ] || fail "--arms: not two arms"
sh "$top/experiments/table2.sh" --scale tiny --arms "recover" >"$work/log" 2>&1 || fail "--arms later: status $?"
[ -s "$OUT/table2/0.1/final/recover-seed1/result.json" ] || fail "--arms later: no result"

for wrong in "--scale huge" "--scale full" "--nonsense 1" "--scale"; do
    if sh "$top/experiments/table2.sh" $wrong >"$work/log" 2>&1; then fail "table2.sh $wrong: no error"; fi
    [ "$(wc -l <"$work/log")" -eq 1 ] || { fail "table2.sh $wrong: not one line"; cat "$work/log"; }
done

finish
