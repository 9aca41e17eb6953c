#!/bin/sh
# Figures 1 and 2: seven methods on one DRO objective, lambda 5: test accuracy and F against seconds and against
# examples. Each is tuned on a holdout by F there: 24 random settings from the paper's grids at a fifth of the length,
# the best rerun in full. Some of the grids are not the paper's, which would hold no setting that works, or the best at
# their end: RCIVR's steps go down to 0.001 (above 0.03 most diverged), PES-SGDA's to 0.01; the dual steps of Stoc-AGDA
# and PES-SGDA are for the unbiased gradient of p, n/b times an example's (from 1e-5 on all of p soon sits on a few
# examples), PG-SMD2's go down to 1e-6. Stoc-AGDA's eta is its first step, beta1 / tau1 of the paper. The first stages
# of PES-SGDA, and of PG-SMD2, for which the paper names none, are shares of the run, the same in the tuning and in full.
# The step is that of each method, and for every one it is tuned whether it also becomes a tenth after a half of the run
# and a hundredth after three quarters, goes down along a cosine, or neither (eta_schedule). RECOVER has the warm-up of
# lambda that is its default; recover-fixed is the paper's, lambda 5 from the first step on. An epoch is as many examples
# for each of them, RCIVR's big batches counted, which grow up to nearly a pass. A run that is shown has the machine to
# itself (--jobs 1), or seconds would mean nothing; one that diverges goes back and takes half the step. Three seeds of
# them. recover-default and scent-default are not tuned: they have the defaults of `dro train`, except lambda.
#   --on cifar10|cifar100|stl10|inat   the data (default cifar10); --data is the folder of its files
#   --tuned FILE                       no tuning: the settings that an earlier one chose, docs/results/fig12.txt
seeds="3 2 1" on=cifar10 tuned=yes
. "$(dirname "$0")/lib.sh"

batch=128 net=$(model resnet20) side=
case $ON in
cifar10) data=cifar10:$DATA,imratio=0.02 ;; # the last 100 of 5000
cifar100) data=cifar100:$DATA,imratio=0.2 ;; # the last 100 of 500
stl10) data=stl10:$DATA,imratio=0.2 batch=32 ;;
inat) # both lists and the images in one folder, as they are published
    data=inat:$DATA/train2019.json,root=$DATA,test=$DATA/val2019.json batch=64 net=inception_v3 side="--size 299"
    ;;
*) wrong "--on $ON: expected cifar10, cifar100, stl10 or inat" ;;
esac
[ "$SCALE" = full ] || { data=$(spec 0.05) batch=32 net=$(model resnet20) side=; }
: "${FINAL_JOBS:=1}" # of the runs that are shown
whole FINAL_JOBS "$FINAL_JOBS"
at=fig12/$ON
few="--epochs $(length 24 3)" all="--epochs $(length 120 12) --eval-every $(length 3 1 0.5)"
settings=$(length 24 3)
grid=0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1 course=eta_schedule=constant,step,cosine
set -- --data "$data" --model "$net" $side --set report_lambda=5

# What an earlier tuning of this arm chose becomes its best.json: of --tuned, "@ PATH" and the file's line after it.
kept() {
    mkdir -p "$OUT/$at/tune-$1"
    sed -n "\\#^@ $ON/tune-$1/best.json\$# { n; p; }" "$TUNED" >"$OUT/$at/tune-$1/best.json"
    [ -s "$OUT/$at/tune-$1/best.json" ] || wrong "--tuned $TUNED: it has no $ON/tune-$1/best.json"
}
# tune ARM OPTIMISER grids...; dro sweep says with status 3 that every setting diverged
tune() {
    name=$1 method=$2
    shift 2
    if [ -n "$TUNED" ]; then
        ! wanted "$name" || kept "$name"
        add "$name" "$method" config="$OUT/$at/tune-$name/best.json"
        return 0
    fi
    sweep "$name" $at/tune-"$name" "$method" $few --batch $batch --set eval_train=no --eval-every 100 --by objective \
        --random "$settings" --grid $course "$@" || {
        status=$?
        [ $status -eq 3 ] || exit $status
        echo "$name: every setting diverged: it is left out" >&2
        return 0
    }
    add "$name" "$method" config="$OUT/$at/tune-$name/best.json"
}
tune recover recover "$@" --lambda 5 --grid eta=$grid --grid a=$grid
tune recover-fixed recover "$@" --lambda 5 --set lambda_warmup=0 --grid eta=$grid --grid a=$grid
tune rcivr rcivr "$@" --lambda 5 --grid eta=0.001..1 --grid batch=32,64,128 --grid big=32,64,128
tune ascpg ascpg "$@" --lambda 5 --grid eta=0.01..1 --grid eta_power=0.1..0.9 --grid beta_power=0.1..0.9
tune stoc-agda stoc-agda "$@" --lambda 5 --grid eta=0.01..10 --grid tau1=1,10,100,500,1000 \
    --grid dual_eta=1e-9..1e-5 --grid tau2=1,10,100,500,1000
tune pg-smd2 pg-smd2 "$@" --lambda 5 --grid eta=$grid --grid dual_eta=1e-6..1e-3 \
    --grid stage_steps=0.008,0.04,0.08
tune pes-sgda pes-sgda "$@" --lambda 5 --grid eta=0.01..1 --grid dual_eta=1e-9..1e-5 \
    --grid stage_steps=0.04,0.08,0.25,0.5
tune sgd sgd "$@" --grid eta=0.01..0.5
add recover-default recover lambda=5 batch=$batch
add scent-default scent lambda=5 batch=$batch
common="--backend $BACKEND --jobs $FINAL_JOBS${PRECISION:+ --precision $PRECISION}"
compare $at/final "$@" $all --set eval_train=yes --on-divergence halve # the batch is that of each config: RCIVR's is tuned
