#!/bin/sh
# test-arm.sh DRO OTHER: a run that DRO began is resumed by OTHER, the same program for another processor;
# and OTHER finds the same loss for DRO's weights, up to rounding. Writes one temporary folder.
set -eu
dro=$1 other=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
data="synth:glyphs,n=240,test=120,size=12,classes=3"
settings="--batch 20 --threads 1 --set checkpoint_every=0"
fail() { echo "FAILED: test-arm: $*" >&2; exit 1; }
# number FILE NAME: of a JSON document.
number() { sed -n "s/.*\"$2\": *\([0-9.eE+-]*\).*/\1/p" "$1" | head -n 1; }
near() { awk -v a="$1" -v b="$2" -v most="$3" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d * d <= most * most) }'; }

$dro train --data "$data" $settings --epochs 4 --out "$work/whole" >/dev/null
# Stopped after some steps: by a signal, as soon as there is a checkpoint.
$dro train --data "$data" $settings --epochs 40 --out "$work/part" >/dev/null 2>&1 &
pid=$!
while [ ! -s "$work/part/last.ckpt" ]; do kill -0 $pid 2>/dev/null || fail "the first run ended"; sleep 0.1; done
kill -TERM $pid
wait $pid || :
[ -s "$work/part/last.ckpt" ] || fail "no checkpoint"
[ ! -s "$work/part/result.json" ] || fail "the first run ended before it was stopped"
$other train --resume --out "$work/part" --max-time 20s >"$work/out" 2>&1 || { cat "$work/out"; fail "resume"; }
grep "resuming after step" "$work/out" || { cat "$work/out"; fail "it did not resume"; }
[ -s "$work/part/result.json" ] || fail "no result"

for program in "$dro" "$other"; do
    $program eval --weights "$work/whole/weights.safetensors" --data "$data" --json >"$work/eval" || fail "eval"
    number "$work/eval" loss >>"$work/losses"
done
near "$(head -n 1 "$work/losses")" "$(tail -n 1 "$work/losses")" 1e-4 ||
    fail "losses $(paste -s -d ' ' "$work/losses")"
echo "losses of the same weights: $(paste -s -d ' ' "$work/losses")"
