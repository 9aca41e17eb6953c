#!/bin/sh
# coverage.sh [FOLDER]: the branches that the tests take, folder by folder, from what a build with the preset coverage has
# counted (default build-coverage). Needs gcov, which comes with gcc.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build-coverage}
for room in base backend opt nn data train report; do
    list=$(find "$build/CMakeFiles/room_$room.dir" -name '*.gcda' 2>/dev/null)
    [ -n "$list" ] || { echo "coverage $room: nothing was counted"; continue; }
    # shellcheck disable=SC2086
    gcov -n -b -c $list 2>/dev/null | awk -v room="$room" '
        /^File/ { ours = index($0, "src/" room "/") }
        ours && /^Lines executed/ { split($2, a, ":"); sub("%", "", a[2]); lines += $4; hit += a[2] * $4 / 100 }
        ours && /^Taken at least once/ { split($4, a, ":"); sub("%", "", a[2]); branches += $6; taken += a[2] * $6 / 100 }
        END { printf "coverage %-8s lines %5.1f %% of %5d, branches %5.1f %% of %5d\n", room,
              lines ? 100 * hit / lines : 0, lines, branches ? 100 * taken / branches : 0, branches }'
done
