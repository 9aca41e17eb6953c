#!/bin/sh
# Tables: a9a, adult and mammography; linear models trained by SGD and by RECOVER, next to scikit-learn's logistic
# regression with and without class weights and its SGDClassifier (tabular.py, PYTHON with scikit-learn). Every
# arm chooses its settings by balanced accuracy on a holdout, anew for every seed: the seed draws the holdout
# and, of mammography, which has no test set, the test set too. The small scale has fewer seeds and epochs.
# --data is the folder with a9a, a9a.t, adult-train.csv, adult-test.csv and mammography.csv.
rehearsal=no # it works on files that the program makes
. "$(dirname "$0")/lib.sh"

[ -n "$DATA" ] || wrong "needs the tables: --data DIR"
: "${PYTHON:=python3}" "${SETS:=a9a adult mammography}"
case $PYTHON in */*) PYTHON=$(cd "$(dirname "$PYTHON")" && pwd)/$(basename "$PYTHON") ;; esac
"$PYTHON" -c 'import numpy, sklearn' 2>/dev/null || {
    echo "$0: $PYTHON has no numpy or scikit-learn: make test-peers, then PYTHON=build-peers/venv/bin/python" >&2
    exit 1
}
for file in a9a adult-train.csv mammography.csv; do
    [ -s "$DATA/$file" ] || wrong "--data $DATA: no file $file there"
done
DATA=$(cd "$DATA" && pwd)
mkdir -p "$OUT" && OUT=$(cd "$OUT" && pwd)
DRO=$(cd "$(dirname "$DRO")" && pwd)/$(basename "$DRO")
export OMP_NUM_THREADS=1 # many small fits
eta=0.03,0.1,0.3 # of SGD with momentum 0.9; RECOVER has none and takes ten times as much
etas=0.3,1,3
lambda=0.3,1,5
tune=$(length 10 3) epochs=$(length 20 5)

# linear NAME OPTIMISER flags...: chosen on the holdout, then trained on all of the training set
linear() {
    name=$1 optimizer=$2
    shift 2
    wanted "$name" || return 0
    [ ! -s "$to/$name-seed$seed/predict.csv" ] || return 0
    "$DRO" sweep $common --threads 1 --optimizer "$optimizer" --data "$data,holdout=0.2,seed=$seed" --seed $seed \
        --epochs "$tune" --eval-every 100 --grid eta=$([ "$optimizer" = sgd ] && echo $eta || echo $etas) \
        --out "$to/tune-$name-seed$seed" "$@" >/dev/null
    "$DRO" compare --threads 1 --data "$data" --epochs "$epochs" --eval-every 100 --seed $seed --seeds 1 --out "$to" \
        --arm "$name: $optimizer config=$to/tune-$name-seed$seed/best.json" >/dev/null
    "$DRO" predict --weights "$to/$name-seed$seed/weights.safetensors" --data "$data" \
        --out "$to/$name-seed$seed/predict.csv"
}

for set in $SETS; do
    to=$OUT/tabular/$set tmp=$OUT/tabular-tune/$set
    mkdir -p "$to" "$tmp"
    seed=1
    while [ $seed -le "$SEEDS" ]; do
        folder=$DATA
        case $set in
        a9a) data=libsvm:a9a,test=a9a.t ;;
        adult) data=csv:adult-train.csv,label=15,test=adult-test.csv,group=10 ;;
        mammography)
            data=csv:train.csv,label=7,test=test.csv folder=$tmp/split$seed
            [ -s "$folder/test.csv" ] || "$PYTHON" "$here/tabular.py" split "$DATA/mammography.csv" "$folder" $seed
            ;;
        *) wrong "SETS: no set '$set', only a9a, adult and mammography" ;;
        esac
        cd "$folder"
        echo "$set, seed $seed"
        linear sgd sgd
        linear sgd+la sgd --loss logit-adjusted
        linear recover recover --grid lambda=$lambda
        linear recover+class recover --tilt class --grid lambda=$lambda
        linear recover+weights recover --tilt class --lambda 1e6
        linear recipe recover --recipe imbalanced
        linear recipe-lambda=100 recover --recipe imbalanced --lambda 100
        [ $set != adult ] || linear recover+group recover --tilt group --loss logit-adjusted --grid lambda=$lambda
        [ -n "$ARMS" ] || "$PYTHON" "$here/tabular.py" peers $set "$folder" "$to" $seed
        "$PYTHON" "$here/tabular.py" groups $set "$folder" "$to" $seed
        seed=$((seed + 1))
    done
done
