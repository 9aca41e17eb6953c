#!/bin/sh
# sanitize-cuda.sh FOLDER: the tests of the cuda backend in FOLDER under compute-sanitizer: memcheck and racecheck
# over every layer in each precision, our own convolutions, networks that share the GPU, images that are cut on the GPU
# or copied there by readers, and queues of steps. Fails at the first error. Exit status 77 where there is no GPU.
# TOOLS=memcheck: only that one, TESTS="test_sent test_queue": only those. Writes two temporary files.
set -eu
[ $# -eq 1 ] || { echo "usage: sanitize-cuda.sh FOLDER (that of the built tests)" >&2; exit 2; }
tests=$1
PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer
sh "$(dirname "$0")/has-gpu.sh" sanitize-cuda
if ! command -v compute-sanitizer >/dev/null; then
    echo "sanitize-cuda: no compute-sanitizer: NVIDIA's package cuda-sanitizer-13-0, or its folder in PATH" >&2
    exit 1
fi
log=$(mktemp)
trap 'rm -f "$log" "$log.found"' EXIT
# What racecheck found is inside of cuDNN's kernels (there is some: sm90_xmma_dgrad, tf32), which are not ours to mend.
# Leaving its kernels out with --kernel-name-exclude broke the tool.
cudnns() {
    grep -E '^=+ +[A-Za-z ]*Error: |^=+ +Warning: |^=+ +and (Read|Write) access' "$log" >"$log.found" || return 1
    ! grep -qv '_cudnn+0x' "$log.found"
}
check() { # TOOL TEST
    source=$(grep -l "cmocka_unit_test($2)" "$(dirname "$0")"/../tests/test_cuda*.c) ||
        { echo "FAILED: there is no test $2" >&2; exit 1; }
    program=$(basename "$source" .c) begin=$(date +%s)
    status=0 whose=
    timeout 600 compute-sanitizer --tool "$1" --error-exitcode 9 "$tests/$program" "$2" >"$log" 2>&1 || status=$?
    [ "$1:$status" != racecheck:9 ] || ! cudnns || status=0 whose=", inside of cuDNN's kernels"
    [ $status -eq 0 ] && grep -q '\[  PASSED  \] [1-9]' "$log" ||
        { cat "$log"; echo "FAILED: $1 $program $2" >&2; exit 1; }
    found=$(sed -n 's/^=* \(.*SUMMARY: .*\)/\1/p' "$log" | tail -n 1)
    echo "$1 $2: $found$whose ($(($(date +%s) - begin)) s)"
}
for tool in ${TOOLS:-memcheck racecheck}; do
    plain="test_images test_visited" # what they add to the others has no shared memory
    [ $tool != racecheck ] || plain=
    for test in ${TESTS:-test_layers_fp32 test_layers_bf16 test_layers_tf32 test_repeats_tf32 \
        test_repeats_bf16 test_models_bf16_shared test_sent test_queue_short test_queue_refuses \
        test_one_at_a_time $plain}; do
        check $tool $test
    done
done
