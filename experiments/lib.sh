# What the scripts of this folder share. Sourced by them with their arguments; no script of its own.
#
#   --scale SCALE        small (default): made-up images and a small network, minutes on two cores; full: the real
#                        thing; tiny: one epoch of next to nothing, to see that a script works
#   --data DIR           the folder of the data (full): that of the CIFAR-10 binaries, or of the tables
#   --out DIR            where runs go (default build/experiments/SCALE)
#   --backend NAME       as for dro (default auto)
#   --precision WORD     as for dro (default bf16 with --backend cuda)
#   --jobs N             runs at the same time (default 1)
#   --seeds N            of the final runs (default 5 at full scale, 2 at small, 1 at tiny, or what the script says)
#   --arms "A B ..."     only these arms
#   --help               this
#   DRO=PROGRAM, RATIOS="0.05 0.1" in the environment: another program than build/dro; the imratios of table2.sh,
#                        beyond.sh, recipe.sh and fig3_lambda.sh
# The same words in capitals in the environment do the same. What is finished is not run again.
#
# A script may say before it sources this: seeds, its own default at the three scales ("5 2 1"); on, the default of
# its --on, if it has one; tuned=yes, if it has --tuned; epochs, its own default at the three scales, and holdout, if it
# has --epochs and --holdout; rehearsal=no (below).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${DRO:=$here/../build/dro}" "${SCALE:=small}" "${DATA:=}" "${OUT:=}" "${BACKEND:=auto}" "${JOBS:=1}"
: "${SEEDS:=}" "${ARMS:=}" "${PRECISION:=}" "${seeds:=5 2 1}" "${on:=}" "${ON:=$on}" "${tuned:=}" "${TUNED:=}"
: "${epochs:=}" "${EPOCHS:=}" "${holdout:=}" "${HOLDOUT:=$holdout}"

wrong() {
    echo "$0: $*" >&2
    exit 2
}
# The head of the script, and the options above.
help() {
    sed -n '/^#!/d; /^#/!q; s/^# \{0,1\}//p' "$0"
    echo
    sed -n '/^#   --/,/^#$/ s/^# \{0,1\}//p' "$here/lib.sh"
    exit 0
}
while [ $# -gt 0 ]; do
    case $1-$on-$tuned in
    --help-* | -h-*) help ;;
    --scale-* | --data-* | --out-* | --backend-* | --precision-* | --jobs-* | --seeds-* | --arms-* | --on-?*-* | --tuned-*-yes) ;;
    *) case $1-$epochs-$holdout in
        --epochs-?*-* | --holdout-*-?*) ;;
        *) wrong "unknown option '$1': --help lists them" ;;
        esac ;;
    esac
    [ $# -gt 1 ] || wrong "$1 needs a value"
    case $1-$on-$tuned in
    --scale-*) SCALE=$2 ;;
    --data-*) DATA=$2 ;;
    --out-*) OUT=$2 ;;
    --backend-*) BACKEND=$2 ;;
    --precision-*) PRECISION=$2 ;;
    --jobs-*) JOBS=$2 ;;
    --seeds-*) SEEDS=$2 ;;
    --arms-*) ARMS=$2 ;;
    --on-?*-*) ON=$2 ;;
    --tuned-*-yes) TUNED=$2 ;;
    --epochs-*) EPOCHS=$2 ;;
    --holdout-*) HOLDOUT=$2 ;;
    esac
    shift 2
done
[ -z "$TUNED" ] || [ -r "$TUNED" ] || wrong "--tuned $TUNED: cannot be read"
case $SCALE in
full) [ -n "$DATA" ] || wrong "--scale full needs the data: --data DIR" ;;
small) seeds=${seeds#* } epochs=${epochs#* } ;;
tiny) seeds=${seeds##* } epochs=${epochs##* } ;;
*) wrong "--scale $SCALE: expected tiny, small or full" ;;
esac
: "${SEEDS:=${seeds%% *}}"
[ -z "$epochs" ] || : "${EPOCHS:=${epochs%% *}}"
# whole NAME VALUE: a number of runs.
whole() {
    case $2 in '' | 0* | *[!0-9]* | ????*) wrong "$1 $2: expected a whole number from 1 to 999" ;; esac
}
whole --seeds "$SEEDS"
whole --jobs "$JOBS"
[ -z "$epochs" ] || whole --epochs "$EPOCHS"
ARMS=$(echo $ARMS)
[ -x "$DRO" ] || { echo "$0: no program $DRO: run make, or set DRO" >&2; exit 1; }
: "${OUT:=$here/../build/experiments/$SCALE}"
case $DATA in *:*) spec=${DATA%%,*} ;; *) spec=$DATA ;; esac # a SPEC has options
for folder in "$OUT" "$spec"; do # they become parts of settings
    case $folder in *[[:space:],]*) wrong "'$folder': a folder without spaces and commas is needed" ;; esac
