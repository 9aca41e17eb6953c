#!/bin/sh
# A table that somebody brings along: what is said about its columns, its classes and the wrong options. $1: the program.
. "$(dirname "$0")/expected/check.sh"
dro=$(cd "$(dirname "$dro")" && pwd)/$(basename "$dro")
cd "$work" || exit 1

# An id, a price with a decimal comma, a city with an umlaut, and the label.
awk 'BEGIN { srand(3); print "id,price,city,bought"
    for (i = 0; i < 400; i++) { a = rand()
        printf "%d,\"%d,%d\",%s,%s\n", i, a * 5, 5 * rand(), (rand() < 0.5 ? "K\303\266ln" : "Bonn"), (a + rand() > 1 ? "yes" : "no") } }' \
    >people.csv

# ---- the label ----
run 1 train --data people.csv --out none
has "which column is the label? Expected label=COLUMN, one of id price city bought" err
run 0 train --data people.csv --label bought --out short --threads 2
has "note: column 'price': 25 different texts in 400 rows, such as '2,1': categorical, with 26 features; decimal=comma" err
run 0 train --data csv:people.csv,label=bought --out long --threads 2
cmp -s short/weights.safetensors long/weights.safetensors || fail "--label: other weights than with label="
grep -q '"data": "people.csv,label=bought"' short/config.json || fail "--label is not in config.json"
run 0 train --resume --out short --label bought --threads 2
run 2 train --data people.csv,label=city --label bought --out none
has "--label bought, but --data says label=city: give one of them" err
run 0 data people.csv --label bought
has "rows of numbers"
run 0 compare --data people.csv --label bought --optimizers sgd --seeds 1 --epochs 1 --out both --threads 1
# an older file calls the run's name its label
echo '{"data": "csv:people.csv,label=bought", "label": "mine", "epochs": 1, "optimizer": "sgd"}' >older.json
run 0 train --config older.json --out older --threads 2
grep -q '"name": "mine"' older/config.json || fail "the name of an older file is lost"

# ---- columns ----
run 0 train --data people.csv,decimal=comma,drop=id --label bought --out numeric --threads 2 --json
[ ! -s err ] || ! grep -q "note: column" err || fail "decimal=comma and drop=: a note on the columns"
sed 's/Bonn/Mainz/' people.csv >unseen.csv
run 0 predict --weights numeric/weights.safetensors --data unseen.csv --out p.csv
has "column 'city': $(grep -c Bonn people.csv) of 400 rows have a value that training did not have" err
run 0 eval --weights numeric/weights.safetensors --data unseen.csv
has "column 'city': $(grep -c Bonn people.csv) of 400 rows have a value that training did not have" err
run 0 data people.csv,decimal=comma,categorical=id --label bought
has "5 features, 2 classes"

# ---- models, optimisers and weights that do not fit ----
run 2 train --data people.csv --label bought --optimizer adam
has "no optimiser 'adam': did you mean 'adamw'?" err
run 2 train --data people.csv --label bought --model resnet19
has "there is no model 'resnet19': did you mean 'resnet18'?" err
run 1 train --data people.csv,decimal=comma,drop=id --label bought --model resnet20 --out none
has "model resnet20 is for images, the data is a table of 4 features: expected linear or mlp" err
printf 'PK\003\004 and what torch.save writes behind it' >model.pth
run 1 train --data people.csv --label bought --init model.pth --out none
has "a PyTorch file, not safetensors: convert it with \`python3 -c 'import sys, torch; from safetensors.torch import" err
has "\"weights.safetensors\")' model.pth\`" err
printf '\200\002\212\012 an older one, a pickle' >model.pt
run 1 eval --weights model.pt --data people.csv
has "a PyTorch file, not safetensors" err

# ---- letters of more than one byte do not shift a table ----
{ echo "a,y"; for i in 1 2 3 4 5 6; do echo "$i,Köln"; echo "$i,Bonn"; echo "$i,東京"; done; } >names.csv
run 0 data names.csv --label y
has "    0  Bonn      6     0"
has "    1  Köln      6     0"
has "    2  東京      6     0"

