#!/bin/sh
# Every objective with the defaults of its method, over examples and over classes, compared with SGD: does a run
# diverge, and how accurate is the worst class? Each arm reports F of its own objective.
seeds="3 2 1"
. "$(dirname "$0")/lib.sh"

for ratio in ${RATIOS:-0.1}; do
    add sgd sgd
    for method in recover scent sgd adamw; do
        for objective in kl:20 kl-radius:0.1 cvar:0.1 chi2:1; do
            add "$method+${objective%%:*}" $method objective=$objective
        done
    done
    for objective in kl:1 kl-radius:0.1 cvar:0.5 chi2:0.5; do
        add "recover+class-${objective%%:*}" recover objective=$objective tilt=class
    done
    compare objectives/"$ratio" --data "$(spec "$ratio")" --model "$(model resnet20)" --batch "$(size)" \
        --epochs "$(length 120 3)" --eval-every 20 --set eval_train=last
done
