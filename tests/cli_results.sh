#!/bin/sh
# docs/results.md, its figures and the table of README.md are what docs/results gives; `dro report --into` changes
# nothing else. $1: the program.
. "$(dirname "$0")/expected/check.sh"
expected=$(cd "$expected" && pwd)
top=$(cd "$(dirname "$0")/.." && pwd)
dro=$(cd "$(dirname "$dro")" && pwd)/$(basename "$dro")
cd "$work" || exit 1

# ---- the document as it is checked in ----
mkdir docs
# from places that are empty: each is written, or it does not stay as it was
awk '/^<!-- end -->$/ { inside = 0 } !inside; /^<!-- / && !/^<!-- end -->$/ { inside = 1 }' \
    "$top/docs/results.md" >docs/results.md
DRO=$dro sh "$top/experiments/collect.sh" write docs || fail "collect.sh write: status $?"
diff "$top/docs/results.md" docs/results.md || fail "docs/results.md is not what docs/results gives"
cp docs/results.md once.md
DRO=$dro sh "$top/experiments/collect.sh" write docs || fail "collect.sh write again: status $?"
cmp once.md docs/results.md || fail "collect.sh write again: results.md changes"
find docs/results -name '*.svg' | sort >figures
(cd "$top" && find docs/results -name '*.svg' | sort) | diff figures - || fail "not the figures that docs/results gives"
while read -r figure; do
    cmp "$figure" "$top/$figure" || fail "$figure is not what docs/results gives"
done <figures
sed -n 's/^!\[.*(\(.*\.svg\))$/docs\/\1/p' docs/results.md | sort | diff figures - ||
    fail "results.md does not show its figures"
# A result that is changed is seen.
cp -r "$top/docs/results" changed
cp -r docs other
first=changed/table2.txt
sed 's/"accuracy":0\.[0-9]/"accuracy":0.0/g' "$first" >one.txt && mv one.txt "$first"
DRO=$dro RESULTS=$work/changed sh "$top/experiments/collect.sh" write other
if cmp -s docs/results.md other/results.md; then fail "a changed $first changes nothing in results.md"; fi

# So is one that is missing: its place says how to make it.
rm changed/stability.txt changed/beyond.txt
DRO=$dro RESULTS=$work/changed sh "$top/experiments/collect.sh" write other
grep -qF 'Not run yet at full scale: `sh experiments/stability.sh --scale full --data DIR`.' other/results.md ||
    fail "results.md does not say that stability is not run"
if grep "lambda=0.5-eta=0.1\|beyond-0.1-per-class.svg" other/results.md; then fail "results that are not there"; fi
# A document without the place stays as it is.
grep -v "^<!-- beyond figures" docs/results.md >other/results.md
cp other/results.md without.md
DRO=$dro sh "$top/experiments/collect.sh" write other 2>err && fail "no error without a place"
has "no line <!-- beyond figures --> with a line <!-- end --> after it" err
cmp without.md other/results.md || fail "a document without the place is changed"

# ---- what the document says beside its tables ----
# README.md's table has the figures of Table 2.
awk -F ' *[|] *' '
    /^<!-- / && share { print "| " share " | " sgd " | " recover " | " recipe " |"; share = "" }
    /^<!-- table2 [0-9.]+ -->$/ { split($0, word, " "); share = word[3]; sgd = recover = recipe = "" }
    $2 == "sgd" { sgd = $4 }
    $2 == "recover" { recover = $4 }
    $2 == "recipe" { recipe = $4 }' docs/results.md >rows
[ -s rows ] || fail "no rows of Table 2"
sed -n '/^| share kept | SGD | RECOVER | `--recipe imbalanced` |$/,/^$/ s/^| [0-9].*/&/p' "$top/README.md" | diff rows - ||
    fail "README.md's table is not that of docs/results.md"
# A table with fewer seeds than the script's own number comes with its command.
awk -F ' *[|] *' '
    /^<!-- end -->$/ && runs { print script, runs }
    /^<!-- / { split($0, word, " "); script = word[2]; runs = 0 }
    $3 + 0 > runs { runs = $3 + 0 }' docs/results.md >seeds
[ -s seeds ] || fail "no tables"
while read -r script runs; do
    own=$(sed -n 's/^seeds="\([0-9]*\) .*/\1/p' "$top/experiments/$script.sh")
    [ "$runs" -ge "${own:-5}" ] || grep -q "experiments/$script.sh .*--seeds $runs\b" docs/results.md ||
        fail "results.md: $script has $runs seeds of ${own:-5} and no command with --seeds $runs"
done <seeds

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
{"step": 3, "examples": 300, "seconds": 3, "train": {"objective": 0.6}}
{"step": 4, "examples": 400, "seconds": 4, "train": {"objective": 0.5}}
J
done
printf 'before\n<!-- other -->\nkept\n<!-- end -->\n<!-- here -->\nold\n<!-- end -->\nafter\n' >doc.md
run 0 report runs --out page.html --into doc.md#here \
    --columns accuracy,rare_accuracy,frequent_accuracy,seconds,examples:0.45,seconds:1,examples:0.55:stay,seconds:0.45:stay
cp doc.md out
same report_into.txt
run 0 report runs --out page.html --into doc.md#here \
    --columns accuracy,rare_accuracy,frequent_accuracy,seconds,examples:0.45,seconds:1,examples:0.55:stay,seconds:0.45:stay
cmp -s doc.md "$expected/report_into.txt" || fail "a second time something changes"
run 1 report runs --out page.html --into doc.md#nowhere
has "no line <!-- nowhere -->" err
run 1 report runs --out page.html --into missing.md#here
run 2 report runs --out page.html --into doc.md
run 2 report runs --out page.html --into doc.md#here --columns accurcy
run 2 report runs --out page.html --into doc.md#here --columns accuracy:1
run 2 report runs --out page.html --into doc.md#here --columns examples:0.5:go
run 2 report runs --out page.html --into doc.md#here --columns accuracy:0.5:stay
run 2 report runs --out page.html --into doc.md#here --columns ,

finish
