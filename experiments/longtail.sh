#!/bin/sh
# Long tails: CIFAR-10-LT and CIFAR-100-LT (longtail=exp:100), ResNet-32. The base is SGD with logit adjustment. One
# row for each ingredient added to the base, one with all of them, and rows that add the tilt over examples or classes
# to both. Reports the mean accuracy and that of the worst class on the balanced test set. The test set must not choose
# anything: for choices, --holdout holds out a share of the training images and reports that instead.
#   --on "cifar10 cifar100"   the data (default both); --data is the folder of its files, or holds cifar10 and cifar100
#   --epochs N                of every run (default 200 at full scale)
#   --holdout SHARE           report a holdout of the training images, as in 0.2
seeds="3 2 1" on="cifar10 cifar100" epochs="200 15 1" holdout=none
. "$(dirname "$0")/lib.sh"

la=loss=logit-adjusted
auto=augment=crop,flip,autoaugment cut=augment=crop,flip,cutout mixup=mixup=0.2 cutmix=cutmix=1
ema=ema=0.999
sam=sam=0.05
smooth=smoothing_head=0.3
cosine=classifier=cosine
second=stage2=$(length 10 2)
class="objective=kl:1 tilt=class"
all="$auto,cutout $cutmix $ema $sam $smooth $cosine $second"
for set in $ON; do
    case $set in
    cifar10 | cifar100) ;;
    *) wrong "--on $set: expected cifar10 or cifar100" ;;
    esac
    folder=$DATA
    [ ! -d "$DATA/$set" ] || folder=$DATA/$set
    case $SCALE in
    full) data=$set:$folder,longtail=exp:100 ;;
    small) data=synth:glyphs,n=4000,test=1000,longtail=exp:20 ;;
    tiny) data=synth:glyphs,n=480,test=40,size=12,classes=4,longtail=exp:4 ;;
    esac
    at=longtail/$set
    [ "$HOLDOUT" = none ] || { data=$data,holdout=$HOLDOUT at=$at-holdout; }
    add sgd sgd
    add la sgd $la
    add autoaugment sgd $la $auto
    add cutout sgd $la $cut
    add mixup sgd $la $mixup
    add cutmix sgd $la $cutmix
    add ema sgd $la $ema
    add sam sgd $la $sam
    add sam-class sgd $la $sam sam_over=class
    add smoothing sgd $la $smooth
    add cosine sgd $la $cosine
    add stage2 sgd $la $second
    add class sgd $la $class
    add recover recover $la
    add recipe recover recipe=imbalanced
    add sum sgd $la $all
    add sum-class sgd $la $all $class
    add sum-recover recover $la lambda=20 $all
    compare $at --data "$data" --model "$(model resnet32)" --batch "$(size)" --epochs "$EPOCHS" --eval-every 20 \
        --set eval_train=no
done
