#!/bin/sh
# A pattern of files, csv:part-*.gz: they are read in the order of their names, as a stream and as a table; errors name
# the file and the line in it. $1: the program.
dro=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
tests=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
fail() {
    echo "FAILED: $*" >&2
    [ -f log ] && tail -30 log >&2
    exit 1
}
. "$tests/shards.sh"

same() { cmp "$1/weights.safetensors" "$2/weights.safetensors"; }
one() { # folder, then the settings of a run
    out=$1; shift
    "$dro" train "$@" --threads 1 --out "$out" >log 2>&1 || fail "$out"
}

# ---- the files one after the other are one file ----
for kind in stream table; do
    [ $kind = stream ] && how=--progressive || how="--epochs 2 --optimizer sgd"
    one csv-$kind --data csv:all.csv,label=label,scale=none $how
    one csv-$kind-parts --data 'csv:part-*.csv*,label=label,scale=none' $how
    same csv-$kind csv-$kind-parts || fail "csv, $kind: files of a pattern are read otherwise than one file"
    one svm-$kind --data libsvm:all.svm,features=3 $how
    one svm-$kind-parts --data 'libsvm:part-*.svm*,features=3' $how
    same svm-$kind svm-$kind-parts || fail "libsvm, $kind: files of a pattern are read otherwise than one file"
done
one learned --data csv:all.csv,label=label,learn=1000 --progressive # more than the first file has
one learned-parts --data 'csv:part-*.csv*,label=label,learn=1000' --progressive
same learned learned-parts || fail "csv: what is learned from the first rows differs"

# ---- errors name the file and the line in it ----
wrong() { # what it must say, then arguments
    text=$1; shift
    "$dro" train "$@" --out wrong >log 2>&1 && fail "not refused: $text"
    grep -q "$text" log || fail "no line says: $text"
    rm -rf wrong
}
mkdir bad
cp part-1.csv part-3.csv bad
sed -i '5s/^.,[^,]*/1,oops/' bad/part-3.csv
wrong "bad/part-3.csv: line 5: column 'a': 'oops': expected a number" \
    --data 'csv:bad/part-*.csv,label=label,learn=100' --progressive
sed -i '5s/.*/1,2/' bad/part-3.csv
wrong 'bad/part-3.csv: line 5: 2 cells: expected 4' --data 'csv:bad/part-*.csv,label=label' --optimizer sgd
cp part-3.svm part-1.svm bad
sed -i '4s/.*/+1 9:1/' bad/part-3.svm
wrong 'bad/part-3.svm: line 4: index of .*: expected at most 3' --data 'libsvm:bad/part-*.svm,features=3' --optimizer sgd
wrong 'bad/none-\*: no file has such a name' --data 'csv:bad/none-*,label=label'
rm -r bad/*
for k in 1 2; do printf 'a,b\nc,d\na,c\nb,d\n' >bad/part-$k.csv; done
wrong '1 more files begin with the same row.*header=yes (it is one) or header=no' --data 'csv:bad/part-*,label=1'
"$dro" data 'csv:bad/part-*,label=1,header=no' >log 2>&1 || fail "header=no"
grep -q '8 examples' log || fail "header=no: not all rows"
"$dro" data 'csv:bad/part-*,label=1,header=yes' >log 2>&1 || fail "header=yes"
grep -q '6 examples' log || fail "header=yes: not all rows"

echo "all passed"
