#!/bin/sh
# A newcomer's first minutes with the program, recorded as text: prints docs/first-minutes.md.
#
#     sh scripts/first-minutes.sh build/dro build/tests/zoo >docs/first-minutes.md
#
# Types each command into a terminal of 100 x 50 characters (tmux) and shows what is on the screen
# when the prompt is back.
set -eu
dro=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
zoo=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
command -v tmux >/dev/null || { echo "first-minutes.sh: install tmux" >&2; exit 1; }
work=$(mktemp -d)
socket=first-minutes-$$
trap 'tmux -L "$socket" kill-server 2>/dev/null; rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/table" "$work/pictures"
ln -s "$dro" "$work/bin/dro"
"$zoo" credit 1 "$work/table"
mv "$work/table/train.csv" "$work/table/loans.csv"
mv "$work/table/test.csv" "$work/table/later.csv"
rm -f "$work/table/about.json" "$work"/table/*.npy
"$zoo" files 1 "$work/pictures"
rm -f "$work/pictures/about.json"

tmux -L "$socket" -f /dev/null new-session -d -x 100 -y 50 \
    "cd '$work' && PATH='$work/bin':\$PATH PS1='\$ ' sh"
sleep 1

typed() { # DIRECTORY COMMAND
    tmux -L "$socket" send-keys "cd '$work/$1'; clear" Enter
    tmux -L "$socket" clear-history
    sleep 1
    rm -f "$work/done"
    tmux -L "$socket" send-keys "clear; $2; touch '$work/done'" Enter
    for second in $(seq 600); do
        [ ! -e "$work/done" ] || break
        sleep 1
    done
    [ -e "$work/done" ] || { echo "first-minutes.sh: no end of: $2" >&2; exit 1; }
    sleep 1
    echo
    echo "    \$ $2"
    tmux -L "$socket" capture-pane -p -S -200 | sed '/^\$ *$/d; s/ *$//' | cat -s | sed '${/^$/d}' | sed 's/^/    /; s/ *$//'
}

cat <<'EOF'
# The first minutes

This page shows what a new user sees: each command as typed, and the screen after it. It is a recording of a real
terminal, made by `sh scripts/first-minutes.sh build/dro build/tests/zoo`. The data is generated: a table of loans,
22 % of which were not paid back, with amounts over several orders of magnitude, and a folder of pictures of different
sizes.

## A table
EOF
typed table "ls"
typed table "dro data loans.csv --label y"
typed table "dro train --data loans.csv --label y"
typed table "dro train --data loans.csv,label=y,test=later.csv,holdout=0.2 --recipe imbalanced --out even"
typed table "dro eval --weights even/weights.safetensors --data csv:later.csv,label=y"
typed table "dro predict --weights even/weights.safetensors --data csv:later.csv --out answers.csv && head -4 answers.csv | cut -c 1-60"
typed table "dro explain --weights even/weights.safetensors --data csv:loans.csv,label=y --objective cvar:0.1 --top 3"
typed table "dro report even"
cat <<'EOF'

## A folder of pictures
EOF
typed pictures "ls . train train/class0 | head -12"
typed pictures "dro data images:."
typed pictures "dro train --data images:.,size=32 --epochs 10 --out run"
typed pictures "dro predict --weights run/weights.safetensors test/class2/000.ppm test/class1/003.ppm"
cat <<'EOF'

## Mistakes
EOF
typed table "dro trian"
typed table "dro train --data loans.csv --label paid"
typed table "dro train --data loans.csv --label y --optimizer adam"
typed table "dro train --data loans.csv --label y --set lr=fast"
typed table "dro train --data loans.csv --label y --model resnet20"
typed table "dro train --data nothing.csv --label y"
