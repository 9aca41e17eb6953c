#!/bin/sh
# Figure 3, left: test accuracy against lambda, RECOVER with its defaults, and SGD as the line to pass. -fixed has its
# lambda from the first step on, as in the paper; by default one below 20 comes last.
. "$(dirname "$0")/lib.sh"

for ratio in ${RATIOS:-0.1}; do
    add sgd sgd
    for lambda in 1 2 5 10 20 50 100; do
        add lambda=$lambda recover lambda=$lambda
    done
    for lambda in 1 5; do
        add lambda=$lambda-fixed recover lambda=$lambda lambda_warmup=0
    done
    compare fig3_lambda/"$ratio" --data "$(spec "$ratio")" --model "$(model resnet20)" --batch "$(size)" \
        --epochs "$(length 120 15)" --eval-every 10 --set eval_train=last
done
