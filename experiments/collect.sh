#!/bin/sh
# From runs to documents.
#   collect.sh copy NAME...    what the documents need of experiments (table2, fig12, ...): from OUT, where the
#                              scripts of this folder left it (default build/experiments/full), to
#                              docs/results/NAME.txt; NAME=OTHER to OTHER.txt (fig3_finetune=fig3_finetune-short)
#   collect.sh write [DOCS]    the tables and figures of DOCS/results.md (default docs) from docs/results alone
# RESULTS names another folder than docs/results. An experiment is one file there: the JSON of its runs one after the
# other, each after a line `@ PATH`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${DRO:=$here/../build/dro}" "${OUT:=$here/../build/experiments/full}"
docs=$here/../docs
kept=${RESULTS:-$docs/results}

copy() {
    curves=
    case $1 in fig12*) curves=--curves ;; esac
    "${PYTHON:-python3}" "$here/collect.py" "$OUT/${1%%=*}" "$work/${1#*=}" $curves
    mkdir -p "$kept"
    pack "$work/${1#*=}" >"$kept/${1#*=}.txt"
}

# pack FOLDER: its files as one text
pack() {
    (cd "$1" && find . -type f | sed 's,^\./,,' | sort | while read -r file; do
        printf '@ %s\n' "$file"
        cat "$file"
    done)
}
# unpack TEXT FOLDER
unpack() {
    sed -n 's,^@ \(.*\)/[^/]*$,\1,p' "$1" | sort -u | while read -r folder; do mkdir -p "$2/$folder"; done
    mkdir -p "$2"
    awk -v to="$2" '/^@ / { close(file); file = to "/" substr($0, 3); printf "" >file; next } { print >file }' "$1"
}

# place NAME: what stands at <!-- NAME --> of results.md becomes $work/text
place() {
    awk -v mark="<!-- $1 -->" -v text="$work/text" '
        $0 == "<!-- end -->" { inside = 0 }
        !inside
        $0 == mark { inside = found = 1; while ((getline line <text) > 0) print line }
        END { exit inside || !found }' "$to" >"$work/document" || {
        echo "$to: no line <!-- $1 --> with a line <!-- end --> after it" >&2
        exit 1
    }
    cp "$work/document" "$to"
}
# table NAME COLUMNS FOLDER...: the place <!-- NAME -->; NAME begins with that of the script
table() {
    name=$1 columns=$2
    shift 2
    for folder; do
        [ -d "$folder" ] && continue
        echo "Not run yet at full scale: \`sh experiments/${name%% *}.sh --scale full --data DIR\`." >"$work/text"
        place "$name"
        return
    done
    "$DRO" report "$@" --out "$work/page.html" --into "$to#$name" --columns "$columns" >/dev/null
}
# figures NAME FOLDER CAPTION PLOT...: FOLDER-PLOT.svg beside the results, shown at <!-- NAME figures -->; nothing without them.
# arms: of which arms, all without it
figures() {
    name=$1 folder=$2 caption=$3
    shift 3
    : >"$work/text"
    if [ -d "$results/$folder" ]; then
        runs=$results/$folder
        [ -z "${arms:-}" ] || runs=$(for arm in $arms; do echo "$results/$folder/$arm-seed"*; done)
        "$DRO" report $runs --out "$work/page.html" --svg "$work/svg" >/dev/null
        mkdir -p "$(dirname "$to")/results"
        for plot; do
            figure=results/$(echo "$folder" | tr / -)-$plot.svg
            cp "$work/svg/$plot.svg" "$(dirname "$to")/$figure"
            echo "![$plot]($figure)"
        done >"$work/text"
        printf '\n%s\n' "$caption" >>"$work/text"
    fi
    place "$name figures"
}

write() {
    to=${1:-$docs}/results.md results=$work/results
    for text in "$kept"/*.txt; do
        unpack "$text" "$results/$(basename "$text" .txt)"
    done
    rare=accuracy,rare_accuracy,frequent_accuracy,worst_class_accuracy
    reach= stay= # examples and seconds until F is as low as that, and stays there
    for level in 0.7 0.2 0.04; do
        reach=$reach,examples:$level,seconds:$level stay=$stay,examples:$level:stay,seconds:$level:stay
    done
    table fig12 "objective$reach,accuracy,seconds" "$results/fig12/cifar10/final"
    table "fig12 stay" "${stay#,}" "$results/fig12/cifar10/final"
    figures fig12 fig12/cifar10/final "Test accuracy, and F on the training set, against seconds and against examples." \
        accuracy-seconds accuracy-examples objective-seconds objective-examples
    for ratio in 0.02 0.05 0.1 0.2; do
        table "table2 $ratio" $rare "$results/table2/$ratio/final"
    done
    figures "table2 0.1" table2/0.1/final "Test accuracy of each class at imratio 0.1." per-class
    table fig3_lambda $rare,objective "$results/fig3_lambda/0.1"
    table fig3_finetune $rare "$results/fig3_finetune/final"
    table "fig3_finetune short" $rare "$results/fig3_finetune-short/final"
    table beyond $rare "$results/beyond/0.1"
    arms="sgd recover sgd+weights recover+weights sgd+la recover+la sgd+recipe recipe"
    figures beyond beyond/0.1 "Test accuracy of each class: no tilt, class weights, logit-adjusted loss, the recipe." per-class
    arms=
    for set in a9a adult mammography; do
        table "tabular $set" balanced_accuracy,worst_group_accuracy,auroc,accuracy "$results/tabular/$set"
    done
    table recipe holdout_balanced_accuracy,$rare "$results/recipe/0.1"
    table first $rare,objective "$results/first" "$results/first-a"
    table defaults holdout_balanced_accuracy,$rare,objective "$results/defaults"
    table stability objective,accuracy "$results/stability"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case ${1:-} in
copy)
    shift
    [ $# -gt 0 ] || { echo "collect.sh copy: which experiments? NAME... of $OUT" >&2; exit 2; }
    for name; do
        [ -d "$OUT/${name%%=*}" ] ||
            { echo "collect.sh copy $name: there is no folder $OUT/${name%%=*}: run its script, or set OUT" >&2; exit 1; }
        copy "$name"
    done
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
