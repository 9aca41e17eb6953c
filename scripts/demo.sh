#!/bin/sh
# The demo, with the program built in BUILD (default build/), into BUILD/demo: SGD, SCENT and RECOVER with their
# defaults, and RECOVER with the recipe for imbalanced data, on synthetic images of ten characters, some of them rare;
# three seeds each. Arguments are passed on to `dro compare`. A demo that was stopped resumes; a finished one starts
# again.
set -eu
cd "$(dirname "$0")/.."
: "${BUILD:=build}"
[ ! -e "$BUILD/demo/report.html" ] || rm -rf "$BUILD/demo"
begin=$(date +%s)
"$BUILD/dro" compare --data synth:glyphs,n=15000,test=2000,longtail=exp:50 \
    --arm 'sgd: sgd' --arm 'scent: scent' --arm 'recover: recover' \
    --arm 'recipe: recover recipe=imbalanced' \
    --seeds 3 --jobs 2 --out "$BUILD/demo" "$@"
echo "took    $(($(date +%s) - begin)) s; the page opens in any browser and needs no network"
