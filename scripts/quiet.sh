#!/bin/sh
# quiet.sh LABEL COMMAND...: runs COMMAND and says in one line how it went; its output is shown only
# when it fails, apart from what was skipped or is missing. Writes one temporary file.
set -u
label=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" >"$log" 2>&1
status=$?
if [ $status -ne 0 ]; then
    cat "$log"
    echo "FAILED: $label" >&2
    exit $status
fi
summary=$(sed -n 's/^\([0-9]*% tests passed.*\)/: \1/p' "$log")
echo "$label$summary"
sed -n -e 's/^-- \(libdro: .*\)/  \1/p' -e '/ warning: /p' "$log"
# Of ctest: each test that was skipped, and why: its line "skipped: ...", or the library that this build lacks.
folder=$(sed -n 's/^Test project //p' "$log")
for test in $(sed -n 's/^ *[0-9]*\/[0-9]* Test .*: \([^ ]*\) .*Skipped.*/\1/p' "$log"); do
    why=$(sed -n "/^[0-9]*\/[0-9]* Testing: $test\$/,/^<end of output>/ { s/^skipped: //p
        s/.*\(this build of libdro has no [a-zA-Z0-9]*\).*/\1/p; s/.*\(this libdro was built without.*\)/\1/p; }" \
        "$folder/Testing/Temporary/LastTest.log" 2>/dev/null | head -1)
    echo "  skipped: $test: ${why:-it does not say why}"
done
