#!/bin/sh
# dro train, eval and predict: help, success and error paths to the letter; runs that are stopped, killed at
# random moments and resumed end with the same weights. $1: the program. DRO_KILLS=N: how many times a
# run is killed (200 if not given).
. "$(dirname "$0")/expected/check.sh"
expected=$(cd "$expected" && pwd)
dro=$(cd "$(dirname "$dro")" && pwd)/$(basename "$dro")
cd "$work" || exit 1

small="--data synth:glyphs,n=120,test=30,size=12,classes=3 --epochs 2 --batch 20 --threads 2"

# ---- help ----
for command in train eval predict; do
    run 0 $command --help
    same "help_$command.txt"
    silent err
done

# ---- success ----
run 0 train $small --out one
shape
same train.txt
silent err
for file in config.json metrics.jsonl result.json weights.safetensors last.ckpt previous.ckpt; do
    [ -s "one/$file" ] || fail "dro train: no $file"
done
[ "$(wc -l <one/metrics.jsonl)" -eq 2 ] || fail "metrics.jsonl: not one line per evaluation"
run 0 train $small --out two --json
json
has '"balanced_accuracy"'
cmp one/weights.safetensors two/weights.safetensors || fail "two runs alike differ"
run 0 train --config one/config.json --out three --json
cmp one/weights.safetensors three/weights.safetensors || fail "config.json does not run it again"
cat >run.json <<EOF
{"data": "synth:glyphs,n=120,test=30,size=12,classes=3", "epochs": 2, "batch": 20, "stages": [0.5, 0.75]}
EOF
run 0 train --config run.json --threads 2 --out four --json
cmp one/weights.safetensors four/weights.safetensors || fail "a flat file does not run it again"
cat >small.json <<EOF
{"lr": 0.5, "data": "synth:glyphs,n=120,test=30,size=12,classes=3", "epochs": 1, "threads": 1, "optimizer": "sgd"}
EOF
run 0 train --config small.json --out flat1
has ", backend cpu, 1 thread, into flat1"
has "; sgd minimises "
grep -q '"eta": 0.5' flat1/config.json || fail "a file's lr is ignored"
run 0 train --config small.json --lr 0.25 --threads 2 --out flat2
has "2 threads"
grep -q '"eta": 0.25' flat2/config.json || fail "the command line does not win over a file"
"$dro" train --config - --out flat3 --json <small.json >out 2>err || fail "--config - does not read standard input"
cmp flat1/weights.safetensors flat3/weights.safetensors || fail "--config - is not --config FILE"
# What the objective's scalars have come to: in the lines of a run and in its result.
for case in 'kl:2 lambda' 'kl-radius:0.5 lambda,radius' 'cvar:0.3 threshold,radius' \
    'chi2:1 lambda,threshold,radius' 'mean '; do
    objective=${case%% *}
    run 0 train $small --optimizer sgd --objective "$objective" --out "reached-$objective"
    grep effective out >lines
    for name in lambda threshold radius; do
        shown=$(grep -c "  $name [0-9.e-]*  " lines)
        stored=$(grep -c "^  \"$name\": [0-9]" "reached-$objective/result.json")
        case ",${case#* }," in
        *,$name,*) [ "$shown" -eq 2 ] && [ "$stored" -eq 1 ] ;;
        *) [ "$shown" -eq 0 ] && [ "$stored" -eq 0 ] ;;
        esac || fail "$objective: $name is shown $shown times and stored $stored times"
    done
    grep -q '^  "effective": [01]\.' "reached-$objective/result.json" || fail "$objective: no effective"
done
# config.json has a lambda beside the objective: it is no contradiction, and neither is a recipe's.
for objective in kl:3 cvar:0.3; do
    run 0 train $small --objective $objective --out "bare-$objective"
    run 0 train --config "bare-$objective/config.json" --out "again-$objective"
    cmp "bare-$objective/weights.safetensors" "again-$objective/weights.safetensors" || fail "$objective: another run"
    run 0 train --config one/config.json --objective $objective --out "other-$objective"
    run 0 train --resume --out "bare-$objective"
done
cmp bare-cvar:0.3/weights.safetensors other-cvar:0.3/weights.safetensors || fail "the lambda of a file matters"
run 0 train $small --recipe imbalanced --objective cvar:0.3 --out of-recipe
# Every setting is an option, by any of its names.
run 0 train --config small.json --eta 0.25 --eval-train=no --momentum 0 --checkpoint-every 2m --deterministic --out flat4
for line in '"eta": 0.25' '"eval_train": "no"' '"momentum": 0' '"checkpoint_every": 120' '"deterministic": "yes"'; do
    grep -q "$line" flat4/config.json || fail "$line is not in config.json"
