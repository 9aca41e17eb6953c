#!/bin/sh
# docs/results.md and its figures are what docs/results gives; `dro report --into` changes nothing else. $1: the
# program.
. "$(dirname "$0")/expected/check.sh"
expected=$(cd "$expected" && pwd)
top=$(cd "$(dirname "$0")/.." && pwd)
dro=$(cd "$(dirname "$dro")" && pwd)/$(basename "$dro")
cd "$work" || exit 1

# ---- the document as it is checked in ----
mkdir docs
cp "$top/docs/results.md" docs/
DRO=$dro sh "$top/experiments/collect.sh" write docs || fail "collect.sh write: status $?"
diff "$top/docs/results.md" docs/results.md || fail "docs/results.md is not what docs/results gives"
find docs/results -name '*.svg' 2>/dev/null >figures
while read -r figure; do
    cmp "$figure" "$top/$figure" || fail "$figure is not what docs/results gives"
done <figures
for figure in $(sed -n 's/^!\[.*(\(.*\.svg\))$/\1/p' docs/results.md); do
    [ -s "$top/docs/$figure" ] || fail "docs/results.md shows $figure, which is not there"
done
# A result that is changed is seen.
cp -r "$top/docs/results" changed
cp -r docs other
first=$(find changed -name result.json | sort | head -1)
sed 's/"accuracy":0\.[0-9]/"accuracy":0.0/g' "$first" >one.json && mv one.json "$first"
DRO=$dro RESULTS=$work/changed sh "$top/experiments/collect.sh" write other
if cmp -s docs/results.md other/results.md; then fail "a changed $first changes nothing in results.md"; fi

# ---- a table in a document ----
for seed in 1 2; do
    mkdir -p runs/sgd-seed$seed runs/long-seed$seed
    cat >runs/sgd-seed$seed/result.json <<J
{"optimizer": "sgd", "seed": $seed, "seconds": 2.$seed, "test": {"accuracy": 0.5$seed, "per_class": [0.25, 0.5, 1]},
 "class_counts": [10, 49, 100], "settings": {"optimizer": "sgd", "seed": $seed, "optimizer_settings": {"eta": 0.1}}}
J
    cat >runs/long-seed$seed/result.json <<J
{"optimizer": "sgd", "seed": $seed, "test": {"accuracy": 0.6},
 "settings": {"optimizer": "sgd", "label": "long", "seed": $seed, "optimizer_settings": {"eta": 0.$seed}}}
J
    cat >runs/sgd-seed$seed/metrics.jsonl <<J
{"step": 1, "examples": 100, "seconds": 1, "train": {"objective": 0.9}}
{"step": 2, "examples": 200, "seconds": 2, "train": {"objective": 0.$((3 + seed))}}
J
done
printf 'before\n<!-- other -->\nkept\n<!-- end -->\n<!-- here -->\nold\n<!-- end -->\nafter\n' >doc.md
run 0 report runs --out page.html --into doc.md#here \
    --columns accuracy,rare_accuracy,frequent_accuracy,seconds,examples:0.45,seconds:1
cp doc.md out
same report_into.txt
run 0 report runs --out page.html --into doc.md#here \
    --columns accuracy,rare_accuracy,frequent_accuracy,seconds,examples:0.45,seconds:1
cmp -s doc.md "$expected/report_into.txt" || fail "a second time something changes"
run 1 report runs --out page.html --into doc.md#nowhere
has "no line <!-- nowhere -->" err
run 1 report runs --out page.html --into missing.md#here
run 2 report runs --out page.html --into doc.md
run 2 report runs --out page.html --into doc.md#here --columns accurcy
run 2 report runs --out page.html --into doc.md#here --columns accuracy:1
run 2 report runs --out page.html --into doc.md#here --columns ,

finish
