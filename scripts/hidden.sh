#!/bin/sh
# hidden.sh [NAME...]: builds as if a library were not installed, and runs the fast tests: for each optional library (or
# those named) in turn. Left out are fast tests that take most of the time and use none of these libraries: ranks, memory
# that runs out, signals, the browser, the figures of the documents. JOBS compilers and tests at a time (2); TESTS limits
# the tests (a regular expression). Writes only build-hidden/.
set -eu
cd "$(dirname "$0")/.."
long='^(test_ranks|test_no_memory|test_signals|cli_report_browser|cli_results|cli_memory)$'
[ $# -gt 0 ] || set -- onednn libzstd libjpeg libpng zlib jansson
for name in "$@"; do
    sh scripts/quiet.sh "configure without $name" cmake -S . -B build-hidden/"$name" -DCMAKE_BUILD_TYPE=Release \
        -DDRO_HIDE="$name" -DDRO_TEST_INSTALL=OFF
    sh scripts/quiet.sh "build without $name" cmake --build build-hidden/"$name" -j "${JOBS:-2}"
    (cd build-hidden/"$name" && sh ../../scripts/quiet.sh "test without $name" ctest --output-on-failure \
        --no-tests=error -j "${JOBS:-2}" -L fast -E "$long" ${TESTS:+-R "$TESTS"})
done
