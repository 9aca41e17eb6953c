#!/bin/sh
# Do the worst-case weights find wrong labels? 2 % of the training labels are flipped. Each method trains a network
# (with --on table, the default model of a table), and `dro explain` sorts the examples by weight. Prints, of the 2 %
# with the largest weights, the share that was flipped. Each run's folder has the page explain.html.
#   --on cifar10|table   the data (default cifar10); for a table --data is its SPEC
seeds="1 1 1" on=cifar10 rehearsal=no
. "$(dirname "$0")/lib.sh"

share=0.02
case $ON-$SCALE in
cifar10-*) data=$(spec 1) net="--model $(model resnet20) --batch $(size)" ;;
table-*) [ -n "$DATA" ] || wrong "--on table needs --data SPEC"; data=$DATA net= ;;
*) wrong "--on $ON: expected cifar10 or table" ;;
esac
# explain RUN OBJECTIVE: sorts the examples of the run's data, and again with the true labels.
explain() {
    run=$OUT/flipped/$ON/$1-seed1
    for kind in csv html; do
        "$DRO" explain --weights "$run/weights.safetensors" --data "$data,flip=$share" --objective "$2" --top 100 \
            --out "$run/explain.$kind" --backend "$BACKEND" >"$run/explain.txt"
    done
    "$DRO" explain --weights "$run/weights.safetensors" --data "$data" --objective mean --top 1 \
        --out "$run/true.csv" --backend "$BACKEND" >/dev/null
    "${PYTHON:-python3}" "$here/flipped.py" "$1" "$2" "$run"
}
add sgd sgd
add scent scent objective=kl:20
add recover recover objective=kl:20
compare flipped/$ON --data "$data,flip=$share" $net --epochs "$(length 30 3)" --eval-every 30
for arm in sgd scent recover; do
    ! wanted $arm || for objective in kl:1 cvar:$share; do
        explain $arm $objective
    done
done
