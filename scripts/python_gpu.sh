#!/bin/sh
# python_gpu.sh tests|overhead|cifar [OPTIONS]: what needs a GPU in the Python package, on a machine with PyTorch.
#   tests     python/tests/test_torch*.py; OPTIONS are pytest's
#   overhead  what Tilt and Recover cost compared with plain PyTorch on the GPU
#   cifar     ResNet-32 on CIFAR-10 with rare classes, OPTIONS are bench/cifar.py's: --data DIR --method recover,
#             with an absolute DIR
# The package is the wheel in build-python/dist (WHEEL names another). Without one, the library is built from the
# sources into build-python/gpu, for this machine's GPU. PYTHON: the interpreter, default python3. Needs no network:
# where pytest is not installed, it is taken from build-python/pytest (pip install --target build-python/pytest pytest).
set -eu
cd "$(dirname "$0")/.."
root=$PWD out=$PWD/build-python/gpu
python=${PYTHON:-python3}
what=${1:-}
case $what in tests | overhead | cifar) shift ;; *) echo "usage: python_gpu.sh tests|overhead|cifar" >&2; exit 2 ;; esac
wheel=${WHEEL:-$(ls "$root"/build-python/dist/*-py3-none-*"$(uname -m)".whl 2>/dev/null | head -n 1)}
mkdir -p "$out"
if [ -n "$wheel" ]; then
    rm -rf "$out/package"
    "$python" -m zipfile -e "$wheel" "$out/package"
    export PYTHONPATH="$out/package"
    unset DRO_LIBRARY
else
    sh scripts/quiet.sh configure cmake -S . -B "$out" -DCMAKE_BUILD_TYPE=Release -DDRO_STEP_CUDA=ON \
        -DCMAKE_CUDA_ARCHITECTURES="${ARCH:-90-real}" -DDRO_TESTS=OFF -DDRO_CLI=OFF -DDRO_EXAMPLES=OFF -DDRO_MPI=OFF
    sh scripts/quiet.sh build cmake --build "$out" -j "$(nproc)" --target dro dro_step_cuda
    export PYTHONPATH="$root/python" DRO_LIBRARY="$out/libdro.so"
fi
# In an empty folder: Python would take a libdro.so in the working directory for the package libdro.
rm -rf "$out/empty" && mkdir "$out/empty" && cd "$out/empty"
"$python" -c 'import pytest' 2>/dev/null || PYTHONPATH=$PYTHONPATH:$root/build-python/pytest
"$python" -c 'import libdro._lib as l, torch
print(l._file, "with" if l.step_module() else "WITHOUT", "libdro_step_cuda.so,", torch.__version__,
      torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU")'
case $what in
tests) "$python" -m pytest -q -ra --rootdir="$root" -p no:cacheprovider "$root"/python/tests/test_torch*.py "$@" ;;
overhead) "$python" "$root/python/bench/overhead.py" --device cuda "$@" ;;
cifar) "$python" "$root/python/bench/cifar.py" --device cuda "$@" ;;
esac
