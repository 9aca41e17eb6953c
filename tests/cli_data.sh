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
sed 's/[0-9.]* MB/M MB/' "$work/out" >>"$work/all"
cp "$work/all" "$work/out"
same data.txt
run 0 data "csv:$work/t.csv,label=y" --stream --json
json
has '"stream": true'
has '"examples": 4'

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
wrong "csv:$work/t.csv,label=y,imratio=2" "imratio=2: expected a number from 0 to 1"
wrong "libsvm:$work/nan" "line 2: value of '2:nan': expected a finite number"
wrong "libsvm:$work/empty" "has no rows"
wrong "list:$work/climbs,root=$work" "line 1: the path '../x.jpg' climbs"
wrong "list:$work/absolute,root=$work" "line 1: the path '/x.jpg' is absolute"
wrong "images:$work/none" "expected a folder of images for each class"
wrong "cifar10:$work/none" "data_batch_1.bin is missing"
wrong cifar10:-  "expected cifar10:DIR"
wrong libsvm:-,test=- "stdin can be read once"
wrong cifar10:/nowhere,holdout=1 "holdout=1: expected"
wrong synth:glyphs "cannot be streamed" --stream
wrong "libsvm:$work/nan" "features=" --stream
finish
