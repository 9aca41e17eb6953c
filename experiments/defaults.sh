#!/bin/sh
# What RECOVER's defaults should be for networks: a, the step size and its schedule, lambda, the guard, against SGD with
# momentum at three step sizes and with the cosine. On the plain loss, so that nothing but the optimiser differs.
. "$(dirname "$0")/lib.sh"

for eta in 0.05 0.1 0.2; do
    add sgd-eta=$eta sgd eta=$eta
done
add sgd-cosine sgd eta_schedule=cosine
add recover recover
add recover-cosine recover eta_schedule=cosine
add recover-eta=0.5 recover eta=0.5
add recover-eta=2 recover eta=2
add recover-a=0.9 recover a_rule=fixed a=0.9
add recover-a=0.5 recover a_rule=fixed a=0.5
add recover-a=0.1 recover a_rule=fixed a=0.1
add recover-guard=0.25 recover guard=0.25
add recover-lambda=100 recover lambda=100
compare defaults --data "$(spec 0.1),holdout=0.1" --model "$(model resnet20)" --batch "$(size)" \
    --epochs "$(length 120 15)" --eval-every 10 --set eval_train=last --set report_lambda=20
