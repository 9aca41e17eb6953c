#!/bin/sh
# What the paper has not: the tilt over classes, losses that know how rare a class is, late switches, and each of
# them under RECOVER and under SGD with momentum. absgd with tilt=none is SGD; with tilt=class and a lambda
# that is too large to tilt anything it weighs every class alike. sgd+recipe is the recipe's loss and weight decay.
. "$(dirname "$0")/lib.sh"

for ratio in ${RATIOS:-0.1}; do
    add sgd sgd
    add sgd+weights absgd tilt=class lambda=1e6
    add sgd+class absgd tilt=class lambda=1
    add sgd+late-weights absgd tilt=none switch_step=0.75 switch_tilt=class switch_lambda=1e6
    add sgd+late-class absgd tilt=none switch_step=0.5 switch_tilt=class switch_lambda=0.5
    add sgd+la sgd loss=logit-adjusted
    add sgd+la+late-class absgd loss=logit-adjusted tilt=none switch_step=0.75 switch_tilt=class switch_lambda=1
    add recover recover
    add recover+weights recover tilt=class lambda=1e6
    add recover+class recover tilt=class lambda=1
    add recover+late-weights recover switch_step=0.75 switch_tilt=class switch_lambda=1e6
    add recover+late-class recover switch_step=0.5 switch_tilt=class switch_lambda=0.5
    add recover+la recover loss=logit-adjusted
    add recover+la+late-class recover loss=logit-adjusted switch_step=0.75 switch_tilt=class switch_lambda=1
    add recipe recover recipe=imbalanced
    add sgd+recipe sgd recipe=imbalanced
    compare beyond/"$ratio" --data "$(spec "$ratio")" --model "$(model resnet20)" --batch "$(size)" \
        --epochs "$(length 120 15)" --eval-every 10 --set eval_train=last --set report_lambda=20 --set report_tilt=example
done
