#!/bin/sh
# Figure 3, left: test accuracy against lambda, RECOVER with its defaults, and SGD as the line to pass.
. "$(dirname "$0")/lib.sh"

for ratio in ${RATIOS:-0.1}; do
    add sgd sgd
    for lambda in 1 2 5 10 20 50 100; do
        add lambda=$lambda recover lambda=$lambda
    done
    compare fig3_lambda/"$ratio" --data "$(spec "$ratio")" --model "$(model resnet20)" --batch "$(size)" \
        --epochs "$(length 120 15)" --eval-every 10 --set eval_train=last
done
