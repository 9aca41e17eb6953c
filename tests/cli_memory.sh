#!/bin/sh
# What does not fit into memory is an error of one line, with the file and the limit, before the memory is
# taken: models of absurd size. The program runs under `ulimit -v`. $1: the program.
. "$(dirname "$0")/expected/check.sh"

# within KIB PART ARGUMENTS...: status 1 in so much memory, one line that has PART.
within() {
    most=$1
    part=$2
    shift 2
    what="dro $* in $most KiB"
    (ulimit -v "$most" && exec "$dro" "$@" >"$work/out" 2>"$work/err")
    code=$?
    [ $code -eq 1 ] || fail "$what: exit status $code instead of 1"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$what: not one line"
    has "$part" err
}
if ! (ulimit -v 1000000 && "$dro" --version >/dev/null 2>&1); then
    echo "left out: this build does not run in 1 GB"
    exit 77
fi

# A model of 10^9 features. Of the two files, the one with the highest index is named.
cd "$work" || exit 1
printf '1 1:1\n-1 1000000000:1\n' >wide.svm
printf '1 1:1\n-1 2:1\n' >narrow.svm
within 1000000 "wide.svm: the model linear has 1000000000 weights for 1000000000 features, and 6 vectors \
of them take 24000 MB: expected at most 512 MB, half of the memory there is (line 2 of the training file \
has the highest index)" train --data libsvm:wide.svm --epochs 1 --out run
within 1000000 "and 4 vectors of them take 16000 MB" train --data libsvm:wide.svm --optimizer sgd --out run
within 1000000 "(line 2 of the test file has the highest index)" \
    train --data libsvm:narrow.svm,test=wide.svm --out run
within 1000000 "expected at most 512 MB, half of the memory there is" \
    train --progressive --data libsvm:wide.svm,features=1000000000 --steps 1 --out run

finish
