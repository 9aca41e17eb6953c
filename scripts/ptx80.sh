#!/bin/sh
# ptx80.sh [build] [test] [times]: tests and times the code of an A100 on a later GPU. One build has only PTX for
# compute capability 8.0, which the driver compiles for the GPU it finds; the other has machine code for 9.0. Without
# arguments: all three. JOBS: parallel compilers (2). PYTHON: one with torch and torchvision, for `times`.
#   build  both, into build-cuda/ and build-ptx80/; needs nvcc, no GPU
#   test   the tests of `make test-cuda` with each; needs a GPU, which must run 8.0 code in build-ptx80/
#   times  ms per step of resnet20, resnet32 and resnet50 with each, and of PyTorch (compiled, with CUDA graphs)
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- build test times
for word in "$@"; do
    case $word in build | test | times) ;; *) echo "usage: ptx80.sh [build] [test] [times]" >&2; exit 2 ;; esac
done
build() { # FOLDER CAPABILITY
    sh scripts/quiet.sh "configure ($1)" cmake --preset cuda -B "$1" -DCMAKE_CUDA_ARCHITECTURES="$2"
    sh scripts/has-cuda.sh cuda
    sh scripts/quiet.sh "build ($1)" cmake --build "$1" -j "${JOBS:-2}"
}
runs() { # FOLDER CAPABILITY: the GPU runs code for CAPABILITY
    path=$("$1"/dro doctor | sed -n 's/^ *backend cuda *//p')
    echo "$1: $path"
    case $path in *"code for $2:"*) ;; *) echo "ptx80: $1 does not run code for $2" >&2; exit 1 ;; esac
}
for word in "$@"; do
    case $word in
    build)
        build build-cuda 90a-real
        build build-ptx80 80-virtual
        ;;
    test)
        sh scripts/has-gpu.sh ptx80
        runs build-cuda 9.0
        sh scripts/test-cuda.sh build-cuda
        runs build-ptx80 8.0
        sh scripts/test-cuda.sh build-ptx80
        ;;
    times)
        sh scripts/has-gpu.sh ptx80
        runs build-cuda 9.0
        runs build-ptx80 8.0
        TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-build-cuda/inductor} "${PYTHON:-python3}" \
            tests/peers/torch_gpu.py --dro build-cuda/dro,build-ptx80/dro --models resnet20,resnet32,resnet50
        ;;
    esac
done
