#!/bin/sh
# RECOVER with its defaults over lambda and step sizes: no run may diverge. tests/test_stability.c guards the
# same at a small scale. A run that diverges is counted in the table as one that has no figures. One seed.
seeds="1 1 1"
. "$(dirname "$0")/lib.sh"

for lambda in 0.5 1 2 5 10 20 100; do
    for eta in 0.1 0.3 1; do
        add lambda=$lambda-eta=$eta recover lambda=$lambda eta=$eta report_lambda=$lambda
    done
done
compare stability --data "$(spec 0.1)" --model "$(model resnet20)" --batch "$(size)" \
    --epochs "$(length 30 5)" --eval-every 5
