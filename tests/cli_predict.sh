#!/bin/sh
# dro predict and dro eval on tables: whatever a file holds of the training file's columns, rows and classes, weights of
# a stream do as well as those of a whole file. $1: the program.
. "$(dirname "$0")/expected/check.sh"
dro=$(cd "$(dirname "$dro")" && pwd)/$(basename "$dro")
cd "$work" || exit 1

# ---- tables ----
awk 'BEGIN { srand(3); print "age,job,y"
    for (i = 0; i < 400; i++) { a = rand(); j = int(3 * rand()); u = rand()
        print a * 50 "," (j == 0 ? "cook" : j == 1 ? "clerk" : "smith") "," (a + j / 4 + u > 1.2 ? "yes" : "no") } }' >table.csv
cut -d, -f1,2 table.csv >unlabelled.csv
head -n 2 unlabelled.csv >row.csv
{ head -n 1 table.csv; grep yes table.csv; } >yes.csv
awk -F, '{ print $3 "," $2 "," $1 }' table.csv >order.csv
sed '2,$s/$/./' table.csv >dots.csv

run 0 train --data csv:table.csv,label=y --epochs 3 --batch 20 --threads 2 --out whole --json
run 0 train --data csv:table.csv,label=y --progressive --threads 2 --out stream --json
for kind in whole stream; do
    w=$kind/weights.safetensors
    run 0 predict --weights $w --data csv:table.csv --out all.csv
    run 0 predict --weights $w --data csv:unlabelled.csv --out p.csv
    cmp all.csv p.csv || fail "$kind: other predictions without labels"
    run 0 predict --weights $w --data csv:row.csv --out p.csv
    head -n 2 all.csv | cmp - p.csv || fail "$kind: another prediction of one row"
    "$dro" predict --weights $w --data csv:- <row.csv | cmp - p.csv || fail "$kind: another one from stdin"
    run 0 predict --weights $w --data csv:yes.csv --out p.csv
    [ "$(wc -l <p.csv)" -eq "$(wc -l <yes.csv)" ] || fail "$kind: not all rows of one class"

    # The figures of one class are those of that class among the others.
    run 0 eval --weights $w --data csv:table.csv --json
    mv out whole.json
    run 0 eval --weights $w --data csv:yes.csv --json
    python3 -c 'import json
a, b = json.load(open("whole.json")), json.load(open("out"))
assert a["classes"] == b["classes"] == ["no", "yes"]
assert a["per_class"][1] == b["per_class"][1] == b["accuracy"] and b["confusion"][0] == [0, 0]
assert a["confusion"][1] == b["confusion"][1]
p = [float(l.split(",")[4]) for l in open("p.csv").readlines()[1:]]
import math
loss = -sum(map(math.log, p)) / len(p)
assert abs(loss - b["loss"]) < 1e-3, (loss, b["loss"])' || fail "$kind: wrong figures of one class"

    # The census files: a test file's labels end in a dot.
    run 0 eval --weights $w --data csv:dots.csv,label=y --json
    cmp out whole.json || fail "$kind: other figures where labels end in a dot"
    sed 's/yes\.$/maybe./' dots.csv >other.csv
    run 1 eval --weights $w --data csv:other.csv,label=y
    has "the data has a class 'maybe.', which the model does not know" err
done

# ---- libsvm ----
awk 'BEGIN { srand(5); for (i = 0; i < 300; i++) { a = rand(); print (a > 0.4 ? "+1" : "-1") " 1:1 2:" a " 9:" rand() } }' >rows
run 0 train --data libsvm:rows,features=9 --progressive --threads 2 --out svm --json
run 0 predict --weights svm/weights.safetensors --data libsvm:rows --out all.csv
head -n 1 rows >first
run 0 predict --weights svm/weights.safetensors --data libsvm:first --out p.csv
head -n 2 all.csv | cmp - p.csv || fail "libsvm: another prediction of one row"
grep '^+1' rows >plus
run 0 eval --weights svm/weights.safetensors --data libsvm:plus --json
has '"-1",'

finish