# ---- the report of classes whose names are numbers: rows and columns have the same; no range of one ----
awk 'BEGIN { srand(3); print "a,b,y"
    for (i = 0; i < 900; i++) { k = int(15 * rand()); print k + 3 * rand() "," k * k + 30 * rand() "," 1980 + k } }' >years.csv
run 0 train --data years.csv,holdout=0.3 --label y --out years --threads 2
run 0 report years --out years.html
sed -n '/<figure id="confusion-1-lbfgs"/,/<\/figure>/p' years.html >figure
for year in 1980 1984 1990; do
    [ "$(grep -o ">$year<" figure | wc -l)" -ge 2 ] || fail "the confusion matrix has $year only once"
done
awk 'BEGIN { srand(3); print "a,b,y"
    for (i = 0; i < 1940; i++) { k = i % 97; print k + 3 * rand() "," k * k + 30 * rand() "," k } }' >many.csv
run 0 train --data many.csv,holdout=0.3 --label y --out many --threads 2 --steps 3
run 0 report many --out many.html
! grep -qE '#?97–97' many.html || fail "a range of one class"
grep -q '#94–96' many.html || fail "no ranges of classes"

# ---- real-valued targets: figures in the target's own unit, those of the predictions ----
awk 'BEGIN { srand(3); print "a,b,y"
    for (i = 0; i < 600; i++) { a = rand(); b = rand(); print a "," b "," 1000 + 100 * a * a + 20 * b + 5 * rand() } }' >real.csv
run 0 train --data real.csv,target=real,holdout=0.3 --label y --out real --threads 2 --json
w=real/weights.safetensors
run 0 predict --weights $w --data real.csv,target=real,holdout=0.3,label=y --split holdout --out p.csv
run 0 eval --weights $w --data real.csv,target=real,holdout=0.3,label=y --split holdout
awk -F, 'FNR == NR { y[FNR - 2] = $3; next }
    FNR > 1 { e = $2 - y[$1]; n++; s += e * e; a += e < 0 ? -e : e; m += y[$1]; q += y[$1] * y[$1] }
    END { printf "RMSE %.4g  MAE %.4g  R2 %.2f\n", sqrt(s / n), a / n, 1 - s / (q - m * m / n) }' real.csv p.csv >own
told=$(sed -n 's/.*RMSE \([0-9.]*\)  MAE \([0-9.]*\)  R2 \([0-9.]*\).*/\1 \2 \3/p' out |
    awk '{ printf "RMSE %.4g  MAE %.4g  R2 %.2f\n", $1, $2, $3 }')
[ "$told" = "$(cat own)" ] || fail "eval says $told, the predictions $(cat own)"
run 0 train --data real.csv,target=real,holdout=0.3 --label y --model mlp --best rmse --epochs 3 --out best --threads 2
run 1 train --data people.csv,holdout=0.3 --label bought --best r2 --out none
has "best=r2 requires a real-valued target" err
run 0 report real --out real.html
grep -q RMSE real.html || fail "the report has no RMSE"
run 0 train --data real.csv --label y --out alone --threads 2
has "RMSE" out
run 0 report real --out real.html
grep -q "RMSE [0-9.]*, R2" real.html || fail "the list of runs has no RMSE"
run 1 train --data real.csv --label y --recipe imbalanced --out none
has "recipes are for classes, the label is a real-valued target" err

# ---- a target that is the same everywhere, small or too large for float's digits to tell its values apart ----
for value in 5 1700000000000; do
    awk -v value=$value 'BEGIN { print "a,y"; for (i = 0; i < 60; i++) print i % 7 "," value + i % 3 }' >same.csv
    [ $value != 5 ] || sed -i '2,$ s/,.*/,5/' same.csv
    run 0 train --data same.csv,target=real --label y --out same-$value --threads 2
    run 0 predict --weights same-$value/weights.safetensors --data same.csv,target=real,label=y --out p.csv
    awk -F, -v value=$value 'NR > 1 { d = $2 / value - 1; wrong += d > 1e-6 || d < -1e-6 } END { exit wrong > 0 }' p.csv ||
        fail "a target of $value everywhere: $(sed -n 2p p.csv)"
