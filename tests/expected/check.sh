# Sourced by tests/cli_*.sh with $1 = the program dro: runs it and compares what it prints with files in
# tests/expected. DRO_UPDATE=1 writes these files instead. Writes only into a temporary folder.
dro=$1
[ -x "$dro" ] || { echo "FAILED: no program '$dro'"; exit 1; }
expected=$(dirname "$0")/expected
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
DRO_BUSY_DELAY=1000 # a busy machine is not what is tested
export DRO_BUSY_DELAY

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# run STATUS ARGUMENTS...: the exit status must be STATUS; output stays in $work/out and $work/err.
run() {
    wanted=$1
    shift
    "$dro" "$@" >"$work/out" 2>"$work/err"
    status=$?
    [ $status -eq "$wanted" ] || { fail "dro $*: exit status $status instead of $wanted"; cat "$work/err"; }
    what="dro $*"
}

# same FILE [out|err]: the last output is exactly the file.
same() {
    if [ -n "${DRO_UPDATE:-}" ]; then
        cp "$work/${2:-out}" "$expected/$1"
    elif ! diff -u "$expected/$1" "$work/${2:-out}"; then
        fail "$what: not what is in tests/expected/$1"
    fi
}

# silent out|err: nothing was printed there.
silent() {
    [ ! -s "$work/$1" ] || { fail "$what: printed something on std$1"; head -3 "$work/$1"; }
}

# has TEXT [out|err]: the last output contains the text.
has() {
    grep -qF -- "$1" "$work/${2:-out}" || { fail "$what: no '$1' in std${2:-out}"; cat "$work/${2:-out}"; }
}

# shape: numbers become N and runs of spaces one space, so that measured tables can be compared.
shape() {
    sed -e 's/[0-9][0-9.]*\(e[+-][0-9]*\)\{0,1\}/N/g' -e 's/  */ /g' -e 's/^\(.*\), N cores.*/MACHINE/' \
        "$work/out" >"$work/shape"
    mv "$work/shape" "$work/out"
}

# json: standard output is one JSON document (checked where there is a Python).
json() {
    silent err
    if command -v python3 >/dev/null 2>&1; then
        python3 -c 'import json, sys; json.load(sys.stdin)' <"$work/out" 2>/dev/null ||
            fail "$what: not one JSON document"
    fi
}

finish() {
    [ $failures -eq 0 ] && exit 0
    echo "$failures failures"
    exit 1
}