done
run 0 train --data synth:glyphs,n=120,test=30,size=12,classes=4 --steps 2 --init one/weights.safetensors --out other
has "one/weights.safetensors is for another number of classes: fc.weight, fc.bias are initialised randomly" err
run 0 train --config one/config.json --optimizer sgd --lr 0.05 --out five --json
has '"optimizer": "sgd"'
has '"eta": 0.05'

# A strength of 0 that somebody has written is one; a file's regulariser can be taken off.
short="--data synth:glyphs,n=120,test=30,size=12,classes=3 --batch 20 --steps 3 --threads 2 --json"
run 0 train $short --reg l1:0 --out zero
run 0 train --config zero/config.json --out zero2 --json
run 0 train --config zero/config.json --set reg_strength=0.1 --out strong --json
run 0 train --config strong/config.json --reg none --out off --json
cmp zero/weights.safetensors off/weights.safetensors || fail "--reg none does not take it off"
! cmp -s zero/weights.safetensors strong/weights.safetensors || fail "--set reg_strength=0.1 does nothing"

# Without a test set or a holdout the figures are of the training data, and it is said.
awk 'BEGIN { for (i = 0; i < 120; i++) print (sin(i * i) > 0.3 ? "+1" : "-1"), "1:" sin(i * i), "2:1" }' >untested.libsvm
run 0 train --data libsvm:untested.libsvm --batch 20 --steps 6 --threads 2 --out untested
grep -q '^epoch 1/1 .*  train accuracy [0-9.]* %  worst class ' out || fail "$what: of which set is the accuracy?"
grep -q '^train .* accuracy [0-9.]* %  balanced [0-9.]* %  worst class [0-9.]* %$' out || fail "$what: no balanced accuracy"
has "these figures are of the training data; holdout=0.2 in --data sets a fifth aside"
run 0 train --data libsvm:untested.libsvm,holdout=0.2 --batch 20 --steps 1 --out held
! grep -q "train accuracy\|of the training data" out || fail "$what: there is a holdout"
has ", 1 step, 20 examples"

run 0 eval --weights one/weights.safetensors --data synth:glyphs,n=120,test=30,size=12,classes=3
shape
same eval.txt
run 0 eval --weights one/weights.safetensors --data synth:glyphs,n=120,test=30,size=12,classes=3 --json
json
for format in csv jsonl json npy; do
    run 0 predict --weights one/weights.safetensors --out "p.$format" \
        --data synth:glyphs,n=120,test=30,size=12,classes=3
    silent out
done
[ "$(wc -l <p.csv)" -eq 31 ] || fail "predict: not 30 rows and a header in p.csv"
[ "$(wc -l <p.jsonl)" -eq 30 ] || fail "predict: not 30 rows in p.jsonl"
[ "$(head -n 1 p.json)" = "[" ] || fail "predict: p.json is no list"
[ "$(wc -c <p.npy)" -eq $((128 + 30 * 3 * 4)) ] || fail "predict: not 30 x 3 floats in p.npy"
"$dro" predict --weights one/weights.safetensors --data synth:glyphs,n=9,test=4000,size=12,classes=3 2>err | head -n 1 >out
what="dro predict | head"
silent err
run 0 train --data synth:glyphs,n=120,test=30,size=12,classes=3 --batch 20 --steps 1 --augment all --out augmented
cat out err | grep -q '(augment=crop,flip)' || fail "the line of a run on small images does not say how they are augmented"
run 0 train --data synth:glyphs,n=120,test=30,size=12,classes=3 --batch 20 --steps 3 --out short
has "step 3/3 "
printf 'P6 16 16 255\n' >image.ppm
head -c 768 /dev/urandom >>image.ppm
run 0 predict --weights one/weights.safetensors image.ppm image.ppm
has "path,class,probability,p:0,p:1,p:2"
grep -q "^image.ppm," "$work/out" || fail "predict: an image has another name than it was given"
[ "$(wc -l <"$work/out")" -eq 3 ] || fail "predict: not one row for each image"

