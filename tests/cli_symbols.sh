#!/bin/sh
# What the shared library exports is the list in tests/expected/symbols.txt: a symbol that goes breaks programs, one
# that comes must be meant. $1: the program dro; the library is beside it.
. "$(dirname "$0")/expected/check.sh"
library=$(dirname "$dro")/libdro.so
command -v nm >/dev/null && [ -e "$library" ] || { echo "no nm, or no $library"; exit 77; }
what="libdro.so"
nm -D --defined-only "$library" | sed -n 's/^[0-9a-f]* [A-Z] \(dro_[a-z0-9_]*@@[A-Za-z0-9._]*\)$/\1/p' | sort >"$work/out"
same symbols.txt
if nm -D --defined-only "$library" | grep -q " dro__"; then fail "internal symbols are exported"; fi
# Every public header says what is stable in it and what is experimental.
for header in "$(dirname "$0")"/../include/dro/*.h; do
    grep -qi 'stable\|experimental' "$header" || fail "$header: neither stable nor experimental"
done
finish
