#!/bin/sh
# dro predict and dro eval on tables: whatever a file holds of the training file's columns, rows and classes, weights of
# a stream do as well as those of a whole file. $1: the program.
. "$(dirname "$0")/expected/check.sh"
dro=$(cd "$(dirname "$dro")" && pwd)/$(basename "$dro")
cd "$work" || exit 1

# Checks in Python, where there is one.
python() {
    ! command -v python3 >/dev/null 2>&1 || python3 -c "$1"
}

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
    run 0 predict --weights $w --data csv:order.csv --out p.csv
    cmp all.csv p.csv || fail "$kind: other predictions where columns stand in another order"
    run 0 predict --weights $w --data csv:row.csv --out p.csv
    head -n 2 all.csv | cmp - p.csv || fail "$kind: another prediction of one row"
    "$dro" predict --weights $w --data csv:- <row.csv | cmp - p.csv || fail "$kind: another one from stdin"
    run 0 predict --weights $w --data csv:yes.csv --out p.csv
    [ "$(wc -l <p.csv)" -eq "$(wc -l <yes.csv)" ] || fail "$kind: not all rows of one class"

    # The figures of one class are those of that class among the others.
    run 0 eval --weights $w --data csv:table.csv --json
    mv out whole.json
    run 0 eval --weights $w --data csv:yes.csv --json
    python 'import json, math
a, b = json.load(open("whole.json")), json.load(open("out"))
assert a["classes"] == b["classes"] == ["no", "yes"]
assert a["per_class"][1] == b["per_class"][1] == b["accuracy"] and b["confusion"][0] == [0, 0]
assert a["confusion"][1] == b["confusion"][1]
p = [float(l.split(",")[4]) for l in open("p.csv").readlines()[1:]]
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

# ---- probabilities ----
# Classes are drawn with known log-odds: the predicted ones, of whichever loss, must follow them with a slope of 1.
awk 'BEGIN { srand(7); print "x,z,y"
    for (i = 0; i < 4000; i++) { x = 2 * rand() - 1; z = 2 * rand() - 1
        print x "," z "," (rand() < 1 / (1 + exp(-(2 * x + z + 0.5))) ? "b" : "a") } }' >odds.csv
for loss in cross-entropy logistic squared; do
    run 0 train --data csv:odds.csv,label=y --optimizer sgd --lr 0.05 --loss $loss --epochs 12 --batch 50 --threads 2 \
        --out $loss --json
    run 0 predict --weights $loss/weights.safetensors --data csv:odds.csv --out p.csv
    run 0 eval --weights $loss/weights.safetensors --data csv:odds.csv --json
    python 'import json, math
rows = [l.split(",") for l in open("odds.csv").read().split()[1:]]
said = [[float(v) for v in l.split(",")[3:]] for l in open("p.csv").read().split()[1:]]
assert all(abs(sum(p) - 1) < 2e-6 and min(p) >= 0 for p in said)
odds = [2 * float(r[0]) + float(r[1]) + 0.5 for r in rows]
mine = [math.log(max(p[1], 1e-4) / max(p[0], 1e-4)) for p in said]
m, n = sum(odds) / len(odds), sum(mine) / len(mine)
slope = sum((o - m) * (q - n) for o, q in zip(odds, mine)) / sum((o - m) ** 2 for o in odds)
bins = [[0, 0] for _ in range(15)]
for r, p in zip(rows, said):
    k = min(max(math.ceil(max(p) * 15) - 1, 0), 14)
    bins[k][0] += (r[2] == "b") == (p[1] > p[0])
    bins[k][1] += max(p)
error = sum(abs(h - p) for h, p in bins) / len(rows)
told = json.load(open("out"))["calibration_error"]
# the squared loss is linear in the probability, not in the log-odds
low, high = (0.9, 1.1) if "'$loss'" != "squared" else (0.8, 1.5)
assert low < slope < high and told < 0.04 and abs(told - error) < 1e-3, (slope, told, error)' ||
        fail "$loss: probabilities that are not those of the loss"
