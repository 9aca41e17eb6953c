#!/bin/sh
# fuzz.sh [RUNS] [NAME...]: builds every tests/fuzz/fuzz_NAME.c (or those named) with clang's libFuzzer and
# the address and undefined-behaviour sanitizers, and runs each for RUNS inputs (20000) from a copy of
# its seed corpus tests/fuzz/corpus/NAME. One line per target; exit status 1 on any finding, 77 where
# clang or libFuzzer is missing. JOBS targets run at the same time (1); SEED makes runs repeatable
# (1; 0: another one every time); SECONDS_EACH ends a run early. Everything is written under build-fuzz/;
# findings stay in build-fuzz/findings. To replay one: build-fuzz/fuzz_NAME FILE.
# fuzz.sh --run NAME RUNS [SEED]: one target that is built already; needs no compiler.
set -eu
cd "$(dirname "$0")/.."
CLANG=${CLANG:-clang}
out=build-fuzz
flags="-std=gnu11 -O1 -g -DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION -fno-omit-frame-pointer -fno-sanitize-recover=undefined
    -Iinclude -Isrc/base -Isrc/backend -Isrc/data -Isrc/nn -Isrc/opt -Isrc/train -Isrc/comm -Isrc/report -Icli -Itests/fuzz
    -include $out/obj/fuzz.h -Wno-string-plus-int"
libs="-lm -lpthread -ldl"
launcher=$(command -v ccache || true)

# ---- one target, called through xargs below ----
if [ "${1:-}" = --run ]; then
    name=$2 runs=$3 seed=${4:-${SEED:-1}}
    seeds=$out/corpus/$name-$seed
    log=$out/$name-$seed.log
    rm -rf "$seeds"
    mkdir -p "$seeds" "$out/findings"
    if [ -d "tests/fuzz/corpus/$name" ]; then cp tests/fuzz/corpus/"$name"/* "$seeds"/; fi
    if [ -w /dev/shm ]; then FUZZ_DIR=$(mktemp -d /dev/shm/dro-fuzz-XXXXXX); else FUZZ_DIR=$(mktemp -d); fi
    export FUZZ_DIR # where a target may write
    trap 'rm -rf "$FUZZ_DIR"' EXIT
    trap 'exit 1' HUP INT TERM
    start=$(date +%s)
    # The more freed memory the sanitizer holds back, the more pages every input must touch for the first
    # time. Two megabytes are more than one input frees, and several times as fast as the default.
    export ASAN_OPTIONS="quarantine_size_mb=2:${ASAN_OPTIONS:-}"
    if "$out/fuzz_$name" -runs="$runs" -seed="$seed" -max_len=4096 -rss_limit_mb=512 -timeout=20 \
        -max_total_time="${SECONDS_EACH:-0}" -print_final_stats=1 -verbosity=1 -artifact_prefix="$out/findings/$name-$seed-" "$seeds" \
        >"$log" 2>&1; then
        done=$(sed -n "s/^stat::number_of_executed_units: *//p" "$log" | tail -n 1)
        echo "fuzz $name: $done inputs, no finding ($(($(date +%s) - start)) s)"
        exit 0
    fi
    sed -n -e '/^#/d' -e '/ERROR\|SUMMARY\|runtime error\|not so\|Test unit written/p' "$log" | head -n 8
    echo "FAILED: fuzz $name: see $log and $out/findings" >&2
    exit 1
fi

runs=${1:-20000}
case $runs in
'' | *[!0-9]*) echo "usage: fuzz.sh [RUNS] [NAME...]" >&2; exit 2 ;;
esac
shift $(($# > 0))

mkdir -p "$out/obj"
printf '#define DRO_LIBDIR "lib"\n#define main dro_main\n' >"$out/obj/fuzz.h"
echo 'int LLVMFuzzerTestOneInput(const unsigned char *b, unsigned long n); int LLVMFuzzerTestOneInput(const unsigned char *b, unsigned long n) { return b && n ? 0 : 0; }' >"$out/obj/try.c"
if ! "$CLANG" -fsanitize=fuzzer,address,undefined "$out/obj/try.c" -o "$out/obj/try" 2>"$out/obj/try.log"; then
    echo "fuzz: clang with libFuzzer is missing (Debian: clang libclang-rt-14-dev), skipped" >&2
    exit 77
fi
for pair in ZLIB:zlib ZSTD:libzstd JPEG:libjpeg PNG:libpng JANSSON:jansson; do
    if pkg-config --exists "${pair#*:}" 2>/dev/null; then
        flags="$flags -DDRO_WITH_${pair%:*}=1 $(pkg-config --cflags "${pair#*:}")"
        libs="$libs $(pkg-config --libs "${pair#*:}")"
    fi
done

# ---- the library, compiled again only where something is newer ----
newest=$out/obj/headers
if [ ! -e "$newest" ] || [ -n "$(find include src tests/fuzz scripts/fuzz.sh \
    \( -name '*.h' -o -name '*.def' -o -name fuzz.sh \) -newer "$newest" | head -n 1)" ]; then
    rm -f "$out"/obj/*.o
    touch "$newest"
fi
objects=
stale=
for source in src/base/*.c src/backend/*.c src/backend/ref/*.c src/data/*.c src/nn/*.c src/opt/*.c src/comm/*.c \
    src/train/*.c src/report/*.c cli/*.c; do
    object=$out/obj/$(echo "${source%.c}" | tr / -).o
    objects="$objects $object"
    if [ ! "$object" -nt "$source" ]; then stale="$stale $source $object"; fi
done
if [ -n "$stale" ]; then
    # shellcheck disable=SC2086
    echo $stale | xargs -n 2 -P "${JOBS:-1}" sh -c \
        "$launcher $CLANG $(echo $flags) -fsanitize=fuzzer-no-link,address,undefined -c \"\$0\" -o \"\$1\" || exit 255"
    rm -f "$out/libdro.a"
    # shellcheck disable=SC2086
    ar rcs "$out/libdro.a" $objects
fi

# ---- the targets ----
if [ $# -eq 0 ]; then
    for source in tests/fuzz/fuzz_*.c; do
        name=${source#tests/fuzz/fuzz_}
        set -- "$@" "${name%.c}"
    done
fi
for name; do
    # shellcheck disable=SC2086
    "$CLANG" $flags -fsanitize=fuzzer,address,undefined "tests/fuzz/fuzz_$name.c" "$out/libdro.a" $libs \
        -Wl,--wrap=dro__input_open,--wrap=dro__file_exists,--wrap=cli_fail,--wrap=cli_usage \
        -o "$out/fuzz_$name"
done
for name; do echo "$name"; done | xargs -P "${JOBS:-1}" -I '{}' sh scripts/fuzz.sh --run '{}' "$runs" || exit 1
