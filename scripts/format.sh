#!/bin/sh
# format.sh check|fix: clang-format over the tracked .c and .h files (all of them where this is not
# a git checkout). `fix` rewrites them, `check` only reports, and also reports lines of more than 100
# columns, comments and CUDA sources included. CLANG_FORMAT names another program; the style is
# pinned to version 14: with another one only the columns are checked.
set -eu
cd "$(dirname "$0")/.."
if [ -z "${CLANG_FORMAT:-}" ]; then
    CLANG_FORMAT=clang-format
    if command -v clang-format-14 >/dev/null; then CLANG_FORMAT=clang-format-14; fi
fi
command -v "$CLANG_FORMAT" >/dev/null || { echo "format: clang-format is not installed" >&2; exit 1; }

files=$({ git ls-files '*.c' '*.h' 2>/dev/null ||
    find include src cli examples tests -name '*.[ch]'; } |
    while read -r f; do if [ -f "$f" ]; then echo "$f"; fi; done)
cuda=$(find src tests -name '*.cu' -o -name '*.cuh')
if [ -z "$files" ]; then echo "format: no files"; exit 0; fi

version=$("$CLANG_FORMAT" --version | sed -n 's/.*version \([0-9]*\).*/\1/p')

case ${1:-} in
fix) echo "$files" | xargs "$CLANG_FORMAT" -i ;;
check)
    if [ "$version" != 14 ]; then
        echo "format-check: clang-format $version is here and 14 is needed: only the columns are checked"
    elif ! echo "$files" | xargs "$CLANG_FORMAT" --dry-run -Werror >/dev/null 2>&1; then
        for f in $files; do
            "$CLANG_FORMAT" "$f" | diff -u --label "$f" --label "$f (formatted)" "$f" - || :
        done
        echo "FAILED: format-check ($("$CLANG_FORMAT" --version)); run make format" >&2
        exit 1
    fi
    # shellcheck disable=SC2086
    if LC_ALL=C.UTF-8 grep -nE '.{101,}' $files $cuda; then
        echo "FAILED: format-check: these lines have more than 100 columns" >&2
        exit 1
    fi
    echo "format-check: $(echo "$files" | wc -l) files" ;;
*) echo "usage: format.sh check|fix" >&2; exit 2 ;;
esac