done
# One output that tells two classes apart.
run 0 train --data libsvm:rows,features=5000 --optimizer sgd --lr 0.05 --loss squared --epochs 5 --threads 2 --out signs --json
run 0 predict --weights signs/weights.safetensors --data libsvm:rows --out p.csv
run 0 predict --weights signs/weights.safetensors --data libsvm:rows --logits --out z.csv
python 'for l, z in zip(open("p.csv").read().split()[1:], open("z.csv").read().split()[1:]):
    p, z = [float(v) for v in l.split(",")[3:]], float(z.split(",")[4])
    assert abs(p[1] - min(max((1 + z) / 2, 0), 1)) < 2e-6 and abs(sum(p) - 1) < 2e-6' ||
    fail "squared on sparse rows: other probabilities than (1 + z)/2"

# ---- the prior ----
# A fifth of the rows are of class b. Whatever takes that out of the outputs, probabilities have it; and the calibration
# error follows them.
awk 'BEGIN { srand(11); print "x,z,y"
    for (i = 0; i < 4000; i++) { x = 2 * rand() - 1; z = 2 * rand() - 1
        print x "," z "," (rand() < 1 / (1 + exp(-(2 * x + z - 1.6))) ? "b" : "a") } }' >rare.csv
share=$(awk -F, '$3 == "b" { n++ } END { print n / (NR - 1) }' rare.csv)
mean_b() { # of a file of predictions, against a share
    awk -F, -v of="$1" 'NR > 1 { n++; s += $5 } END { exit !(s / n - of < 0.02 && of - s / n < 0.02) }' "$2"
}
for way in "--optimizer sgd --lr 0.05 --loss logit-adjusted --epochs 12" "--recipe imbalanced" \
    "--optimizer recover --tilt class --lambda 1 --epochs 12"; do
    rm -rf prior
    run 0 train --data csv:rare.csv,label=y $way --threads 2 --out prior --json
    run 0 predict --weights prior/weights.safetensors --data csv:rare.csv --out p.csv
    has "prior of the probabilities: the classes' shares of the training data; the predicted class has" err
    mean_b "$share" p.csv || fail "$way: probabilities without the prior of the training data"
    run 0 predict --weights prior/weights.safetensors --data csv:rare.csv --prior uniform --out u.csv
    has "prior of the probabilities: all classes alike" err
    mean_b 0.45 u.csv && mean_b "$share" u.csv && fail "$way: the uniform prior is not one"
    printf 'a,0.78\nb,0.22\n' >shares
    run 0 predict --weights prior/weights.safetensors --data csv:rare.csv --prior shares --out f.csv
    has "prior of the probabilities: the shares of shares" err
    mean_b "$share" f.csv || fail "$way: probabilities without the prior of the file"
    # with --prior the class is the most probable one
    awk -F, 'NR > 1 && ($5 > $4) != ($2 == "b") { wrong = 1 } END { exit wrong }' f.csv || fail "$way: the class"
    # eval counts what predict says
    for said in p:train u:uniform f:shares; do
        prior=${said#*:}
        [ "$prior" = train ] && prior= || prior="--prior $prior"
        run 0 eval --weights prior/weights.safetensors --data csv:rare.csv $prior --json
        python 'import json, math
rows = [l.split(",") for l in open("rare.csv").read().split()[1:]]
said = [l.split(",") for l in open("'${said%:*}'.csv").read().split()[1:]]
bins, right = [[0, 0] for _ in range(15)], 0
for r, p in zip(rows, said):
    k = min(max(math.ceil(float(p[2]) * 15) - 1, 0), 14)
    bins[k][0] += r[2] == p[1]
    bins[k][1] += float(p[2])
    right += r[2] == p[1]
told = json.load(open("out"))
error = sum(abs(h - p) for h, p in bins) / len(rows)
assert abs(told["accuracy"] * len(rows) - right) < 0.5, (told["accuracy"], right / len(rows))
assert abs(told["calibration_error"] - error) < 1e-3, (told["calibration_error"], error)' || fail "$way: $said: other figures of eval"
    done
done
run 1 predict --weights prior/weights.safetensors --data csv:rare.csv --prior no-file
has "prior no-file: expected train, uniform, or a file with a line NAME,SHARE for each class" err
printf 'a,1\n' >shares
run 1 predict --weights prior/weights.safetensors --data csv:rare.csv --prior shares
has "shares: has no line for the class 'b'" err
printf 'a,1\nc,1\n' >shares
run 1 predict --weights prior/weights.safetensors --data csv:rare.csv --prior shares
has "shares: line 2: the model has no class 'c'" err
printf 'a,0\n' >shares
run 1 predict --weights prior/weights.safetensors --data csv:rare.csv --prior shares
has "shares: line 1: expected NAME,SHARE with a share above 0" err

# ---- the threshold of a rare class ----
w=plain/weights.safetensors
run 0 train --data csv:rare.csv,label=y,holdout=0.3 --threads 2 --out plain --json
cp $w before.safetensors
run 0 eval --weights $w --data csv:rare.csv,label=y,holdout=0.3 --split holdout --json
mv out without.json
for rule in f1 recall:0.8 cost:5:1 0.3; do
    run 0 eval --weights $w --data csv:rare.csv,label=y,holdout=0.3 --split holdout --threshold $rule
    has "threshold: class 'b' from a probability of 0." err
    has "F1 0." err
    has "on the holdout; kept in the weights" err
    run 0 eval --weights $w --data csv:rare.csv,label=y,holdout=0.3 --split holdout --json
    has '"rule": "'$rule'"'
    mv out with.json
    run 0 predict --weights $w --data csv:rare.csv,label=y,holdout=0.3 --split holdout --out p.csv
    has "threshold: class 'b' from a probability of 0." err
    has "($rule), of the weights" err
    # the best by its rule of all thresholds; predict and eval take the class from it on
    python 'import json
rule, told, before = "'$rule'", json.load(open("with.json")), json.load(open("without.json"))
at = told["threshold"]["probability"]
rows = [l.split(",") for l in open("rare.csv").read().split()[1:]]
said = [l.split(",") for l in open("p.csv").read().split()[1:]]
p = [(float(s[4]), rows[int(s[0])][2] == "b", s[1]) for s in said]
assert all((q >= at) == (c == "b") for q, _, c in p if abs(q - at) > 2e-6), at
def counts(t):
    hits = sum(b and q >= t for q, b, _ in p)
    alarms = sum(not b and q >= t for q, b, _ in p)
    return hits, alarms, sum(b for _, b, _ in p) - hits
def value(t):
    hits, alarms, missed = counts(t)
    if rule == "f1":
        return 2 * hits / (2 * hits + alarms + missed)
    if rule == "cost:5:1":
        return -5 * missed - alarms
    return -abs(t - 0.3) if rule == "0.3" else -hits if hits / (hits + missed) >= 0.8 else -1e9
best = max(value(q) for q, _, _ in p)
assert value(at) >= best - (2 if rule == "cost:5:1" else 2e-3) or rule == "0.3" and abs(at - 0.3) < 1e-9, (value(at), best)
hits, alarms, missed = counts(at)
c = told["confusion"]
assert abs(c[1][1] - hits) <= 1 and abs(c[0][1] - alarms) <= 1, (c, hits, alarms)
assert told["auroc"] == before["auroc"]' || fail "--threshold $rule"
done
run 0 eval --weights $w --data csv:rare.csv --threshold recall:0.9 --class a
has "class 'a' from" err
has "the threshold was chosen by the examples that the figures below are of" err
run 0 predict --weights $w --data csv:rare.csv --prior uniform --out p.csv
! grep -q "threshold" err || fail "--prior: the threshold of another prior"
run 0 eval --weights $w --data csv:rare.csv --threshold none
run 0 predict --weights $w --data csv:rare.csv --out p.csv
run 0 predict --weights before.safetensors --data csv:rare.csv --out before.csv
! grep -q dro.threshold $w && cmp -s p.csv before.csv || fail "--threshold none: the weights are not what they were"
run 1 eval --weights $w --data csv:rare.csv --threshold best
has "threshold best: expected f1, recall:R, cost:A:B (of a missed example and of a false alarm), a probability, or none" err
run 1 eval --weights $w --data csv:rare.csv --threshold f1 --class c
has "threshold: the model has no class 'c'" err
run 2 eval --weights $w --data csv:rare.csv --threshold f1 --prior uniform
has "leave out --prior" err

# ---- what eval calls the rows ----
run 0 eval --weights whole/weights.safetensors --data csv:table.csv
grep -q "^data  *accuracy" out || fail "eval: rows that nobody called training are called so"
run 0 eval --weights whole/weights.safetensors --data csv:table.csv --json
has '"split": "data"'
run 0 eval --weights whole/weights.safetensors --data csv:table.csv --split train
grep -q "^train  *accuracy" out || fail "eval: --split train is not called so"
run 0 eval --weights whole/weights.safetensors --data csv:table.csv,test=order.csv
grep -q "^test  *accuracy" out || fail "eval: a test part is not called so"

# ---- images by name: any number of them ----
run 0 train --data synth:glyphs,n=60,test=8,size=12,classes=3 --steps 2 --batch 10 --out glyphs --threads 1
awk 'BEGIN { print "P3 12 12 255"; for (i = 0; i < 144; i++) print i, 255 - i, 7 }' >glyph.ppm
run 0 predict --weights glyphs/weights.safetensors $(yes glyph.ppm | head -n 5000) --out p.csv
[ "$(wc -l <p.csv)" = 5001 ] || fail "$(wc -l <p.csv) lines for 5000 images"
run 1 predict --weights glyphs/weights.safetensors -
has "-: expected the file of an image, not standard input" err
odd=$(printf 'odd\nname.ppm')
cp glyph.ppm "$odd"
run 1 predict --weights glyphs/weights.safetensors glyph.ppm "$odd"
has 'odd\x0aname.ppm: rename it: no line break may be in an image' err

# ---- the wrong way round ----
run 2 predict --weights whole/weights.safetensors row.csv
has "row.csv is no image: expected --data csv:row.csv" err
printf 'P3 1 1 255 1 2 3\n' >image.ppm
run 1 predict --weights whole/weights.safetensors image.ppm
has "the weights are for rows of 5 features, the data has images" err
run 1 eval --weights whole/weights.safetensors --data synth:glyphs
has "the weights are for rows of 5 features, the data has images" err
run 1 predict --weights whole/weights.safetensors --data libsvm:rows
has "the weights are for rows of 5 features, the data has rows of 9 features" err
run 1 predict --weights svm/weights.safetensors --data csv:row.csv
has "csv: the weights were not trained on csv and know no columns" err
run 1 predict --weights whole/result.json --data csv:row.csv
has "whole/result.json: not a safetensors file" err
run 0 predict --weights whole/weights.safetensors --data row.csv # what it holds is clear
run 1 predict --weights whole/weights.safetensors --data no.csv
has "no.csv: there is no such file" err
run 1 data some/rows.csv.gz,label=y
has "some/rows.csv.gz: there is no such file" err
run 1 data npz:d.npz
has "no format 'npz' (a SPEC is format:path): expected npy:d.npz" err
run 1 data nothing:d
has "no format 'nothing' (a SPEC is format:path); expected one of cifar10" err

# A file with inconsistent metadata.
for kind in whole signs; do
    LC_ALL=C sed 's/"dro.shape":"\([0-9]*\),1,1,2"/"dro.shape":"\1,1,1,3"/' $kind/weights.safetensors >odd.safetensors
    run 1 predict --weights odd.safetensors --data csv:row.csv
    has "odd.safetensors: its metadata has 3 outputs and the names of 2 classes: expected one output each" err
done

finish
