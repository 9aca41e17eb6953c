#!/bin/sh
# What the recipe for imbalanced classes should be: candidates, chosen by balanced accuracy on a holdout of a fifth.
# The test set is shown beside it and decides nothing. Two seeds.
seeds="2 2 1"
. "$(dirname "$0")/lib.sh"

la=loss=logit-adjusted
late="switch_step=0.75 switch_tilt=class"
add sgd sgd
add sgd+la sgd $la
add recover+la recover $la
add recover+la-lambda=100 recover $la lambda=100
add recover+la-tau=1.5 recover $la tau=1.5
add recover+la-tau=2 recover $la tau=2
add recover+la-wd=1e-3 recover $la weight_decay=1e-3
add recover+la-tau=1.5-wd=1e-3 recover $la tau=1.5 weight_decay=1e-3
add recover+la+late-class=1 recover $la $late switch_lambda=1
add recover+la+late-class=3 recover $la $late switch_lambda=3
add recover+la+late-shares=1 recover $la $late switch_lambda=1 group_prior=data
for ratio in ${RATIOS:-0.1}; do
    compare recipe/"$ratio" --data "$(spec "$ratio"),holdout=0.2" --model "$(model resnet20)" \
        --batch "$(size)" --epochs "$(length 120 15)" --eval-every 20 --set eval_train=last
done
