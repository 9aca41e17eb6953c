#!/bin/sh
# test-cuda.sh [BUILD]: runs the tests of the cuda backend in BUILD (build-cuda), AT_ONCE (1) of them side by side. On a
# machine with an NVIDIA GPU none may be skipped; on one without it says that what needs a GPU was. Writes one temporary
# file.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build-cuda}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
tests='^(test_cuda|example_|test_net_calls|test_net_steps|test_conv3|cli_cuda)'
ctest --test-dir "$build" -j "${AT_ONCE:-1}" --output-on-failure --no-tests=error -R "$tests" >"$log" 2>&1 ||
    { cat "$log"; echo "FAILED: test (cuda)" >&2; exit 1; }
echo "test (cuda): $(sed -n 's/^\([0-9]*% tests passed.*\)/\1/p' "$log")"
skipped=$(sed -n 's/^ *[0-9]*\/[0-9]* Test .*: \([^ ]*\) .*Skipped.*/\1/p' "$log" | paste -s -d ' ')
if sh scripts/has-gpu.sh test-cuda 2>/dev/null && command -v mpirun >/dev/null; then
    ROUNDS=3 sh scripts/ranks-cuda.sh build-cuda/dro || { echo "FAILED: ranks (cuda)" >&2; exit 1; }
fi
if [ -z "$skipped" ]; then exit 0; fi
if sh scripts/has-gpu.sh test-cuda 2>/dev/null; then
    cat "$log"
    echo "FAILED: test (cuda): there is a GPU, and it was not used: skipped $skipped" >&2
    exit 1
fi
echo "  NO GPU HERE: everything that needs one was compiled and skipped: $skipped"
