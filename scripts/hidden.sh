#!/bin/sh
# hidden.sh [NAME...]: builds as if a library were not installed, and runs the fast tests: for each optional library (or
# those named) in turn. JOBS compilers and tests at a time (2); TESTS limits the tests (a regular expression). Writes only
# build-hidden/.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- onednn libzstd libjpeg libpng zlib jansson
for name in "$@"; do
    sh scripts/quiet.sh "configure without $name" cmake -S . -B build-hidden/"$name" -DCMAKE_BUILD_TYPE=Release \
        -DDRO_HIDE="$name" -DDRO_TEST_INSTALL=OFF
    sh scripts/quiet.sh "build without $name" cmake --build build-hidden/"$name" -j "${JOBS:-2}"
    (cd build-hidden/"$name" && sh ../../scripts/quiet.sh "test without $name" ctest --output-on-failure \
        --no-tests=error -j "${JOBS:-2}" -L fast ${TESTS:+-R "$TESTS"})
done
