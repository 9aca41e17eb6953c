#!/bin/sh
# What must not happen: files of somebody else that a run overwrites, data that changes under a run, messages of many
# lines, pipes that are waited for, and real-valued targets that are mostly 0 taken for a run that diverges. $1: the program.
. "$(dirname "$0")/expected/check.sh"
dro=$(cd "$(dirname "$dro")" && pwd)/$(basename "$dro")
cd "$work" || exit 1
data="--data synth:glyphs,n=200,test=20,size=8,classes=3 --model mlp:8"
one_line() { [ "$(wc -l <err)" -eq 1 ] || fail "$what: not one line: $(cat err)"; }

# Somebody's weights stay, and names that only look like those of temporary files.
run 0 train $data --epochs 1 --out first
mkdir init
cp first/weights.safetensors init/
echo mine >init/notes.txt
run 1 train $data --epochs 1 --init init/weights.safetensors --out init
grep -q 'init has a file weights.safetensors and no config.json' err || fail "$what: $(cat err)"
cmp first/weights.safetensors init/weights.safetensors || fail "the user's weights are gone"
mkdir kept
touch kept/last.ckpt.notes.tmp kept/weights.safetensors.old.tmp kept/last.ckpt.tmp kept/weights.safetensors.12-3.tmp
run 0 train $data --epochs 1 --out kept
[ -e kept/last.ckpt.notes.tmp ] && [ -e kept/weights.safetensors.old.tmp ] || fail "files of somebody else are removed"
[ ! -e kept/last.ckpt.tmp ] && [ ! -e kept/weights.safetensors.12-3.tmp ] || fail "what a killed run left is there"

# Another table under the same name.
table() { # FACTOR
    awk -v f="$1" 'BEGIN { srand(3); print "a,b,y"; for (i = 0; i < 300; i++) { x = rand(); print x * f "," rand() "," (x > 0.5 ? "p" : "q") } }'
}
table 1 >t.csv
run 0 train --data csv:t.csv,label=y --epochs 2 --out changed
table 2 >t.csv
run 1 train --resume --out changed
grep -q 'changed: the training data has changed since the run was started' err || fail "$what: $(cat err)"
table 1 >t.csv
run 0 train --resume --out changed

# A run's folder in which a file of its own leads elsewhere: nothing is written there, and nobody waits.
rm changed/result.json changed/weights.safetensors
mv changed/previous.ckpt changed/last.ckpt
echo mine >mine.txt
for name in metrics.jsonl events.out.tfevents.dro last.ckpt weights.safetensors result.json; do
    for kind in link pipe; do
        rm -rf odd-run
        cp -r changed odd-run
        rm -f odd-run/$name
        if [ $kind = link ]; then ln -s ../mine.txt odd-run/$name; else mkfifo odd-run/$name; fi
        timeout 30 "$dro" train --resume --out odd-run >out 2>err
        [ $? -eq 1 ] && grep -q "odd-run/$name is not a regular file" err || fail "$name is a $kind: $(cat err)"
        [ "$(cat mine.txt)" = mine ] || fail "$name is a $kind: the file of somebody else is written to"
    done
done
mkdir lines
echo mine >lines/metrics.jsonl
run 1 train $data --epochs 1 --out lines
[ "$(cat lines/metrics.jsonl)" = mine ] || fail "the user's metrics.jsonl is gone"

# Pipes and devices in a run's folder.
mkfifo first/last.ckpt.pipe
rm first/metrics.jsonl
mkfifo first/metrics.jsonl
timeout 20 "$dro" report first --out page.html >out 2>err
[ $? -ne 124 ] || fail "report waits for a pipe"
rm first/metrics.jsonl
ln -s /dev/zero first/metrics.jsonl
timeout 20 "$dro" report first --out page.html >out 2>err
[ $? -ne 124 ] || fail "report reads a device to its end"
touch file
run 1 train $data --epochs 1 --out file
grep -q 'file is not a folder' err || fail "$what: $(cat err)"

# Pipes that nobody writes to, in the place of every file; one with a writer is read.
mkfifo pipe
count=0
for spec in csv:pipe,label=y npy:pipe,labels=pipe list:pipe,root=. inat:pipe,root=. libsvm:pipe csv:t.csv,label=y,test=pipe; do
    count=$((count + 1))
    (timeout 30 "$dro" data "$spec" >/dev/null 2>pipe.err.$count; echo $? >pipe.rc.$count) &
