#!/bin/sh
# dro doctor, the completions and the manual pages: what they say, and that shells and man can read them.
# $1: the program.
. "$(dirname "$0")/expected/check.sh"
expected=$(cd "$expected" && pwd)
dro=$(cd "$(dirname "$dro")" && pwd)/$(basename "$dro")
cd "$work" || exit 1

# ---- doctor ----
run 0 doctor --help
same help_doctor.txt
silent err
run 0 doctor
silent err
# Values are the machine's: only what is looked at can be compared.
sed -e '/^$/,$d' -e 's/^\(backend [a-z]*\|[a-zA-Z]*\|huge pages\|this folder\)  .*/\1/' -e '/^backend [^r]/d' \
    -e 's/ *$//' out >kept
cp out whole
mv kept out
same doctor.txt
cp whole out
has "backend ref"
has "works (plain C"
run 0 doctor --json
json
has '"faults"'
# The instruction set can be limited; a name that is none is reported, with those of this processor.
case $(sed -n 's/^instructions *//p' whole) in
sse* | avx*) low=sse choices="avx512, avx2 or sse" ;;
*) low=$(sed -n 's/^instructions *//p' whole) choices=$low ;;
esac
export DRO_CPU=$low
run 0 doctor
[ "$low" != sse ] || has "instructions  $low, limited by DRO_CPU=$low"
# The best of all is no limit.
export DRO_CPU="${choices%%,*}"
run 0 doctor
has "instructions  "
! grep -q "limited by" out || fail "DRO_CPU=$DRO_CPU: $(grep instructions out)"
export DRO_CPU=mmx
run 0 doctor
has "is no instruction set: expected $choices; other commands refuse it"
run 2 list optimizers
has "dro: DRO_CPU=mmx: expected $choices, or unset it" err
unset DRO_CPU
mkdir locked
if [ "$(id -u)" -ne 0 ]; then
    chmod 500 locked
    (cd locked && "$dro" doctor) >out
    has "cannot be written to"
    chmod 700 locked
fi
run 2 doctor more
silent out

# ---- completion ----
run 0 completion bash
silent err
cp out dro.bash
if command -v bash >/dev/null 2>&1; then
    bash -n dro.bash || fail "bash does not read its completion"
    cat >try.bash <<'END'
. ./dro.bash
try() { # WORDS...: what the last one can become
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    _dro
    echo "$*: ${COMPREPLY[*]}"
}
try dro com
try dro compare --opt
try dro compare --optimizers rec
try dro train --tilt ''
try dro train --backend re
try dro train --data synt
try dro sweep --by bal
try dro list mod
try dro bench mem
try dro bench memory --ma
try dro train --config ru
END
    echo text >run.json
    bash try.bash >out 2>&1
    same completion.txt
fi
run 0 completion zsh
silent err
cp out _dro
has "#compdef dro"
if command -v zsh >/dev/null 2>&1; then
    zsh -n ./_dro || fail "zsh does not read its completion"
    mkdir -p folder
    cat >lines <<'END'
dro tra
dro train --optimizer reco
dro train --optimizer=reco
dro train --data syn
dro train --tilt gro
dro train --config ru
dro train --out fol
dro bench mem
dro list opt
dro eval --wei
END
    # Types each line into an interactive zsh, presses tab, and writes down what stands there then.
    cat >try.zsh <<'END'
zmodload zsh/zpty
zpty z 'TERM=dumb zsh -f -i'
zpty -w z 'fpath=($PWD $fpath); autoload -U compinit; compinit -u -D'
zpty -w z 'show() { print -r -- "$BUFFER" >>shown; BUFFER= }; zle -N show; bindkey "^X" show; : >ready'
for k in {1..100}; do [[ -e ready ]] && break; sleep 0.1; done
count=0
while IFS= read -r line; do
    zpty -w -n z "$line"$'\t\C-x'
    (( count++ ))
    for k in {1..100}; do [[ -e shown && $(wc -l <shown) -ge $count ]] && break; sleep 0.05; done
done <lines
END
    zsh -f try.zsh </dev/null >said 2>&1
    what="zsh's completion"
    [ -s shown ] && cp shown out || cp said out
    same completion_zsh.txt
