#!/bin/sh
# `dro data`: what it prints, as text and as JSON, of data sets and of streams, from files and from stdin;
# bad input is status 1 with one line that says what was expected. $1: the program.
. "$(dirname "$0")/expected/check.sh"

run 0 data synth:glyphs,classes=3,n=30,imratio=0.5,seed=2
silent err
has "synth: images in memory, 32 x 32, 3 channels, 3 classes"
run 0 data synth:glyphs,classes=3,n=30 --json
json
for key in format shape classes train test examples counts memory bytes_read; do has "\"$key\": "; done

cat >"$work/t.csv" <<END
age,town,y
30,Oslo,no
40,Rome,yes
50,"Oslo",no
,Rome,no
END
run 0 data "csv:$work/t.csv,label=y,group=town"
silent err
cp "$work/out" "$work/all"
run 0 data "csv:$work/t.csv,label=y" --stream
silent err
sed 's/[0-9.]* MB/M MB/g' "$work/out" >>"$work/all"
cp "$work/all" "$work/out"
same data.txt
run 0 data "csv:$work/t.csv,label=y" --stream --json
json
has '"stream": true'
has '"examples": 4'
has '"bytes_read": 56'
has '"no",'
printf '1 1:1\n0 1:1\n0 1:2\n' >"$work/signs"
run 0 data "libsvm:$work/signs,features=1" --stream --json
json
has '"counts": [
      2,
      1
    ]'

# Legal but surprising input is reported, once, and by training too.
awk 'BEGIN { print "age,y"; for (i = 0; i < 40; i++) print i "," (i % 2); print "n.a.,1" }' >"$work/mixed.csv"
run 0 data "csv:$work/mixed.csv,label=y"
silent err
has "note     column 'age': 40 of 41 values are numbers, but line 42 has 'n.a.'"
run 0 data "csv:$work/mixed.csv,label=y" --json
json
has '"notes": ['
has "missing=n.a. takes this text for a missing number"
run 0 train --data "csv:$work/mixed.csv,label=y" --epochs 2 --out "$work/noted"
[ "$(grep -c "^dro: note: column 'age': 40 of 41" "$work/err")" -eq 1 ] || fail "train: not reported, or not once"

# From stdin, plain and packed.
run_from() {
    from=$1
    shift
    "$dro" "$@" <"$from" >"$work/out" 2>"$work/err" || fail "dro $*: $(cat "$work/err")"
}
gzip -c "$work/t.csv" >"$work/t.gz"
for file in t.csv t.gz; do
    for more in "" --stream; do
        run_from "$work/$file" data csv:-,label=y $more
        has "4 examples"
    done
done

# A comma in a path is written \, ; control characters of a file do not reach the terminal.
mkdir "$work/a,b"
cp "$work/t.csv" "$work/a,b/t,1.csv"
run 0 data "csv:$work/a\\,b/t\\,1.csv,label=y"
has "4 examples"
printf 'x,y\n1,a\033[31mb\n2,c\302\233d\n' >"$work/steers"
run 0 data "csv:$work/steers,label=y"
has 'a\x1b[31mb'
has 'c\u009bd'
if LC_ALL=C grep -q "$(printf '\033')\|$(printf '\302\233')" "$work/out"; then fail "control bytes came through"; fi

