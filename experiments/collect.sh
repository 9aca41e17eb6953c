#!/bin/sh
# From runs to documents.
#   collect.sh copy NAME...    what the documents need of experiments (table2, fig12, ...): from OUT, where the
#                              scripts of this folder left it (default build/experiments/full), to docs/results
#   collect.sh write [DOCS]    the tables and figures of DOCS/results.md (default docs) from docs/results alone (or RESULTS)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${DRO:=$here/../build/dro}" "${OUT:=$here/../build/experiments/full}"
docs=$here/../docs

copy() {
    curves=
    case $1 in fig12*) curves=--curves ;; esac
    "${PYTHON:-python3}" "$here/collect.py" "$OUT/$1" "$docs/results/$1" $curves
}

# table NAME COLUMNS FOLDER...: the place <!-- NAME --> of results.md
table() {
    name=$1 columns=$2
    shift 2
    for folder; do
        [ -d "$folder" ] || return 0
    done
    "$DRO" report "$@" --out "$work/page.html" --into "$to#$name" --columns "$columns" >/dev/null
}
# figure FOLDER PLOT: PLOT.svg beside the results
figure() {
    [ -d "$results/$1" ] || return 0
    "$DRO" report "$results/$1" --out "$work/page.html" --svg "$work/svg" >/dev/null
    beside=$(dirname "$to")/results/$1
    mkdir -p "$beside"
    cp "$work/svg/$2.svg" "$beside/$2.svg"
}

write() {
    to=${1:-$docs}/results.md results=${RESULTS:-$docs/results}
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    rare=accuracy,rare_accuracy,frequent_accuracy,worst_class_accuracy
    for plot in accuracy-seconds accuracy-examples objective-seconds objective-examples; do
        figure fig12/cifar10/final $plot
    done
    reach=$(cat "$results/fig12/reach" 2>/dev/null || echo 0.5)
    table fig12 "objective,examples:$reach,seconds:$reach,accuracy,seconds" "$results/fig12/cifar10/final"
    for ratio in 0.02 0.05 0.1 0.2; do
        table "table2 $ratio" $rare "$results/table2/$ratio/final"
    done
    figure table2/0.1/final per-class
    table fig3_lambda $rare,objective "$results/fig3_lambda/0.1"
    table fig3_finetune $rare "$results/fig3_finetune/final"
    table beyond $rare "$results/beyond/0.1"
    figure beyond/0.1 per-class
    for set in a9a adult mammography; do
        table "tabular $set" balanced_accuracy,worst_group_accuracy,auroc,accuracy "$results/tabular/$set"
    done
    table recipe holdout_balanced_accuracy,$rare "$results/recipe/0.1"
    table first $rare,objective "$results/first" "$results/first-a"
    table defaults $rare,objective "$results/defaults"
    table stability objective,accuracy "$results/stability"
}

case ${1:-} in
copy)
    shift
    for name; do copy "$name"; done
    ;;
write)
    shift
    write "$@"
    ;;
*)
    echo "usage: collect.sh copy NAME... | write [DOCS]" >&2
    exit 2
    ;;
esac
