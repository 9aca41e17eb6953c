#!/bin/sh
# python.sh wheel|test: builds the Python package into build-python/dist, or installs that wheel into an empty virtual
# environment and runs python/tests there. Needs python3 with venv, and PyPI. Tests of what is not installed are
# skipped: EXTRAS="scikit-learn torch" is what is installed for them, scikit-learn if it is not given.
set -eu
cd "$(dirname "$0")/.."
root=$PWD out=$PWD/build-python
sh scripts/deps.sh peers
venv() { # name, packages...
    dir=$out/$1
    shift
    [ -x "$dir/bin/python" ] || python3 -m venv "$dir"
    [ $# -eq 0 ] || sh scripts/quiet.sh "pip install $*" "$dir/bin/python" -m pip install -q "$@"
}
case ${1:-} in
wheel)
    venv build build scikit-build-core
    rm -rf "$out/dist"
    sh scripts/quiet.sh "wheel" "$out/build/bin/python" -m build --wheel --no-isolation \
        --outdir "$out/dist" -Cbuild-dir="$out/cmake" python
    ls -l "$out"/dist/*.whl | awk '{ print $NF ": " $5 " bytes" }' ;;
test)
    rm -rf "$out/test"
    # shellcheck disable=SC2086
    venv test pytest ${EXTRAS-scikit-learn} "$out"/dist/*.whl
    # Outside the sources, so that the package is the installed one.
    cd "$out" && env -u DRO_LIBRARY -u PYTHONPATH test/bin/python -m pytest -q --rootdir="$root/python" \
        "$root/python/tests" ;;
*) echo "usage: python.sh wheel|test" >&2; exit 2 ;;
esac
