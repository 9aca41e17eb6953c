#!/bin/sh
# lint.sh [FILE.c...]: cppcheck, clang-tidy (bugprone, cert, clang-analyzer) and gcc -fanalyzer over src and cli, without
# the cuda backend and the MPI module, which need their headers. One line per tool; exit status 1 on any finding, 77 where a
# tool is missing. Writes build-lint/ only. JOBS: at the same time (1). TOOLS: which (cppcheck tidy analyzer). Findings that
# are false are listed in lint-false.txt, by check and file, with the reason.
#
# Switched off, with the reason: checks of style (reserved names, easily swapped parameters, assignments in conditions,
# narrowing, branches that are alike, dead stores, text that is copied without its end, loops over powers of a number), the
# "insecure" calls of Annex K, which glibc does not have, rand(), return values of printf and the like (cert-err33-c),
# calloc() of 0 bytes, which is fine where we run, and what reported false findings only: gcc's malloc-leak, cppcheck's
# nullPointerOutOfMemory, the arrays that gcc makes of the sums of `omp simd` loops (no -fopenmp-simd). DRO_LINT tells the
# analyzers, which see one file at a time, what the error functions return (base.h).
set -u
cd "$(dirname "$0")/.."
JOBS=${JOBS:-1}
TOOLS=${TOOLS:-cppcheck tidy analyzer}
mkdir -p build-lint
if [ $# -gt 0 ]; then printf '%s\n' "$@"
else find src cli -name '*.c' ! -path 'src/backend/cuda/*' ! -path 'src/comm/mpi/*'; fi | sort >build-lint/sources
flags="-std=gnu11 -Iinclude -Icli $(find src -type d ! -path 'src/backend/cuda*' | sed 's/^/-I/' | tr '\n' ' ')
    -DDRO_WITH_CPU=1 -DDRO_WITH_ONEDNN=1 -DDRO_BUILD -DDRO_LINT -DDRO_LIBDIR=__FILE__"
for pair in ZLIB:zlib ZSTD:libzstd JPEG:libjpeg PNG:libpng JANSSON:jansson; do
    pkg-config --exists "${pair#*:}" && flags="$flags -DDRO_WITH_${pair%:*}=1"
done
failed=0
tool() { # NAME: its findings are in build-lint/NAME.log
    grep -E ': (fatal error|warning|error|style|performance|portability)' "build-lint/$1.log" | sed "s|^$PWD/||" | sort -u |
        awk 'FNR == NR { if ($1 !~ /^\/\//) false_ones[$1] = 1; next }
            { split($0, at, ":"); check = $NF; gsub(/^\[-?W?|\]$/, "", check); sub(/,.*/, "", check)
              folder = at[1]; sub(/[^\/]*$/, "*", folder)
              if (!((check ":" at[1]) in false_ones) && !((check ":" folder) in false_ones)) print }' \
            scripts/lint-false.txt - >"build-lint/$1.findings"
    echo "lint $1: $(wc -l <build-lint/sources) files, $(wc -l <"build-lint/$1.findings") findings"
    [ -s "build-lint/$1.findings" ] || return 0
    head -n 40 "build-lint/$1.findings"
    failed=1
}
for name in $TOOLS; do
    case $name in
    cppcheck)
        command -v cppcheck >/dev/null || { echo "lint: cppcheck is missing" >&2; exit 77; }
        # shellcheck disable=SC2086
        cppcheck -j "$JOBS" --enable=warning,portability --inline-suppr --quiet --std=c11 --error-exitcode=0 \
            --suppress=missingIncludeSystem --suppress=unknownMacro --suppress=nullPointerOutOfMemory \
            --suppressions-list=scripts/lint-false.txt --suppress=preprocessorErrorDirective \
            $(echo $flags | tr ' ' '\n' | grep -E '^-[ID]') --file-list=build-lint/sources >build-lint/cppcheck.log 2>&1
        tool cppcheck
        ;;
    tidy)
        command -v clang-tidy >/dev/null || { echo "lint: clang-tidy is missing" >&2; exit 77; }
        checks='-*,bugprone-*,cert-*,clang-analyzer-*,-bugprone-easily-swappable-parameters,-bugprone-narrowing-conversions'
        checks="$checks,-bugprone-reserved-identifier,-cert-dcl37-c,-cert-dcl51-cpp,-bugprone-assignment-in-if-condition"
        checks="$checks,-bugprone-branch-clone,-bugprone-implicit-widening-of-multiplication-result,-cert-err33-c"
        checks="$checks,-clang-analyzer-security.insecureAPI.*,-clang-analyzer-optin.performance.Padding,-cert-msc30-c"
        checks="$checks,-cert-msc50-cpp,-bugprone-macro-parentheses,-cert-err34-c,-cert-dcl03-c,-bugprone-sizeof-expression"
        checks="$checks,-clang-analyzer-optin.portability.UnixAPI,-clang-analyzer-deadcode.DeadStores,-cert-arr39-c"
        checks="$checks,-bugprone-not-null-terminated-result,-cert-flp30-c,-clang-analyzer-security.FloatLoopCounter"
        # shellcheck disable=SC2086
        xargs -P "$JOBS" -I '{}' clang-tidy --quiet --checks="$checks" '{}' -- $(echo $flags) -w \
            <build-lint/sources >build-lint/tidy.log 2>&1
        tool tidy
        ;;
    analyzer)
        # shellcheck disable=SC2086
        xargs -P "$JOBS" -I '{}' ${CC:-gcc} $(echo $flags) -O1 -fanalyzer -Wno-analyzer-malloc-leak \
            -c '{}' -o /dev/null <build-lint/sources >build-lint/analyzer.log 2>&1
        tool analyzer
        ;;
    esac
done
exit $failed