echo text >text
run 1 predict --weights one/weights.safetensors text
has "text: expected a JPEG, PNG, PPM or PGM image" err
! grep -q "line 1 of" err || fail "$what: speaks of a list that nobody has written"
run 0 predict --weights one/weights.safetensors --json --logits \
    --data synth:glyphs,n=120,test=30,size=12,classes=3
json

if [ -w /dev/full ]; then
    run 1 predict --weights one/weights.safetensors --out /dev/full \
        --data synth:glyphs,n=120,test=30,size=12,classes=3
    has "cannot write to /dev/full: No space left on device" err
fi

# ---- a table: groups, and other files encoded as training's was ----
awk 'BEGIN { print "age,job,place,y"; for (i = 0; i < 300; i++) { x = sin(i * i);
    print 40 + 10 * x "," (i % 3 ? "cook" : "nurse") "," (i % 5 ? "here" : "there") "," (x > i % 3 - 1 ? "p" : "q") } }' >table.csv
awk -F, -v OFS=, 'NR < 42 { print "id" NR, $2, $1, $3 }' table.csv | sed 's/^id1,/id,/' >other.csv
run 0 train --data csv:table.csv,label=y,group=place,holdout=0.2 --epochs 2 --threads 1 --best worst_group_accuracy --out table
cp out table.txt
shape
same train_groups.txt
run 0 predict --weights table/weights.safetensors --data csv:table.csv --out p1.csv
run 0 predict --weights table/weights.safetensors --data csv:other.csv --out p2.csv
head -n 41 p1.csv | cmp - p2.csv || fail "predict: columns in another order, without the label: other predictions"
run 0 eval --weights table/weights.safetensors --data csv:table.csv,label=y,group=place,holdout=0.2 --split holdout
tail -n 1 "$work/out" >now
grep '^holdout' "$work/table.txt" | cmp - now || fail "eval: not the figures of the run"
run 0 eval --weights table/weights.safetensors --data csv:table.csv,label=y,group=place --json
json
has '"worst_group_accuracy"'

# ---- a stream ----
awk 'BEGIN { for (i = 0; i < 900; i++) { x = sin(i * i); print (x > 0.3 ? "+1" : "-1"), "1:" x, "2:1" } }' >rows
"$dro" train --data libsvm:-,features=2 --progressive --report-every 400 --batch 50 --threads 1 \
    --out stream <rows >out 2>err || fail "dro train --progressive"
what="dro train --progressive"
shape
same train_stream.txt
silent err
run 0 train --data libsvm:rows,features=2 --progressive --report-every 400 --batch 50 --threads 1 \
    --out stream2 --json
json
cmp stream/weights.safetensors stream2/weights.safetensors || fail "a pipe and a file differ"
run 0 train --resume --out stream2 --json
run 0 eval --weights stream/weights.safetensors --data libsvm:rows
has "AUROC"
rows() { # the folder's result has so many, learned from and predicted
    grep -q "^  \"examples\": $2,\$" "$1/result.json" || fail "$what: not all $2 rows were learned from"
    grep -q "^    \"examples\": $2,\$" "$1/result.json" || fail "$what: not all $2 rows were predicted"
}
# A pipe that continues at the row that the checkpoint names.
head -n 600 rows | "$dro" train --data libsvm:-,features=2 --progressive --batch 50 --threads 1 --out piped >out 2>err ||
    fail "dro train --progressive, the first rows"
tail -n +601 rows | "$dro" train --resume --out piped >out 2>err || fail "dro train --resume, the other rows"
what="dro train --resume with a pipe"
has "dro: standard input must start with row 601 of the stream" err
has "dro: resuming after step " err
rows piped 900
for n in 7 50 123; do # the last batch is as long as there are rows
    head -n $n rows | "$dro" train --data libsvm:-,features=2 --progressive --batch 50 --out "last$n" >out 2>err ||
        fail "dro train --progressive, $n rows"
    what="dro train --progressive, $n rows"
    silent err
    rows "last$n" $n
    ! grep -q nan out || fail "$what: nan"
    grep -q "recent AUROC [0-9-]" out || fail "$what: no AUROC"
done
awk 'BEGIN { print "x,y,kind"; for (i = 0; i < 333; i++) { x = sin(i * i); print x "," (i % 2 ? "a" : "b") "," (x > 0.3 ? "yes" : "no") } }' >stream.csv
"$dro" train --data csv:-,label=kind --progressive --batch 50 --out stream4 <stream.csv >out 2>err ||
    fail "dro train --progressive, csv:-"
