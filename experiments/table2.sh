#!/bin/sh
# Table 2: SGD with momentum against RECOVER on CIFAR-10 with imratio 0.02, 0.05, 0.1 and 0.2, and what the recipe
# adds. SGD, with the plain and the logit-adjusted loss, and RECOVER are tuned alike for each imratio: six settings on
# a holdout, at a third of the length; five seeds with the best. The recipe is not tuned: recipe.sh chose it, once.
. "$(dirname "$0")/lib.sh"

for ratio in ${RATIOS:-0.02 0.05 0.1 0.2}; do
    data=$(spec "$ratio") at=table2/$ratio
    set -- --data "$data" --model "$(model resnet32)" --batch "$(size)" --eval-every 10 --set eval_train=last
    tune=$(length 40 5) epochs=$(length 120 15)
    sweep sgd $at/tune-sgd sgd "$@" --epochs "$tune" --grid eta=0.05,0.1,0.2 --grid weight_decay=5e-4,1e-3
    sweep sgd-la $at/tune-sgd-la sgd "$@" --epochs "$tune" --loss logit-adjusted \
        --grid eta=0.05,0.1,0.2 --grid weight_decay=5e-4,1e-3
    sweep recover $at/tune-recover recover "$@" --epochs "$tune" --grid lambda=5,20,100 --grid eta=0.5,1
    add sgd sgd config=$OUT/$at/tune-sgd/best.json
    add sgd-la sgd config=$OUT/$at/tune-sgd-la/best.json
    add recover recover config=$OUT/$at/tune-recover/best.json
    add recipe recover recipe=imbalanced ${RECIPE:-}
    compare $at/final "$@" --epochs "$epochs"
done
