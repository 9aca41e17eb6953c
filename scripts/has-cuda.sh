#!/bin/sh
# has-cuda.sh PRESET: fails, with a line, where the preset cuda has been configured without its backend; and has the
# next configuration look again. Other presets are fine.
set -eu
cd "$(dirname "$0")/.."
cache=build-cuda/CMakeCache.txt
if [ "${1:-}" != cuda ] || grep -q '^DRO_CUDA_MISSING:INTERNAL=$' $cache; then exit 0; fi
echo "make: no cuda backend can be built here: not found, under the names of NVIDIA's packages:" \
    "$(sed -n 's/^DRO_CUDA_MISSING:INTERNAL=//p' $cache); \`make\` builds for the processor" >&2
rm -f $cache
exit 1
