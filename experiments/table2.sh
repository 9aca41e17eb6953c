#!/bin/sh
# Table 2: SGD with momentum against RECOVER on CIFAR-10 with imratio 0.02, 0.05, 0.1 and 0.2, and what the recipe
# adds. SGD and RECOVER are tuned alike for each imratio: six settings on a holdout, at a third of the length, three
# seeds where the holdout has few images of a rare class; five seeds with the best. Neither the recipe, which recipe.sh
# chose once, nor recover-default is tuned. sgd+recipe is the recipe's loss and weight decay under SGD: what RECOVER adds to
# them is the difference.
# TRIES in the environment: so many seeds for the tuning of every imratio.
. "$(dirname "$0")/lib.sh"

for ratio in ${RATIOS:-0.02 0.05 0.1 0.2}; do
    data=$(spec "$ratio") at=table2/$ratio
    set -- --data "$data" --model "$(model resnet32)" --batch "$(size)" --eval-every 10 --set eval_train=last
    tune=$(length 40 5) epochs=$(length 120 15)
    tries=${TRIES:-1}
    case $ratio in 0.02 | 0.05) tries=${TRIES:-$(length 3 1)} ;; esac
    whole TRIES "$tries"
    sweep sgd $at/tune-sgd sgd "$@" --seeds $tries --epochs "$tune" --grid eta=0.05,0.1,0.2 --grid weight_decay=5e-4,1e-3
    sweep recover $at/tune-recover recover "$@" --seeds $tries --epochs "$tune" --grid lambda=5,20,100 --grid eta=0.5,1
    add sgd sgd config=$OUT/$at/tune-sgd/best.json
    add sgd+recipe sgd recipe=imbalanced
    add recover recover config=$OUT/$at/tune-recover/best.json
    add recover-default recover
    add recipe recover recipe=imbalanced ${RECIPE:-}
    compare $at/final "$@" --epochs "$epochs" --set report_lambda=20 --set report_tilt=example # F, whichever arms there are
done
