#!/bin/sh
# cuda-arch.sh: the option of `cmake --preset cuda` that says for which compute capability a build for tests has code: what
# build-cuda/ is configured for already, else that of the GPU of this machine, else 9.0. CUDA_ARCH names another one.
set -eu
cd "$(dirname "$0")/.."
arch=${CUDA_ARCH:-}
if [ -z "$arch" ] && [ -f build-cuda/CMakeCache.txt ]; then
    arch=$(sed -n 's/^CMAKE_CUDA_ARCHITECTURES:[A-Z]*=//p' build-cuda/CMakeCache.txt)
fi
if [ -z "$arch" ]; then
    found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ')
    arch=${found:-90}-real
    if [ "$arch" = 90-real ]; then arch=90a-real; fi # with the instructions of warp groups
fi
echo "-DCMAKE_CUDA_ARCHITECTURES=$arch"
