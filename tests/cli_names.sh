#!/bin/sh
# Names of classes that are not UTF-8: refused with the line, or read as the Latin-1 that they are, and the same
# in the weights, in the results and in predictions. $1: the program.
. "$(dirname "$0")/expected/check.sh"
dro=$(cd "$(dirname "$dro")" && pwd)/$(basename "$dro")
cd "$work" || exit 1

awk 'BEGIN { srand(1); print "a,b,y"; for (i = 0; i < 200; i++) { x = rand(); printf "%g,%g,%s\n", x, rand(), (x > 0.5 ? "caf\351" : "th\351") } }' >t.csv
run 1 train --data csv:t.csv,label=y --epochs 1 --out latin
has "t.csv: line 2: byte 0xe9 is not UTF-8: add encoding=latin1" err
[ ! -e latin/weights.safetensors ] || fail "$what: weights are there"
run 1 train --data csv:t.csv,label=y --progressive --out latin
has "t.csv: line 2: byte 0xe9 is not UTF-8: add encoding=latin1" err
run 0 train --data csv:t.csv,label=y,encoding=latin1 --epochs 3 --out read
grep -q '"café",' read/result.json && grep -q '"thé"' read/result.json || fail "the classes' names are lost"
run 0 train --data csv:t.csv,label=y,encoding=latin1 --progressive --out stream
grep -q '"café",' stream/result.json || fail "the names of a stream's classes are lost"
run 0 eval --weights read/weights.safetensors --data csv:t.csv,label=y,encoding=latin1 --json
has "café"
run 0 predict --weights read/weights.safetensors --data csv:t.csv,label=y,encoding=latin1
has "p:café,p:thé"

# Folders, the files in them, and settings.
for class in "$(printf 'caf\351')" plain; do
    mkdir -p "pictures/$class"
    for k in 1 2 3 4; do printf 'P5 4 4 255\n0123456789abcdef' >"pictures/$class/$k.pgm"; done
done
run 1 train --data images:pictures,size=8 --epochs 1 --out folders
has "the name of this class is not UTF-8: rename the folder" err
mv "pictures/$(printf 'caf\351')" pictures/café
mv pictures/plain/1.pgm "pictures/plain/$(printf '\351').pgm"
run 0 train --data images:pictures,size=8 --model mlp:4 --lr 0.01 --steps 2 --out folders
run 0 predict --weights folders/weights.safetensors --data images:pictures,size=8 --json
json
has 'pictures/plain/\\xe9.pgm'
run 0 predict --weights folders/weights.safetensors --data images:pictures,size=8
has 'pictures/plain/\xe9.pgm'
run 1 predict --weights folders/weights.safetensors pictures/plain
has "pictures/plain is a folder: name its images, as in pictures/plain/*.png; with" err
run 2 train --data "csv:$(printf 'caf\351').csv,label=y" --epochs 1 --out named
has "expected at most 4095 characters, in UTF-8" err

finish
