#!/bin/sh
# mutations.sh LIST NOTICED: each mutation of tests/mutations/LIST.txt is applied to a copy of the sources, built, and
# the tests named beside it are run. A mutation is noticed if one of them fails. Fails where fewer than NOTICED are
# noticed, or where a mutation does not apply. ONLY=TEXT takes the mutations whose first line contains TEXT.
#
# A mutation is three lines: `FILE: TEST[:FILTER] ...`, `- old text`, `+ new text`. The old text must occur exactly once
# in the file. FILTER names one test of a test program.
set -eu
cd "$(dirname "$0")/.."
list=$PWD/tests/mutations/$1.txt
wanted=$2
home=$PWD
tree=$PWD/build-mutations
only=${ONLY:-}

# Copies what differs, so that make builds only what a mutation or an edit has changed.
copy_sources() {
    mkdir -p "$tree"
    find CMakeLists.txt CMakePresets.json cmake include src cli tests examples scripts python -type f |
        while read -r file; do
            cmp -s "$file" "$tree/$file" && continue
            mkdir -p "$tree/$(dirname "$file")"
            cp "$file" "$tree/$file"
        done
}

# mutate FILE OLD NEW: replaces OLD, which must occur once, in the copy of FILE.
mutate() {
    OLD=$2 NEW=$3 awk '
        { text = text $0 "\n" }
        END {
            old = ENVIRON["OLD"]
            at = index(text, old)
            rest = substr(text, at + length(old))
            if (!at || index(rest, old)) { exit 1 }
            printf "%s%s%s", substr(text, 1, at - 1), ENVIRON["NEW"], rest
        }' "$home/$1" >"$tree/mutated" || return 1
    cp "$tree/mutated" "$tree/$1"
}

# Runs the tests of a mutation; succeeds if one fails, and says which.
notice() {
    for test in $1; do
        program=${test%%:*}
        filter=${test#"$program"}
        if ! DRO_TEST_DIR=$tree/tests timeout 300 "$tree/build/tests/$program" ${filter:+"${filter#:}"} \
            >"$tree/test.log" 2>&1; then
            echo "$test"
            return 0
        fi
    done
    return 1
}

build() {
    # shellcheck disable=SC2086
    (cd "$tree" && cmake --build --preset cpu -j "${JOBS:-2}" --target $1) >"$tree/build.log" 2>&1
}

copy_sources
programs=$(sed -n 's/^[a-z][^ ]*: //p' "$list" | tr ' ' '\n' | sed 's/:.*//' | sort -u | tr '\n' ' ')
(cd "$tree" && cmake --preset cpu) >"$tree/build.log" 2>&1 && build "$programs" || {
    tail -20 "$tree/build.log"
    exit 1
}
for test in $(sed -n 's/^[a-z][^ ]*: //p' "$list" | tr ' ' '\n' | sort -u); do
    if notice "$test" >/dev/null || ! grep -q 'RUN' "$tree/test.log"; then
        echo "mutations: $test fails, or runs nothing, without a mutation: see $tree/test.log" >&2
        exit 1
    fi
done

all=0 noticed=0 stale=0
while read -r first; do
    case $first in '' | '#'*) continue ;; esac
    IFS= read -r old
    IFS= read -r new
    case $first in *"$only"*) ;; *) continue ;; esac
    file=${first%%: *}
    tests=${first#*: }
    all=$((all + 1))
    if ! mutate "$file" "${old#- }" "${new#+ }"; then
        stale=$((stale + 1))
        echo "STALE     $file: the text does not occur exactly once: ${old#- }"
        continue
    fi
    if ! build "$(echo "$tests" | tr ' ' '\n' | sed 's/:.*//' | tr '\n' ' ')"; then
        stale=$((stale + 1))
        echo "STALE     $file: does not compile: ${new#+ }"
    elif by=$(notice "$tests"); then
        noticed=$((noticed + 1))
        echo "noticed   $file: ${new#+ } ($by)"
    else
        echo "SURVIVED  $file: ${new#+ }"
    fi
    cp "$home/$file" "$tree/$file"
done <"$list"
echo "mutations $1: $noticed of $all noticed, $stale stale"
if [ -n "$only" ]; then wanted=$all; fi
[ "$stale" -eq 0 ] && [ "$noticed" -ge "$wanted" ]
