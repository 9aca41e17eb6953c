#!/bin/sh
# A first look at CIFAR-10 at full scale, before anything was tuned: what the loss and RECOVER's a do. The arms name
# what was the default then (a_rule=auto, guard 1; the recipe with tau 1); two seeds, half as many of the arms with a
# fixed a.
seeds="2 2 1"
. "$(dirname "$0")/lib.sh"

set -- --data "$(spec 0.1)" --model "$(model resnet20)" --batch "$(size)" --epochs "$(length 120 15)" \
    --eval-every "$(length 10 5)" --set eval_train=last --set report_lambda=20
then="tau=1 weight_decay=5e-4"
add sgd sgd
add sgd+la sgd loss=logit-adjusted
add recover recover a_rule=auto guard=1
add recipe recover recipe=imbalanced $then a_rule=auto guard=1
compare first "$@"
add recover-a0.9 recover a_rule=fixed a=0.9 guard=1
add recover-a0.5 recover a_rule=fixed a=0.5 guard=1
add recipe-a0.9 recover recipe=imbalanced $then a_rule=fixed a=0.9 guard=1
add recipe-late recover recipe=imbalanced $then a_rule=fixed a=0.9 guard=1 switch_step=0.75 switch_tilt=class switch_lambda=1
SEEDS=$(((SEEDS + 1) / 2))
compare first-a "$@"