what="dro train --progressive, csv:-"
silent err
has "yes"
rows stream4 333
head -n 201 stream.csv | "$dro" train --data csv:-,label=kind,learn=99 --progressive --batch 50 --out again >out 2>err ||
    fail "dro train --progressive, csv:-, the first rows"
"$dro" train --resume --out again <stream.csv >out 2>err || fail "dro train --resume, csv:-, all rows again"
what="dro train --resume, csv:-"
has "dro: standard input must start with row 1 of the stream" err
rows again 333 # those that were learned from are passed over
run 0 train --data csv:stream.csv,label=3 --progressive --batch 50 --out stream5 --json
cmp stream4/weights.safetensors stream5/weights.safetensors || fail "$what: a pipe and a file differ"
run 0 eval --weights stream4/weights.safetensors --data csv:stream.csv,label=kind
has "AUROC"
# three classes: down a pipe, packed, with a class that comes late
awk 'BEGIN { print "x,y,kind"; for (i = 0; i < 600; i++) { x = sin(i * i); y = cos(3 * i)
             print x "," y "," (x > 0.3 ? "red" : y > 0 ? "green" : i > 500 ? "late" : "blue") } }' >many.csv
gzip -k many.csv
run 1 train --data csv:many.csv,label=kind,learn=300 --progressive --out many
has "column 'kind': 'late': expected a label that the first rows have (classes=A:B:C lists all, learn=N reads" err
has "many.csv: line 5" err
list=classes=red:green:blue:late
"$dro" train --data csv:-,label=kind,learn=300,$list --progressive --out many1 <many.csv >out 2>err ||
    fail "dro train --progressive, csv:-, four classes"
what="dro train --progressive, csv:-, four classes"
silent err
has "late"
has "recent balanced"
rows many1 600
run 0 train --data csv:many.csv.gz,label=kind,learn=300,$list --progressive --out many2
cmp many1/weights.safetensors many2/weights.safetensors || fail "$what: a pipe and a packed file differ"
run 0 eval --weights many1/weights.safetensors --data csv:many.csv,label=kind
has "average precision"
run 0 train --data csv:many.csv,label=kind --progressive --tilt class --lambda 0.1 --out many3
has "loss cross-entropy"
awk 'BEGIN { print "x,name,y"; for (i = 0; i < 100; i++) print i % 7 ",person " i % 95 "," i % 2 }' >people.csv
run 0 train --data csv:people.csv,label=y,learn=60 --progressive --out people60
has "note: column 'name': 60 different texts in the first 60 rows, such as 'person 0': categorical, with 1 feature" err
run 0 train --data csv:people.csv,label=y --progressive --out people
has "note: column 'name': 95 different texts in 100 rows, such as 'person 0': categorical, with" err
has "drop=name leaves the column out" err
[ "$(grep -c note: err)" -eq 1 ] || fail "$what: more than one note"
run 2 train --data csv:many.csv,label=kind --stream
has "no option --stream: did you mean --progressive?" err
yes '+1 1:0.5' | "$dro" train --data libsvm:-,features=2 --progressive --max-time 1s --threads 1 --out endless >out 2>err ||
    fail "a stream with --max-time: not status 0"
what="dro train --progressive --max-time"
has "stopped: the time of --max-time is over"
grep -q '"ended": "time"' endless/result.json || fail "$what: result.json does not say so"
mkfifo pipe
awk -F, '{ print $3 "," $2 "," $1 }' stream.csv >turned.csv
cut_off() { # SPEC FILE ROWS MORE: a pipe that is silent after FILE and MORE, which ends within a line
    what="a stream that is stopped by SIGTERM, $1"
    for pause in 0.3 1 4 16; do # a busy machine needs more time to read all of it
        rm -rf stream3
        { cat "$2"; printf "$4"; exec sleep 60; } >pipe &
        feeder=$!
        "$dro" train --data "$1" --progressive --batch 50 --out stream3 <pipe >out 2>err &
        pid=$!
        while [ ! -s stream3/last.ckpt ]; do sleep 0.05; done
        sleep $pause
        kill -TERM $pid
        wait $pid || fail "$what: not status 0"
        kill $feeder 2>/dev/null
        ! grep -q "^  \"examples\": $3,\$" stream3/result.json || break
    done
    rows stream3 "$3"
}
cut_off libsvm:-,features=2 rows 901 '+1 1:0.25 2:1\n-1 1:0.2'
cut_off libsvm:-,features=2 rows 901 '+1 1:0.25 2:1\n-1 1:'
cut_off libsvm:-,features=2,shuffle=20 rows 901 '+1 1:0.25 2:1\n-1 1:0.2'
cut_off csv:-,label=kind,learn=100 turned.csv 334 'yes,a,0.25\nno,b,0.2'
printf '+1 1:0.25 2:1\n-1 1:0.2' | "$dro" train --data libsvm:-,features=2 --progressive --out stream6 >out 2>err ||
    fail "dro train --progressive, no newline at the end"