# wrong SPEC PART: one line, status 1, nothing on stdout.
wrong() {
    run 1 data $3 "$1"
    silent out
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "data $1: not one line"
    has "$2" err
}
printf '1,a\n2\n' >"$work/ragged"
printf '1 1:1\n1 2:nan\n' >"$work/nan"
printf '../x.jpg 0\n' >"$work/climbs"
printf '/x.jpg 0\n' >"$work/absolute"
: >"$work/empty"
mkdir "$work/none"
wrong nonsense:x "no format 'nonsense'"
wrong "csv:$work/ragged,label=2" "line 2: 1 cells: expected 2"
wrong "csv:$work/t.csv,label=z" "expected one of age town y"
printf '39,Rome,no\n40,Oslo,yes\n' >"$work/nameless"
wrong "csv:$work/nameless,label=income" "no column label=income: expected one of 39 Rome no \
(the first row was read as the header), or a column's number from 1 to 3"
wrong "csv:$work/nameless,label=-1" "the first row was read as the header), or a column's number from 1 to 3"
wrong "csv:$work/nameless,label=9" "expected a number from 1 to 3 (there is no header)"
wrong "csv:$work/t.csv,label=y,imratio=2" "imratio=2: expected a number from 0 to 1"
wrong "libsvm:$work/nan" "line 2: value of '2:nan': expected a finite number"
wrong "libsvm:$work/empty" "has no rows"
wrong "list:$work/climbs,root=$work" "line 1: the path '../x.jpg' has '..'"
wrong "list:$work/absolute,root=$work" "line 1: the path '/x.jpg' is absolute"
wrong "images:$work/none" "expected a folder of images for each class"
wrong "cifar10:$work/none" "data_batch_1.bin is missing"
wrong cifar10:-  "expected cifar10:DIR"
wrong libsvm:-,test=- "stdin can be read once"
wrong cifar10:/nowhere,holdout=1 "holdout=1: expected"
wrong "list:$work/climbs,root=$work/nowhere" "nowhere: there is no such folder"
wrong "csv:$work/a,b/t.csv,label=y" "a comma that belongs to a path"
printf 'x,y\n1,a\033b\n' >"$work/escape"
wrong "csv:$work/escape,label=y,target=real" "'a\\x1bb': expected a finite number"
printf 'x,y\n1,2.5\n2,-2e200\n3,inf\n' >"$work/large"
wrong "csv:$work/large,label=y,target=real" "column 'y': '-2e200': expected a smaller number: 3.4e38 is the limit"
wrong "csv:$work/large,label=y,target=real" "expected a smaller number: 3.4e38" --stream
printf 'x,y\n1,2.5\n3,inf\n' >"$work/infinite"
wrong "csv:$work/infinite,label=y,target=real" "'inf': expected a finite number"
wrong synth:glyphs "cannot be streamed" --stream
wrong "libsvm:$work/nan" "features=" --stream

# Text in short lines that does not fit into memory: an error before the system runs out of memory.
if (ulimit -v 400000 && "$dro" --version >/dev/null 2>&1); then
    code=0
    yes 1,2 | head -c 250000000 |
        (ulimit -v 400000 && exec "$dro" data csv:-,label=1 >"$work/out" 2>"$work/err") || code=$?
    [ $code -eq 1 ] || fail "250 MB of text in 400 MB: status $code"
    has "takes more than 204 MB, half of the available memory" err
else
    echo "left out: this build does not run in 400 MB"
fi

# A folder in which no image can be read: one error says so, however images are loaded.
mkdir -p "$work/broken/a" "$work/broken/b"
for name in a/1 a/2 b/1; do printf 'P5 2 2' >"$work/broken/$name.pgm"; done
wrong "images:$work/broken,skip_bad=9,size=8" "broken: none of 3 images could be read"
run 1 bench data "images:$work/broken,skip_bad=9" --time 0.1
has "broken: none of 3 images could be read" err

# skip_bad: every command names each skipped image; skipped images count in no metric.
for k in 0 1 2 3 4 5 6 7; do
    for set in train test; do
        for class in a b; do
            mkdir -p "$work/pictures/$set/$class"
            printf 'P5 2 2 255\n%s\001\002\003' $k >"$work/pictures/$set/$class/$k.pgm"
        done
    done
done
printf 'P5 2 2' >"$work/pictures/train/a/3.pgm"
printf 'P5 2 2' >"$work/pictures/test/b/5.pgm"
pictures="images:$work/pictures,skip_bad=2"
train="train --model mlp:4 --size 97 --steps 4 --batch 15"
run 0 $train --data "$pictures" --out "$work/run" --json
json
has '"skipped": ['
has "train/a/3.pgm: "
has "test/b/5.pgm: "
[ "$(grep -c "pgm: " "$work/out")" -eq 2 ] || fail "two images, reported $(grep -c "pgm: " "$work/out") times"
run 0 $train --data "$pictures" --out "$work/run2"
[ "$(grep -c "dro: skipped " "$work/err")" -eq 2 ] || fail "two images, reported $(grep -c skipped "$work/err") times"
run 0 eval --weights "$work/run/weights.safetensors" --data "$pictures" --json
json
has '"examples": 15'
has "b/5.pgm: "
run 0 eval --weights "$work/run/weights.safetensors" --data "$pictures"
has "b/5.pgm: " err
run 0 predict --weights "$work/run/weights.safetensors" --data "$pictures"
has "b/5.pgm,,nan"
has "b/5.pgm: " err
run 0 bench data "$pictures" --time 0.1 --size 8 --batch 15 --json
json
has "train/a/3.pgm: "
for key in wait_share step_ms examples_per_s bytes_per_s threads; do has "\"$key\": "; done
run 0 bench data "$pictures" --time 0.1 --size 8 --batch 15 --step-ms 50
has "dro: skipped " err
has "a loop with steps of 50 ms would wait "
run 1 $train --data "images:$work/pictures,skip_bad=1" --out "$work/run1"
has "dro: skipped " err
has "pgm: byte 6: " err
has "(skip_bad=1 tolerates no more)" err

