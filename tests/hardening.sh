#!/bin/sh
# hardening.sh FILE...: the program and the shared library have a stack protector, fortified calls of the C library, full
# RELRO, a stack that is not executed, and may be loaded anywhere. Exit status 77 without readelf.
command -v readelf >/dev/null 2>&1 || { echo "skipped: readelf is missing (binutils)"; exit 77; }
failures=0
for file; do
    seen=
    check() { # NAME PATTERN OPTIONS...
        name=$1 pattern=$2
        shift 2
        if LC_ALL=C readelf -W "$@" "$file" | grep -Eq "$pattern"; then seen="$seen $name"
        else echo "FAILED: $file: no $name"; failures=$((failures + 1)); fi
    }
    check RELRO 'GNU_RELRO' -l
    check BIND_NOW 'BIND_NOW|FLAGS.* NOW' -d
    check NX 'GNU_STACK.* RW ' -l
    check PIE 'Type: *DYN' -h
    check stack-protector '__stack_chk_fail' --dyn-syms
    check FORTIFY '__(snprintf|vsnprintf|memcpy|sprintf|fprintf|printf)_chk' --dyn-syms
    echo "$(basename "$file"):$seen"
done
[ $failures -eq 0 ]
