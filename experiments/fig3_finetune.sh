#!/bin/sh
# Figure 3, right: the last block and the classifier of one pretrained network are trained further, with
# cross-entropy and focal loss under SGD and DRO under RECOVER. CIFAR-10 stands in for the paper's data. Settings are
# chosen on a holdout, nine for each arm, which the pretrained network has not seen. recover-paper has the paper's grid;
# that of recover goes further down.
#   --on cifar10|imagenet-lt|places-lt   the data (default cifar10); --data is the folder of its files: of the last two
#                        the lists as they are published and the images that they name (resnet50, resnet152)
# PRETRAIN and EPOCHS in the environment: other lengths than 90 and 30 epochs (8 and 5 at --scale small).
on=cifar10
. "$(dirname "$0")/lib.sh"

at=fig3_finetune data=$(spec 0.1) net=resnet20 last='layer3.2.*,linear.*' batch=$(size) side=
case $ON in
cifar10) ;;
imagenet-lt | places-lt)
    name=ImageNet_LT net=resnet50
    [ "$ON" = imagenet-lt ] || name=Places_LT net=resnet152
    data=list:$DATA/${name}_train.txt,root=$DATA,test=$DATA/${name}_test.txt at=$at-$ON
    last='layer4.2.*,fc.*' batch=64 side="--size 224"
    ;;
*) wrong "--on $ON: expected cifar10, imagenet-lt or places-lt" ;;
esac
[ "$SCALE" = full ] || { data=$(spec 0.1) net=$(model $net) last='conv4.*,bn4.*,fc.*' batch=$(size) side=; }
base=$OUT/$at/pretrained
: "${PRETRAIN:=$(length 90 8)}" "${EPOCHS:=$(length 30 5)}"
whole PRETRAIN "$PRETRAIN"
whole EPOCHS "$EPOCHS"
was=$(sed -n 's/.*"epochs": *\([0-9]*\).*/\1/p' "$base/config.json" 2>/dev/null | head -n 1)
[ "${was:-$PRETRAIN}" = "$PRETRAIN" ] || wrong "$base was trained for $was epochs: PRETRAIN=$was, or another --out"
[ -s "$base/result.json" ] ||
    "$DRO" train --backend "$BACKEND" ${PRECISION:+--precision $PRECISION} --resume --data "$data,holdout=0.1" --model $net $side --batch "$batch" --optimizer sgd \
        --epochs "$PRETRAIN" --eval-every 10 --set eval_train=last --out "$base"

set -- --data "$data" --model $net $side --batch "$batch" \
    --init "$base/weights.safetensors" --train-only "$last" \
    --epochs "$EPOCHS" --eval-every 10 --set eval_train=last
steps=0.001,0.002,0.005,0.01,0.02,0.05,0.1,0.2,0.5
for loss in cross-entropy focal logit-adjusted; do
    sweep sgd+$loss $at/tune-sgd+$loss sgd "$@" --loss $loss --grid eta=$steps
    add sgd+$loss sgd config=$OUT/$at/tune-sgd+$loss/best.json
done
sweep sgd+recipe $at/tune-sgd+recipe sgd "$@" --recipe imbalanced --grid eta=$steps
add sgd+recipe sgd config=$OUT/$at/tune-sgd+recipe/best.json
sweep recover $at/tune-recover recover "$@" --grid eta=0.03,0.1,0.3 --grid lambda=0.3,1,5
add recover recover config=$OUT/$at/tune-recover/best.json
sweep recover-paper $at/tune-recover-paper recover "$@" --grid eta=0.1,0.5,1 --grid lambda=1,5,10
add recover-paper recover config=$OUT/$at/tune-recover-paper/best.json
sweep recover+class $at/tune-recover+class recover "$@" --tilt class --grid eta=0.03,0.1,0.3 --grid lambda=0.3,1,3
add recover+class recover config=$OUT/$at/tune-recover+class/best.json
sweep recipe $at/tune-recipe recover "$@" --recipe imbalanced --grid eta=0.03,0.1,0.3 --grid lambda=5,20,100
add recipe recover config=$OUT/$at/tune-recipe/best.json
compare $at/final "$@"
