#!/bin/sh
# The demonstration, with the program built in BUILD (default build/), into BUILD/demo: SGD and RECOVER with their
# defaults, and RECOVER with the recipe for imbalanced data, on made-up images of ten characters of which some are rare,
# three seeds each. Arguments go on to `dro compare`.
# One that was stopped goes on; one that was finished begins afresh.
set -eu
cd "$(dirname "$0")/.."
: "${BUILD:=build}"
[ ! -e "$BUILD/demo/report.html" ] || rm -rf "$BUILD/demo"
begin=$(date +%s)
"$BUILD/dro" compare --data synth:glyphs,n=15000,test=2000,longtail=exp:50 \
    --arm 'sgd: sgd' --arm 'recover: recover' --arm 'recipe: recover recipe=imbalanced' \
    --seeds 3 --jobs 2 --out "$BUILD/demo" "$@"
echo "took    $(($(date +%s) - begin)) s; the page opens in any browser and needs no network"