done
wait
for k in $(seq $count); do
    [ "$(cat pipe.rc.$k)" -eq 1 ] || fail "data from a pipe, case $k: status $(cat pipe.rc.$k)"
    grep -q 'pipe: is a pipe without a writer' pipe.err.$k || fail "data from a pipe, case $k: $(cat pipe.err.$k)"
done
timeout 30 "$dro" train --config pipe --out piped >out 2>err
[ $? -eq 1 ] || fail "--config pipe: not status 1"
grep -q 'is a pipe or a device: expected a file' err || fail "--config pipe: $(cat err)"
cat t.csv >pipe &
run 0 data csv:pipe,label=y
wait

mkdir plan
mkfifo plan/plan.json
timeout 60 "$dro" compare --data csv:t.csv,label=y --steps 1 --seeds 1 --optimizers sgd --threads 1 --out plan >out 2>err
[ $? -eq 0 ] || fail "compare, plan.json is a pipe: $(cat err)"
[ -s plan/plan.json ] && [ ! -p plan/plan.json ] || fail "compare, plan.json is a pipe: it is no file then"
timeout 60 "$dro" report plan --into pipe#results >out 2>err
[ $? -eq 1 ] || fail "report --into pipe: not status 1"
timeout 60 "$dro" predict --weights plan/sgd-seed1/weights.safetensors --data csv:t.csv,label=y --prior pipe >out 2>err
[ $? -eq 1 ] || fail "predict --prior pipe: not status 1: $(cat err)"

# A truncated settings file does not mean the default settings.
: >nothing.json
echo '{}' >empty.json
run 1 train --config nothing.json --out cut
grep -q "nothing.json: is empty: expected settings" err || fail "$what: $(cat err)"
run 2 train --out -
grep -q "train: --out -: expected a folder" err || fail "$what: $(cat err)"
run 2 report changed --out -
has 'report: --out -: expected a file, not standard output' err
run 2 report changed --svg -
has 'report: --svg -: expected a folder, not standard output' err
run 2 export --weights changed/weights.safetensors --onnx -
has 'export: --onnx -: expected a file, not standard output' err
run 2 man --out -
run 2 explain --weights none --data none --objective kl:1 --out page.htm
has 'explain: --out page.htm: expected a name that ends in' err
run 0 completion bash --out -
has '-F _dro dro'
[ ! -e ./- ] || fail "something is in a file named -"
cp out kept.txt
run 2 completion fish --out kept.txt
[ -s kept.txt ] || fail "$what: the file is emptied"
"$dro" train --config - --out cut </dev/null >out 2>err
[ $? -eq 1 ] && grep -q 'standard input: is empty: expected settings' err || fail "--config - of nothing: $(cat err)"
run 1 train --config empty.json --out cut
grep -q "empty.json: has no settings" err || fail "$what: $(cat err)"
[ ! -e cut ] || fail "$what: trained something"

# Values of the wrong kind and duplicate names are refused.
refused() { # VALUES TEXT
    echo "{\"data\": \"csv:t.csv,label=y\", \"steps\": 1, $1}" >odd.json
    run 1 train --config odd.json --out cut
    grep -qF "$2" err || fail "$1: $(cat err)"
}
refused '"seed": null' 'odd.json: seed: expected a text, a number'
refused '"seed": {"a": 1}' 'odd.json: seed: expected a text, a number'
refused '"stages": ["0.5", 0.75]' 'odd.json: stages: expected a text, a number, true, false or a list of numbers'
refused '"optimizer_settings": 5' 'odd.json: optimizer_settings: expected an object of settings'
refused '"optimizer_settings": {"eta": [[1]]}' 'odd.json: eta: expected'
refused '"optimizer": 1' 'odd.json: optimizer: expected a text'
refused '"threads": 1e9' 'odd.json: threads: expected a whole number from 0 to 4096'
refused '"threads": 4097' 'odd.json: threads: expected a whole number from 0 to 4096'
refused '"seed": 2, "seed": 3' 'duplicate object key'
echo '{"data": "csv:t.csv,label=y", "steps": 2, "optimizer": "sgd", "seed": 5, "stages": []}' >odd.json
run 0 train --config odd.json --out odd # an empty list is not the value before it
grep -q '"stages": ""' odd/config.json || fail "$what: $(grep stages odd/config.json)"
[ ! -e cut ] || fail "$what: trained something"