done

# ---- groups: a table at the end, and in the report ----
awk 'BEGIN { srand(2); print "a,g,y"
    for (i = 0; i < 300; i++) { a = rand(); print a "," (rand() < 0.3 ? "north" : "south") "," (a > 0.5 ? "p" : "q") } }' >groups.csv
run 0 train --data groups.csv,group=g,holdout=0.3 --label y --out groups --threads 2
has "north" out
run 0 report groups --out groups.html
grep -q 'figure id="per-group"' groups.html && grep -q '>north<' groups.html || fail "the report has no table by group"

# ---- the errors of a stream's real-valued targets are in their own unit ----
awk 'BEGIN { srand(9); print "a,y"; for (i = 0; i < 2000; i++) { a = rand(); print a "," 1000 * a + 100 * rand() } }' >metres.csv
run 0 train --progressive --data metres.csv,target=real --label y --threads 1 --out metres --json
rmse=$(sed -n 's/.*"rmse": \([0-9.e-]*\).*/\1/p' out | head -n 1)
awk "BEGIN { exit !($rmse > 20 && $rmse < 300) }" || fail "RMSE of a stream: $rmse"

# ---- hints, and the model that a holdout prefers ----
made() { # KIND [ROWS]: three columns and a label that follows from them
    awk -v kind="$1" -v rows="${2:-2000}" 'BEGIN { srand(5); print "a,b,c,y"
        for (i = 0; i < rows; i++) { a = 2 * rand() - 1; b = 2 * rand() - 1; c = 2 * rand() - 1
            s = kind == "product" ? 8 * a * b : kind == "rare" ? 3 * a + 2 * b - 3 : 3 * a + b
            print a "," b "," c "," (rand() < 1 / (1 + exp(-s)) ? "p" : "n") } }'
}
for kind in product rare linear; do made $kind >$kind.csv; done
run 0 train --data linear.csv --label y --threads 2 --out linear
! grep -q hint err || fail "a hint where none applies"
for optimizer in lbfgs recover; do
    run 0 train --data linear.csv --label y --threads 2 --optimizer $optimizer --lambda 0.001 --out small
    has "because lambda is only 0.001: --lambda 34.7 is the default" err
    rm -r small
done
run 0 train --data linear.csv --label y --threads 2 --lambda 2 --out two
! grep -q hint err || fail "a hint at a lambda that does no harm"
run 0 train --data rare.csv --label y --threads 2 --out rare
has "hint: class 'p' has " err
has "accuracy: --recipe imbalanced gives all classes the same weight" err
[ "$(grep -c hint err)" = 1 ] || fail "more than one hint"
run 0 train --data rare.csv --label y --threads 2 --recipe imbalanced --out recipe
! grep -q hint err || fail "a hint at what was done"
run 0 train --data product.csv --label y --threads 2 --out product
has "hint: squares or products of columns explain what the linear model leaves: --model auto also tries an mlp" err
made product 12000 >rows.csv # more rows than an evaluation of the training set takes
run 0 train --data rows.csv --label y --threads 2 --optimizer recover --epochs 2 --out rows
has "hint: squares or products of columns" err
run 0 train --data linear.csv --label y --threads 2 --set classifier=cosine --epochs 2 --out cosine
has "recover minimises F" out # lbfgs, the default of linear models, does not take it
run 0 train --data product.csv --label y --threads 2 --model auto --out auto
has "model auto: mlp (AUROC on the holdout: linear 0." err
! grep -q hint err || fail "a hint at what was done"
grep -q '"model": "mlp"' auto/config.json || fail "config.json does not have the model that was chosen"
run 0 train --data linear.csv --label y --threads 2 --model auto --out auto2
has "model auto: linear (AUROC on the holdout: linear 0." err

# Nothing to learn from.
printf 'a,y\n1,p\n2,q\n3,p\n4,q\n' >nothing.csv
run 1 train --data csv:nothing.csv,label=y,drop=a --steps 1 --out nothing
grep -q 'no column is left to learn from' err || fail "$what: $(cat err)"

finish
