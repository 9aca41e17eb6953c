#!/bin/sh
# Help, version and `dro list`, to the letter. $1: the program.
. "$(dirname "$0")/expected/check.sh"

run 0 --help
same help.txt
silent err
run 0 --version
same version.txt
# Every command that there is, and the two that are not in the list.
run 0 --help
sed -n 's/^  \(bench [a-z]*\|[a-z]*\)  .*/\1/p' "$work/out" >"$work/commands"
printf 'completion\nman\n' >>"$work/commands"
[ "$(wc -l <"$work/commands")" -ge 18 ] || fail "dro --help: commands are missing"
while read -r command; do
    run 0 $command --help
    same "help_$(echo "$command" | tr ' ' _).txt"
    silent err
done <"$work/commands"
run 0 list -h
same help_list.txt

run 0 list
same list.txt
silent err
run 0 list --json
json
has '"formats"'

run 0 list optimizers
same list_optimizers.txt
silent err
run 0 list optimizers sgd
same list_optimizers_sgd.txt
run 0 list optimizers recover
same list_optimizers_recover.txt
run 0 list optimizers sgd --json
same list_optimizers_sgd.json
json
run 0 list --json optimizers
json
names=$("$dro" list optimizers | sed 1d | cut -d' ' -f1)
for name in $names; do
    has "\"name\": \"$name\""
done
for name in $names; do
    run 0 list optimizers "$name"
    [ "$(awk '{ if (length > most) most = length } END { print most }' "$work/out")" -le 100 ] ||
        fail "list optimizers $name: a line of more than 100 characters"
done

run 0 list models
same list_models.txt
silent err
run 0 list models --json
same list_models.json
json

run 0 list losses
same list_losses.txt
silent err
run 0 list losses --json
json
has '"ldam_margin"'

run 0 list metrics
same list_metrics.txt
silent err
run 0 list metrics --json
json
has '"name": "balanced_accuracy"'

run 0 list recipes
same list_recipes.txt
silent err
run 0 list recipes --json
json
has '"recipe": "imbalanced"'

run 0 list settings
silent err
for line in 'every run:' 'networks:' 'all optimisers but lbfgs, newton:' 'cover, recover:'; do
    has "$line"
done
grep -q "^  eta  *by optimizer " "$work/out" || fail "list settings: eta has one default"
if grep -q null "$work/out"; then fail "list settings: a text is missing"; fi
[ "$(awk '{ if (length > most) most = length } END { print most }' "$work/out")" -le 100 ] ||
    fail "list settings: a line of more than 100 characters"
run 0 list settings --json
json
has '"applies_to": "lbfgs, newton"'
has '"defaults": {'

# One row of src/train/settings.def is all of a setting: help, completions, the manual page and config.json have it.
tr -d '\n' <"$work/out" | sed 's/}/}\n/g' | sed -n 's/.*"name": "\([a-z_]*\)".*"applies_to": "every run".*/\1/p' \
    >"$work/settings"
[ "$(wc -l <"$work/settings")" -ge 28 ] || fail "list settings --json: settings of every run are missing"
"$dro" train --help >"$work/help"
"$dro" completion bash | sed -n "/^    'train')/,/first=/p" >"$work/bash"
"$dro" completion zsh | sed -n "/^    'train')/,/;;$/p" >"$work/zsh"
"$dro" man train | sed 's/\\-/-/g' >"$work/man"
run 0 train --data synth:glyphs,n=100,test=50,size=8 --model linear --steps 2 --out "$work/run"
while read -r name; do
    option=--$(echo "$name" | tr _ -)
    for page in help bash zsh man; do
        grep -qE -- "$option([^a-z-]|$)" "$work/$page" || fail "$name: not in $page of train"
    done
    grep -q "^  \"$name\": " "$work/run/config.json" || fail "$name: not in config.json"
done <"$work/settings"

run 0 list formats
same list_formats.txt
silent err
[ "$(awk '{ if (length > most) most = length } END { print most }' "$work/out")" -le 100 ] ||
    fail "list formats: a line of more than 100 characters"
run 0 list formats --json
json
has '"name": "cifar100"'
run 0 list formats csv
same list_formats_csv.txt
run 0 list formats csv --json
json
has '"name": "csv"'
if grep -q cifar "$work/out"; then fail "list formats csv --json: more than one"; fi
run 2 list formats libsvn
has "list: no format 'libsvn': did you mean 'libsvm'?" err

run 0 list backends
has "plain C"
run 0 list backends --json
json
has '"name": "ref"'
has '"works": true'
# A backend that is not in this build, or does not work here: the line names the way out.
run 0 list backends
if ! grep -q '^cuda' "$work/out"; then
    run 2 list models --backend cuda
    has '`make cuda` builds it with cuda' err
elif grep -q '^cuda .*; cannot be used here: ' "$work/out"; then
    run 1 list models --backend cuda
    has " works here" err
    run 0 doctor
    grep -q '^backend cuda  cannot be used here: .*nvidia-smi' "$work/out" || fail "doctor does not say why"
fi

finish