# If a class loses all of its images, training fails.
mkdir -p "$work/pictures/train/c"
printf 'P5 2 2' >"$work/pictures/train/c/0.pgm"
printf 'P5 2 2' >"$work/pictures/train/c/1.pgm"
for way in skip_bad=9 skip_bad=9,size=8; do
    run 1 $train --data "images:$work/pictures,$way" --out "$work/run3"
    has "pictures: class 'c': none of its training images could be read: expected at least one" err
    rm -rf "$work/run3"
done
run 1 $train --data "images:$work/pictures" --out "$work/run3"
has "(skip_bad=N tolerates it)" err
rm -r "$work/pictures/train/c"
for k in 0 1 2 3 4 5 6 7; do printf 'P5 2 2' >"$work/pictures/test/b/$k.pgm"; done
run 0 eval --weights "$work/run/weights.safetensors" --data "images:$work/pictures,skip_bad=9"
has "; no image of class 'b' is left in the test set" err

# Small pictures keep their size, whatever the model; a model that was trained so takes others at
# that size. A run that is resumed, repeated or begins with its weights has the same images.
for set in dark bright; do
    for class in a b; do
        mkdir -p "$work/$set/$class"
        for k in 1 2 3 4; do
            pixels=$([ $set = dark ] && echo 0123456789abcdef || echo klmnopqrstuvwxyz)
            printf 'P5 4 4 255\n%s' $pixels >"$work/$set/$class/$k.pgm"
        done
    done
done
cd "$work" || exit 1
small="train --model mlp:4 --lr 0.01"
run 0 $small --data images:dark --steps 2 --out small
has "the images' shorter side is 4 pixels (median): all become 4 x 4, as with size=4" err
has "normalised with mean 0.2"
run 0 eval --weights small/weights.safetensors --data images:bright
run 0 train --resume --out small
run 0 train --config small/config.json --out again
cmp small/weights.safetensors again/weights.safetensors || fail "a repeated run has other weights"
run 0 train --data images:bright --init small/weights.safetensors --lr 0.01 --steps 2 --out begun
has "the images become 4 x 4, as those of the weights file" err
has "mlp:4, "
has "normalised with mean 0.2"
run 0 train --resume --out begun
run 0 train --data images:bright,size=4 --init small/weights.safetensors --lr 0.01 --steps 2 --out sized
cmp begun/weights.safetensors sized/weights.safetensors || fail "size=4 gives other weights"
rm -r small
run 1 train --resume --out begun
has "the run was made with normalisation of init=" err
cd - >/dev/null || exit 1

# A model keeps the first index of the columns: rows without index 0 are not shifted.
for k in 1 2 3 4 5 6 7 8; do printf '0 0:1 1:1\n1 0:1 2:1\n0 1:1\n1 2:1\n'; done >"$work/from0"
grep -v ' 0:' "$work/from0" >"$work/slice"
for way in "" --progressive; do
    rm -rf "$work/run0"
    run 0 train --data "libsvm:$work/from0,base=0${way:+,features=3}" --steps 40 --batch 8 --out "$work/run0" $way
    run 0 eval --weights "$work/run0/weights.safetensors" --data "libsvm:$work/slice" --json
    has '"accuracy": 1'
    run 1 eval --weights "$work/run0/weights.safetensors" --data "libsvm:$work/slice,base=1"
    has "base=1: the model was trained with base=0" err
done
run 0 bench data "libsvm:$work/signs" --json
json
has '"threads": 1'
has '"wait_share": 1'
finish