else
    echo "zsh's completion: only looked at, there is no zsh here"
fi
run 2 completion fish
silent out
has "expected bash or zsh" err
run 2 completion
silent out

# ---- manual pages ----
run 0 man --out pages
silent out
silent err
for page in dro dro-train dro-compare dro-sweep dro-doctor dro-bench-memory; do
    [ -s "pages/$page.1" ] || fail "no page $page.1"
done
[ ! -e pages/dro-man.1 ] || fail "a page of a hidden command"
run 0 man doctor
same man_doctor.txt
cmp -s out pages/dro-doctor.1 || fail "dro man doctor is not the page"
run 0 man bench memory
has "DRO-BENCH-MEMORY"
for page in pages/*.1; do
    if command -v groff >/dev/null 2>&1; then
        groff -man -Tascii -z -ww "$page" >said 2>&1
        [ ! -s said ] || { fail "groff about $page"; head -3 said; }
    fi
    if command -v mandoc >/dev/null 2>&1; then
        mandoc -T lint -W error "$page" >said 2>&1 || { fail "mandoc about $page"; head -3 said; }
    fi
done
if command -v man >/dev/null 2>&1 && man -l pages/dro-train.1 >said 2>&1; then
    cp said out
    what="man dro-train"
    has "SYNOPSIS"
fi
run 2 man nonsense
silent out
run 1 man --out said/below
silent out

# ---- the first line comes within a second ----
# Measured to the first byte on stdout or stderr. A machine that is busy with other tests is slow now and then:
# three seconds, three times in a row, is a failure; more than one is said.
first() { # ms until dro says something
    rm -f first # a child of the last one may still write there
    mkfifo first
    begin=$(date +%s%N)
    DRO_BUSY_DELAY=0.7 "$dro" "$@" >first 2>&1 &
    pid=$!
    said=$(head -c 1 <first | wc -c)
    took=$((($(date +%s%N) - begin) / 1000000))
    kill $pid 2>/dev/null
    wait $pid 2>/dev/null
    rm -rf long
    [ "$said" -eq 1 ] || fail "dro $*: said nothing"
}
data="synth:glyphs,n=120,test=30,size=12,classes=3"
long="--data synth:glyphs,n=3000,size=12,classes=3 --epochs 2000 --out long"
run 0 train --data $data --epochs 1 --out small --json
for command in "--help" "train --help" "compare --help" "list models" "list optimizers" "list recipes" "man" \
    "doctor" "completion bash" "data $data" "data synth:glyphs,n=400000" "report small" "report small --json" \
    "train $long" "train $long --json" "compare $long" "compare $long --json" "sweep $long --grid lr=0.1,0.2" \
    "sweep $long --grid lr=0.1,0.2 --json" \
    "eval --weights small/weights.safetensors --data $data" \
    "eval --weights small/weights.safetensors --data synth:glyphs,n=9,test=400000,size=12,classes=3 --json" \
    "predict --weights small/weights.safetensors --data $data" \
    "predict --weights small/weights.safetensors --data synth:glyphs,n=9,test=400000,size=12,classes=3 --out long" \
    "bench data $data" "bench data $data --json" "bench step" "bench step --json" \
    "bench memory --max 1e4 --seconds 0" "bench memory --max 1e4 --seconds 0 --json" "bench linear" "bench linear --json" "bench vector" "bench vector --json" \
    "bench rates" "bench rates --json"; do
    for again in 1 2 3; do
        first $command
        [ $took -gt 3000 ] || break
    done
    [ $took -le 3000 ] || fail "dro $command: $took ms to the first line"
    [ $took -le 1000 ] || echo "slower than a second on this machine now: $took ms: dro $command"
    [ -z "${DRO_TIMES:-}" ] || echo "$took ms: dro $command"
done

# ---- what is said in a long silence: one line on stderr ----
what="dro train --json"
DRO_BUSY_DELAY=0 "$dro" train --data $data --epochs 30 --out patient --json >out 2>err || fail "$what: status $?"
has "training on $data, into patient" err
[ "$(wc -l <err)" -eq 1 ] || fail "$what: more than one line on stderr"
DRO_BUSY_DELAY=1000 "$dro" train --data $data --epochs 30 --out patient2 --json >out 2>err
json

finish
