#!/bin/sh
# sanitize-cuda.sh FOLDER: the tests of the cuda backend in FOLDER under compute-sanitizer: memcheck and racecheck
# over every layer in each precision, our own convolutions, networks that share the GPU, images that are cut on the GPU
# or copied there by readers, and queues of steps. Fails when one of them has an error. Exit status 77 where there is no
# GPU. JOBS: how many at a time (1). TOOLS=memcheck: only that one, TESTS="test_sent test_queue": only those. Each writes
# two temporary files.
set -eu
one=
if [ "${1:-}" = --one ]; then one=yes; shift; fi # FOLDER TOOL TEST: what a job is
case $one:$# in
:1 | yes:3) ;;
*) echo "usage: sanitize-cuda.sh FOLDER (that of the built tests)" >&2; exit 2 ;;
esac
tests=$1
PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer

# What racecheck found is inside of cuDNN's kernels (there is some: sm90_xmma_dgrad, tf32), which are not ours to mend.
# Leaving its kernels out with --kernel-name-exclude broke the tool.
cudnns() {
    grep -E '^=+ +[A-Za-z ]*Error: |^=+ +Warning: |^=+ +and (Read|Write) access' "$log" >"$log.found" || return 1
    ! grep -qv '_cudnn+0x' "$log.found"
}
check() { # TOOL TEST
    source=$(grep -l "cmocka_unit_test($2)" "$(dirname "$0")"/../tests/test_cuda*.c \
        "$(dirname "$0")"/../tests/test_net_calls.c) ||
        { echo "FAILED: there is no test $2" >&2; return 1; }
    program=$(basename "$source" .c) begin=$(date +%s)
    status=0 whose=
    timeout 600 compute-sanitizer --tool "$1" --error-exitcode 9 "$tests/$program" "$2" >"$log" 2>&1 || status=$?
    [ "$1:$status" != racecheck:9 ] || ! cudnns || status=0 whose=", inside of cuDNN's kernels"
    [ $status -eq 0 ] && grep -q '\[  PASSED  \] [1-9]' "$log" ||
        { cat "$log"; echo "FAILED: $1 $program $2" >&2; return 1; }
    found=$(sed -n 's/^=* \(.*SUMMARY: .*\)/\1/p' "$log" | tail -n 1)
    echo "$1 $2: $found$whose ($(($(date +%s) - begin)) s)"
}
if [ -n "$one" ]; then
    log=$(mktemp)
    trap 'rm -f "$log" "$log.found"' EXIT
    check "$2" "$3"
    exit
fi

[ -x "$tests/test_cuda" ] || { echo "sanitize-cuda: no test_cuda in $tests: \`make cuda\` builds it" >&2; exit 1; }
sh "$(dirname "$0")/has-gpu.sh" sanitize-cuda
if ! command -v compute-sanitizer >/dev/null; then
    echo "sanitize-cuda: no compute-sanitizer: NVIDIA's package cuda-sanitizer-13-0, or its folder in PATH" >&2
    exit 1
fi
for tool in ${TOOLS:-racecheck memcheck}; do # the slower one first
    plain="test_images test_visited test_targets test_second_head" # what they add has no shared memory
    [ $tool != racecheck ] || plain=
    for test in ${TESTS:-test_repeats_tf32 test_repeats_bf16 test_layers_fp32 test_layers_bf16 test_layers_tf32 \
        test_models_tf32_shared test_models_bf16_shared test_queue_short test_queue_refuses test_one_at_a_time test_sent \
        $plain}; do
        echo "$tool $test"
    done
done | xargs -P "${JOBS:-1}" -n 2 sh "$0" --one "$tests" ||
    { echo "sanitize-cuda: FAILED: see above" >&2; exit 1; }