what="dro train --progressive, no newline at the end"
rows stream6 2

# ---- errors ----
printf 'age,place\n1,here\n' >rows.csv
: >all
wrong() {
    run "$@"
    silent out
    shift
    [ "$(wc -l <err)" -eq 1 ] || fail "$what: not one line"
    echo "\$ dro $*" >>all
    cat err >>all
}
wrong 2 train --optimizer recovr
wrong 2 train --optimizer SGD
wrong 2 train --set lamda=1
wrong 2 train --set lambda
wrong 2 train --epochs many
wrong 2 train --lr abc
wrong 2 train --set tilt=all
wrong 2 train --epochs -1
wrong 2 train --batch 0
wrong 2 train --steps 0
wrong 2 train --epochs 2 --steps 3
wrong 2 train --max-time soon
wrong 2 train --optimizer sgd --lambda 5
wrong 2 train --objective cvar:2
wrong 2 train --objective chi2:
wrong 2 train --objective kl
wrong 2 train --objective kl:3 --lambda 2
wrong 2 train --objective cvar:0.1 --lambda 2
wrong 2 train --lambda 2 --set objective=mean
wrong 2 train --objective chi2:1 --over none
wrong 2 train --config bare-kl:3/config.json --lambda 2
wrong 2 train --reg l1
wrong 2 train --set reg=group
wrong 2 train --set reg_strength=5
wrong 2 train --config one/config.json --reg l2
wrong 2 train --config one/config.json --set reg_strength=5
wrong 2 train --reg box:3
wrong 2 train --best nonsense
wrong 2 train --best --epochs 2
wrong 2 train --precision fp64
wrong 2 train --backend cpu --precision bf16
wrong 2 train --backend cpu --set precision=bf16
wrong 2 train --set deterministic=maybe
wrong 2 train --loss fokal
wrong 1 train --config missing.json
printf '[1, 2]\n' >list.json
wrong 1 train --config list.json
printf '{"optimizer": "sgd", "backend": "abacus"}\n' >backend.json
wrong 1 train --config backend.json
printf '{"epochs": 2, "lamda": 3}\n' >wrong.json
wrong 2 train --config wrong.json
printf '{"optimizer_settings": {"lambda": "many"}}\n' >value.json
wrong 2 train --config value.json
printf '{"optimizer": "sgd", "lambda": 3}\n' >lacks.json
wrong 2 train --config lacks.json
printf '{"epochs"\n' >open.json
wrong 1 train --config open.json
wrong 2 train --batchsize 3
wrong 2 train --set batchsize=3
wrong 2 train --set learning_rate=3
wrong 2 train --set lrr=3
wrong 2 train --learning-rate 3
wrong 2 train --progressive=maybe
wrong 2 eval --data synth:glyphs
wrong 1 eval --json --weights one/result.json --data synth:glyphs
wrong 1 eval --json --weights missing.safetensors --data synth:glyphs
wrong 1 eval --json --weights one --data synth:glyphs
wrong 1 eval --json --weights one/weights.safetensors --data synth:glyphs
wrong 2 eval --json --weights one/weights.safetensors --data synth:glyphs,size=12 --split all
wrong 2 predict --weights one/weights.safetensors
wrong 2 predict image.ppm
wrong 1 predict --weights one/weights.safetensors image.ppm --out ./one/weights.safetensors
wrong 1 predict --weights one/weights.safetensors image.ppm --out image.ppm
wrong 1 predict --weights table/weights.safetensors --data csv:table.csv --out table.csv
cp table.csv 'a,b.csv'
wrong 1 predict --weights table/weights.safetensors --data 'csv:a\,b.csv,label=y' --out a,b.csv
wrong 1 predict --weights one/weights.safetensors missing.png
wrong 2 predict --weights one/weights.safetensors --data synth:glyphs,size=12,n=9 --format xml
wrong 1 train --json --out one
wrong 1 train --json --data synth:nothing
wrong 1 train --json --data csv:missing.csv,label=y --out six
wrong 2 train --json --model nonsense --out six
wrong 1 train --json --batch 6000 --out six
wrong 1 train --json --out run.json/below
wrong 1 train --json --out one --resume --lr 7
wrong 1 train --json --tilt group --out six
wrong 1 train --resume --out nowhere
wrong 1 train --resume --out nowhere --max-time 2s
wrong 1 train --config one
wrong 1 train --json --patience 3 --out six
wrong 1 train --json --data synth:glyphs,n=100,holdout=0.001 --best accuracy --out six
wrong 1 train --json --data synth:glyphs,n=200,holdout=0.1 --best auroc --out six
wrong 1 eval --json --weights table/weights.safetensors --data csv:other.csv
wrong 1 predict --weights table/weights.safetensors --data csv:rows.csv
wrong 1 train --json --progressive --out six
wrong 1 train --json --progressive --data libsvm:rows --out six
wrong 1 train --json --progressive --data libsvm:rows,features=2 --loss focal --out six
wrong 1 train --json --progressive --data libsvm:rows,features=2 --recipe imbalanced --out six
wrong 1 train --json --progressive --data libsvm:rows,features=2 --set tau=3 --out six
wrong 1 train --json --progressive --data libsvm:rows,features=1 --out six
printf 'a,paid\n1,yes\n2,no\n' >loans.csv
wrong 2 train loans.csv --label paid
wrong 2 train --data loans.csv --target paid
wrong 1 train --json --data loans.csv --label Paid --out six
wrong 1 train --json --data loans.csv,label=paid,test=0.2 --out six
wrong 1 train --json --data . --label paid --out six
cp all out
same train_errors.txt

