#!/bin/sh
# The demonstration, with the program built in build/: SGD and RECOVER, both with their defaults, on made-up
# images of ten characters of which some are rare, three seeds each. Arguments go on to `dro compare`.
# One that was stopped goes on; one that was finished begins afresh.
set -eu
cd "$(dirname "$0")/.."
[ ! -e build/demo/report.html ] || rm -rf build/demo
begin=$(date +%s)
build/dro compare --data synth:glyphs,n=15000,test=2000,longtail=exp:50 --optimizers sgd,recover \
    --seeds 3 --jobs 2 --out build/demo "$@"
echo "took    $(($(date +%s) - begin)) s; the page opens in any browser and needs no network"