done
for ratio in ${RATIOS:-}; do
    case $ratio in *[!0-9.]* | *.*.* | .) wrong "RATIOS '$ratio': expected numbers such as 0.1" ;; esac
done

# The runs of all scripts: one machine's share of flags.
[ "$BACKEND" = cuda ] && : "${PRECISION:=bf16}"
common="--backend $BACKEND --jobs $JOBS${PRECISION:+ --precision $PRECISION}"

# spec RATIO: CIFAR-10 of which the first five classes keep the last RATIO of their images, or made-up images.
spec() {
    case $SCALE in
    full) echo "cifar10:$DATA,imratio=$1" ;;
    small) echo "synth:glyphs,n=4000,test=1000,imratio=$1" ;;
    tiny) echo "synth:glyphs,n=480,test=40,size=12,classes=4,imratio=$1" ;;
    esac
}

# length FULL SMALL [TINY]: a number of this scale (TINY: 1); size: a batch; model NAME: NAME, or the small one.
length() { case $SCALE in full) echo "$1" ;; small) echo "$2" ;; tiny) echo "${3:-1}" ;; esac; }
size() { if [ "$SCALE" = full ]; then echo 128; else echo 32; fi; }
model() { if [ "$SCALE" = full ]; then echo "$1"; else echo glyphnet; fi; }

# wanted ARM: whether --arms names it, or nothing.
known=
wanted() {
    case "$known " in *" $1 "*) ;; *) known="$known $1" ;; esac
    [ -z "$ARMS" ] && return 0
    case " $ARMS " in *" $1 "*) return 0 ;; esac
    return 1
}
# A name in --arms that is no arm is a mistake, which the end of a script knows. So as not to run for hours before, a
# script is gone through with a program that does nothing first (but one that says rehearsal=no before it sources this).
check_arms() {
    for arm in $ARMS; do
        case "$known " in *" $arm "*) ;; *) wrong "--arms: no arm '$arm', only$known" ;; esac
    done
}
trap '[ $? -ne 0 ] || check_arms' EXIT
if [ -n "$ARMS" ] && [ "${rehearsal:-yes}" = yes ] && [ -z "${REHEARSAL:-}" ]; then
    export SCALE DATA OUT BACKEND JOBS SEEDS ARMS PRECISION ON TUNED EPOCHS HOLDOUT
    REHEARSAL=1 DRO=/bin/true sh "$0" >/dev/null || { trap - EXIT; exit 2; }
fi

# add ARM OPTIMISER SETTING=VALUE ...: one arm of the next `compare`, if it is wanted. Settings hold no spaces.
arms=
add() {
    wanted "$1" || return 0
    name=$1
    shift
    arms="$arms
$name: $*"
}

# compare FOLDER flags...: the arms that were added, SEEDS seeds each.
compare() {
    folder=$1
    shift
    [ -n "$arms" ] || return 0
    list=$arms
    arms=
    # one argument for each line
    while [ -n "$list" ]; do
        list=${list#?}
        line=${list%%"
"*}
        list=${list#"$line"}
        set -- "$@" --arm "$line"
    done
    "$DRO" compare $common --seeds "$SEEDS" --out "$OUT/$folder" "$@"
}

# sweep ARM FOLDER OPTIMISER flags...: the setting that the holdout chooses, FOLDER/best.json.
sweep() {
    wanted "$1" || return 0
    folder=$2 optimizer=$3
    shift 3
    "$DRO" sweep $common --optimizer "$optimizer" --out "$OUT/$folder" "$@"
}