# ---- resuming what is not there, or is over ----
run 0 train $small --out fresh --resume
has "no checkpoint in fresh: starting at step 0"
silent err
run 0 train --resume --out fresh # it is at its end
silent err
run 0 train $small --optimizer sgd --seed 2 --set output=random --out drawn
lines=$(wc -l <drawn/metrics.jsonl)
for again in 1 2; do
    run 0 train --resume --out drawn
    [ "$(wc -l <drawn/metrics.jsonl)" -eq "$lines" ] || fail "$what: more lines in metrics.jsonl than before"
done

cp -r one over
rm over/*.ckpt
for more in "" --json; do
    run 1 train --resume --out over $more
    has "dro: over: the run has ended, with a result.json, and has no checkpoint" err
    [ "$(wc -l <err)" -eq 1 ] || fail "$what: not one line"
done
cmp one/weights.safetensors over/weights.safetensors || fail "$what: trained over the result"
cmp one/metrics.jsonl over/metrics.jsonl || fail "$what: the metrics are written over"

# ---- a run that diverges ----
run 1 train --data synth:glyphs,n=200,test=20,size=12 --optimizer sgd --model mlp --lr 1e6 --set warmup=0 \
    --on-divergence stop --out far
[ "$(wc -l <err)" -eq 1 ] || fail "$what: not one line"
has "diverged at step" err
has "; weights.safetensors has those of step 0. Try a smaller step (eta=0.1), more warm-up" err
[ -s far/weights.safetensors ] || fail "$what: no weights are kept"
grep -q '"ended": "diverged"' far/result.json || fail "$what: result.json does not say so"
run 0 train --data synth:glyphs,n=200,test=20,size=12 --optimizer sgd --model mlp --lr 1e6 --set warmup=0 --out halved
has "back to step 0 with eta 500000" err
run 0 train --resume --out far --on-divergence halve
has "dro: resuming after step 0 (0 examples)" err
cmp far/weights.safetensors halved/weights.safetensors || fail "$what: not as one that halves from the start"
grep -q '"ended": "done"' far/result.json || fail "$what: result.json does not say so"
# A checkpoint that is bad already is left for the start, and a run from there is as one with that step.
far="$small --model linear --optimizer sgd --set warmup=0"
run 0 train $far --lr 1024 --set checkpoint_every=0 --out returned
grep -q "back to step [1-9]" err || fail "$what: no checkpoint that was bad"
grep -o "back to step [0-9]*" err | uniq -c | awk '$5 > 0 && $1 > 2 { bad = 1 } END { exit bad }' ||
    fail "$what: back to a bad checkpoint more than twice"
tail -n 1 err | grep -q "back to step 0" || fail "$what: not back to the start"
run 0 train $far --lr "$(sed -n '$s/.*eta //p' err)" --out straight
cmp returned/weights.safetensors straight/weights.safetensors || fail "from the start again: other weights"
cut -d, -f1-4 returned/metrics.jsonl >returned.steps
cut -d, -f1-4 straight/metrics.jsonl | cmp - returned.steps || fail "from the start again: other metrics"
# One that is bad at its end has diverged, though no batch could tell.
run 1 train $far --epochs 1 --batch 120 --lr 1024 --on-divergence stop --out ended
has "diverged at step 1: the loss on the training set rose from" err

# ---- a file that may not grow ----
(ulimit -f 16; exec "$dro" train $small --out narrow) >out 2>err
status=$?
what="dro train with ulimit -f"
[ $status -eq 1 ] || fail "$what: status $status"
[ "$(wc -l <err)" -eq 1 ] || fail "$what: not one line"
has "dro: cannot write narrow/last.ckpt.tmp: File too large: raise \`ulimit -f\`, then resume" err
run 0 train --resume --out narrow
cmp one/weights.safetensors narrow/weights.safetensors || fail "$what: other weights"

# ---- signals ----
# catches_term PID: the process has a handler for SIGTERM, or has ended.
catches_term() {
    mask=$(sed -n 's/^SigCgt:.*\(........\)$/0x\1/p' "/proc/$1/status" 2>/dev/null)
    [ -z "$mask" ] || [ $((mask >> 14 & 1)) -eq 1 ]
}
default= # a caller's nohup is not what is tested
! env --default-signal=HUP true 2>/dev/null || default="env --default-signal=HUP"
stopped() {
    rm -rf stopped
    $default "$dro" train $small --epochs 2000 --out stopped >out 2>err &
    pid=$!
    while [ ! -s stopped/last.ckpt ]; do sleep 0.05; done
    sleep 0.3
    kill -"$1" $pid
    wait $pid
    status=$?
    what="dro train after SIG$1"
    [ $status -eq 1 ] || fail "$what: exit status $status instead of 1"
    has "stopped after step" err
    has "dro train --resume --out stopped" err
}
stopped TERM
stopped INT
stopped HUP
(trap '' HUP; exec "$dro" train $small --epochs 2000 --out nohup >out 2>err) &
pid=$!
while [ ! -s nohup/last.ckpt ]; do sleep 0.05; done
kill -HUP $pid
sleep 0.5
kill -TERM $pid 2>/dev/null || fail "dro train under nohup: stopped by SIGHUP"
wait $pid
# While the data is read there is nothing to save: at once.
"$dro" train --data synth:glyphs,n=400000 --out reading >out 2>err &
pid=$!
until catches_term $pid; do sleep 0.05; done
begin=$(date +%s)
kill -TERM $pid
wait $pid
status=$?
what="dro train, SIGTERM while data is read"
[ $status -eq 1 ] || fail "$what: exit status $status instead of 1"
[ $(($(date +%s) - begin)) -le 10 ] || fail "$what: answered after more than ten seconds"
has "dro: stopped before the first step: there is nothing to save" err
[ ! -e reading ] || fail "$what: a folder is left"

# ---- killed at random moments ----
random() { od -An -N2 -tu2 /dev/urandom | tr -d ' '; }
kills=${DRO_KILLS:-200}
begin=$(date +%s%N)
run 0 train $small --set checkpoint_every=0 --out whole
took=$((($(date +%s%N) - begin) / 1000000))
for k in $(seq "$kills"); do
    rm -rf killed
    for again in 1 2; do
        "$dro" train $small --set checkpoint_every=0 --out killed --resume >/dev/null 2>err &
        pid=$!
        sleep "$(awk -v r="$(random)" -v t="$took" 'BEGIN { printf "%.3f", r / 65536 * t / 1000 }')"
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
    done
    run 0 train $small --set checkpoint_every=0 --out killed --resume
    cmp whole/weights.safetensors killed/weights.safetensors || fail "killed $k: other weights"
    for folder in whole killed; do
        sed -e 's/"seconds":[^,]*,//' -e 's/"wall":[^,]*,//' $folder/metrics.jsonl >$folder.metrics
    done
    cmp whole.metrics killed.metrics || fail "killed $k: other metrics"
    [ $failures -lt 5 ] || break
done

finish