# Predictions: whole or not at all, no formula for a spreadsheet, no escape character for a terminal.
awk 'BEGIN { srand(3); print "a,y"; for (i = 0; i < 900; i++) { x = rand(); print x "," (x > 0.5 ? "=1+1" : "\033[31mred") } }' >names.csv
run 0 train --data csv:names.csv,label=y --epochs 2 --out names
run 0 predict --weights names/weights.safetensors --data csv:names.csv,label=y
grep -q "^[0-9]*,'=1+1,0" out && grep -q '^[0-9]*,\\x1b\[31mred,0' out || fail "$what: $(head -3 out)"
! grep -q "$(printf '\033')" out || fail "$what: an escape character is printed"
run 0 train --data csv:names.csv,label=a,target=real --epochs 1 --out real
printf '1 1:1\n-1 1:2\n1 1:3\n-1 1:1\n' >signs.svm
run 0 train --data libsvm:signs.svm --lr 0.01 --steps 2 --batch 2 --out signs
run 0 predict --weights signs/weights.safetensors --data libsvm:signs.svm
! grep -q "'" out || fail "$what: a number is taken for a formula"
echo old >p.csv
(ulimit -f 16; exec "$dro" predict --weights names/weights.safetensors --data csv:names.csv,label=y --out p.csv) >out 2>err
[ $? -eq 1 ] || fail "predict on a full disk: not status 1"
[ "$(cat p.csv)" = old ] || fail "predict on a full disk: half a file"
ls | grep -q 'p.csv\..*tmp' && fail "predict on a full disk: $(ls p.csv*)"
ln -s p.csv link.csv
run 0 predict --weights names/weights.safetensors --data csv:names.csv,label=y --out link.csv
[ "$(wc -l <p.csv)" -eq 901 ] && [ -L link.csv ] || fail "$what: the link's file is not written"
run 0 predict --weights names/weights.safetensors --data csv:names.csv,label=y --out /dev/stdout
[ "$(wc -l <out)" -eq 901 ] || fail "$what: $(wc -l <out) lines"

ln -s nowhere.csv dangling.csv
run 1 predict --weights names/weights.safetensors --data csv:names.csv,label=y --out dangling.csv
grep -q 'dangling.csv: it is a link to a file that does not exist' err && [ -L dangling.csv ] || fail "$what: $(cat err)"
run 1 report names --out dangling.csv
grep -q 'it is a link to a file that does not exist' err && [ -L dangling.csv ] || fail "$what: $(cat err)"
run 0 predict --weights names/weights.safetensors --data csv:names.csv,label=y --out -
[ "$(wc -l <out)" -eq 901 ] && [ ! -e ./- ] || fail "$what: $(wc -l <out) lines"
long=$(printf 'x%.0s' $(seq 250)).html
run 0 predict --weights names/weights.safetensors --data csv:names.csv,label=y --out "${long#x}"
run 0 report names --out "${long#xx}"
# Different names are different cells.
printf 'a,y\n' >alike.csv
for k in 1 2 3 4; do printf '1,\033e\n2,\\x1be\n3,=1a\n4,'"'"'=1a\n5,c:\\data\n' >>alike.csv; done
run 0 train --data csv:alike.csv,label=y --epochs 1 --out alike
run 0 predict --weights alike/weights.safetensors --data csv:alike.csv,label=y
head -n 1 out >header
for cell in 'p:\x1be' 'p:\x5cx1be' 'p:c:\data'; do
    tr , '\n' <header | grep -qxF "$cell" || fail "$what: no $cell: $(cat header)"
done
run 0 explain --weights alike/weights.safetensors --data csv:alike.csv,label=y --objective kl:1 --top 20 --out alike.explain.csv
for cell in "'=1a" "''=1a"; do
    tr , '\n' <alike.explain.csv | grep -qxF "$cell" || fail "$what: no $cell: $(cat alike.explain.csv)"
done

# A class that no row can have is not listed; features are counted without the constant one.
awk 'BEGIN { srand(3); print "a,b,y"; for (i = 0; i < 300; i++) { x = rand(); print x "," rand() "," (x > 0.5 ? "p" : "q") } }' >rows.csv
for classes in p:q:nan :p:q; do
    run 1 train --progressive --data csv:rows.csv,label=y,classes=$classes --out listed
    has 'means a missing value, which is no class' err
done
awk 'BEGIN { srand(3); for (i = 0; i < 300; i++) { x = rand(); print (x > 0.5 ? 1 : -1) " 1:" x " 2:" rand() } }' >rows.svm
run 0 train --progressive --data libsvm:rows.svm,features=2 --out rows
run 1 predict --weights rows/weights.safetensors --data csv:rows.csv,label=y
has 'the weights are for sparse rows of 2 features: expected data of the format' err
(ulimit -n 6; exec "$dro" compare --data csv:rows.csv,label=y --steps 3 --optimizers sgd,recover --seeds 1 --jobs 2 \
    --threads 1 --out narrow) >out 2>err # no descriptor is left for the second run
what="compare with six descriptors"
one_line
grep -q 'cannot start [a-z]*-seed1: Too many open files' err || fail "$what: $(cat err)"

# A silent pipe is not waited for beyond max_time, neither for the first rows nor within a line.
mkfifo silent
from_silent() { # ROWS REST: this many lines and the beginning of another one come, then nothing
    { head -n $1 rows.csv; printf '%s' "$2"; exec sleep 30; } >silent &
    writer=$!
    timeout 20 "$dro" train --progressive --data csv:silent,label=y,learn=100 --max-time 1 --out silent-$1$2 >out 2>err
    [ $? -eq 0 ] && grep -q "$(($1 - 1)) examples" out || fail "$1 lines from a silent pipe: $(cat out err)"
    kill $writer
}
from_silent 20 ''
from_silent 301 ''
from_silent 301 0.5,0.
{ exec sleep 30; } >silent &
writer=$!
timeout 20 "$dro" train --progressive --data csv:silent,label=y --max-time 1 --out silent-empty >out 2>err
[ $? -eq 1 ] && grep -q 'silent: nothing came in max_time' err || fail "nothing from a silent pipe: $(cat err)"
kill $writer

# Links and pipes that are written to stay what they are.
: >page.html
ln -s page.html link.html
run 0 report names --out link.html
[ -L link.html ] && grep -q '</html>' page.html || fail "$what: the link's file is not written"
mkfifo model.pipe
timeout 20 cat model.pipe >model.onnx &
run 0 export --weights names/weights.safetensors --onnx model.pipe
[ -p model.pipe ] || fail "$what: the pipe is replaced"
wait
run 0 export --weights names/weights.safetensors --onnx right.onnx
cmp model.onnx right.onnx || fail "the pipe has other bytes"
run 1 export --weights names/weights.safetensors --onnx /dev/full
run 1 export --weights names/weights.safetensors --onnx .

# With standard error or output closed, no file takes what is printed.
run 0 predict --weights names/weights.safetensors --data csv:names.csv,label=y --out right.csv
"$dro" predict --weights names/weights.safetensors --data csv:names.csv,label=y --out closed.csv 2>&- || fail "stderr closed"
cmp right.csv closed.csv || fail "stderr closed: the predictions have other text"
"$dro" report names --out closed.html <&- >&- 2>&-
[ "$(tail -n 1 closed.html)" = '</html>' ] || fail "stdout closed: the page ends with $(tail -n 1 closed.html)"

# One line, whatever is typed.
run 2 train --threads "$(printf '5\n6')"
one_line
run 2 train --optimizer "$(printf 'a\nb\033[31m')"
one_line
! grep -q "$(printf '\033')" err || fail "$what: an escape character is printed"
run 1 data "csv:$(printf 'caf\351\302\233\355\240\200\360\177-th\303\251')"
one_line
grep -qF "$(printf 'caf\\xe9\\x9b\\xed\\xa0\\x80\\xf0\\x7f-th\303\251')" err || fail "$what: $(cat err)"
run 2 train --epochs "$(printf '9%.0s' $(seq 5000))"
what="an option of 5000 digits"
one_line
grep -q 'expected' err || fail "$what: the cure is cut off"

odd=$(printf 'a\033[31m\342\200\256b')
run 0 train --data csv:t.csv,label=y --steps 1 --out "$odd"
cat err >>out
grep -qF 'files    a\x1b[31m\u202eb/weights' out || fail "$what: $(tail -n 1 out)"
! grep -q "$(printf '\033\\|\342\200\256')" out || fail "$what: a character that steers the terminal is printed"
run 0 report "$odd" --out "$odd.html"
grep -qF 'report  a\x1b[31m\u202eb.html' out || fail "$what: $(tail -n 1 out)"
cp -r names forged
sed -i 's/"F": {/"F": {"objective": "\\u001b[31m\\u202ecvar", "parameter": 0.5,/' forged/result.json
run 0 report forged --out forged.html
grep -qF 'F, on the training set: \x1b[31m\u202ecvar' out || fail "$what: $(tail -n 3 out)"
! grep -q "$(printf '\033\\|\342\200\256')" out || fail "$what: a character that steers the terminal is printed"
if command -v script >/dev/null 2>&1; then # JSON on a terminal, too
    awk 'BEGIN { print "a,y"; for (i = 0; i < 20; i++) print i "," (i % 2 ? "n" : "\302\233\342\200\256z") }' >steer.csv
    script -qc "'$dro' data csv:steer.csv,label=y --json" /dev/null >out
    grep -qF '"\u009B\u202Ez"' out || fail "data --json on a terminal: $(cat out)"
fi

# Paths that are not UTF-8 differ from those with the text of their escape, and are no reason to fail.
mkdir -p pair/a pair/b
for name in "$(printf 'a/\351')" 'a/\xe9' b/1 b/2; do printf 'P5 4 4 255\n0123456789abcdef' >"pair/$name.pgm"; done
run 0 train --data images:pair,size=8 --model mlp:4 --lr 0.01 --steps 2 --out pair-run
run 0 predict --weights pair-run/weights.safetensors --data images:pair,size=8 --json
json
has 'pair/a/\\xe9.pgm'
has 'pair/a/\\x5cxe9.pgm'
run 0 export --weights pair-run/weights.safetensors --onnx "$(printf 'o\351.onnx')" --json
has 'o\\xe9.onnx'

# Runs that start together have folders of their own; one that fails leaves none.
mkdir together
for k in 1 2 3 4 5 6 7 8; do
    (cd together && "$dro" train --data csv:../t.csv,label=y --steps 1 >out.$k 2>err.$k || echo "status $?" >>err.$k) &
done
wait
grep -q . together/err.? && fail "runs that start together: $(cat together/err.?)"
for folder in dro-run dro-run-2 dro-run-3 dro-run-4 dro-run-5 dro-run-6 dro-run-7 dro-run-8; do
    [ -s together/$folder/result.json ] || fail "runs that start together: no $folder/result.json"
done
mkdir without
(cd without && "$dro" train --data csv:none.csv,label=y 2>../err >../out)
[ -z "$(ls without)" ] || fail "a run without data leaves $(ls without)"

# Real targets of which few are not 0.
awk 'BEGIN { srand(5); print "a,b,claim"; for (i = 0; i < 3000; i++) print rand() "," rand() "," (rand() < 0.005 ? 50 * rand() : 0) }' >claims.csv
for seed in 1 2 3 4; do
    for optimizer in sgd recover; do
        run 0 train --data csv:claims.csv,label=claim,target=real --optimizer $optimizer --seed $seed --epochs 2 --out claims-$optimizer-$seed
    done
done
run 0 train --data csv:claims.csv,label=claim,target=real --optimizer sgd --lr 0 --seed 2 --epochs 1 --out still
run 1 train --data csv:claims.csv,label=claim,target=real --optimizer sgd --lr 1e6 --seed 2 --epochs 2 --on-divergence stop --out wild
grep -q 'diverged' err || fail "$what: $(cat err)"

# Images that are all one colour: the black border of a crop is not a thousand deviations away.
for class in a b; do
    mkdir -p colour/$class
    for k in 1 2 3; do awk 'BEGIN { printf "P3 8 8 255\n"; for (i = 0; i < 64; i++) print "64 128 192" }' >colour/$class/$k.ppm; done
done
run 0 train --data images:colour,size=8 --model mlp:4 --lr 0.01 --steps 4 --out colour-run

finish
