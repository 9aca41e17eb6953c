#!/bin/sh
# test-install.sh SOURCE_DIR BUILD_DIR: installs into a temporary folder, moves it, and uses it from
# there as its users would: pkg-config, find_package, C++; then looks at what the library exports.
# Writes nothing else but BUILD_DIR/install_manifest.txt. CC and CXX name the compilers.
set -eu
source=$1
build=$2
: "${CC:=cc}" "${CXX:=}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "install: $*" >&2; exit 1; }

DESTDIR='' cmake --install "$build" --prefix "$tmp/first" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
mv "$tmp/first" "$tmp/moved"
pc=$(find "$tmp/moved" -name libdro.pc)
[ -n "$pc" ] || fail "no libdro.pc"
libdir=$(dirname "$(dirname "$pc")")
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH

# The program's pages and completions.
if [ -x "$tmp/moved/bin/dro" ]; then
    for file in man/man1/dro.1 man/man1/dro-train.1 bash-completion/completions/dro zsh/site-functions/_dro; do
        [ -s "$tmp/moved/share/$file" ] || fail "no share/$file"
    done
fi

# pkg-config, shared and static.
$CC -o "$tmp/shared" "$source/examples/embed.c" $(pkg-config --cflags --libs libdro) -lm
LD_LIBRARY_PATH=$libdir "$tmp/shared" >/dev/null || fail "examples/embed.c fails with the shared library"
major=$(pkg-config --modversion libdro | cut -d. -f1)
readelf -d "$tmp/shared" | grep -q "\[libdro\.so\.$major\]" || fail "the soname is not libdro.so.$major"
$CC -o "$tmp/static" "$source/examples/embed.c" $(pkg-config --cflags libdro) "$libdir/libdro.a" \
    $(pkg-config --static --libs libdro | sed 's/-ldro//') -lm
"$tmp/static" >/dev/null || fail "examples/embed.c fails with the static library"

# CMake.
mkdir "$tmp/consumer"
cat >"$tmp/consumer/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.21)
project(consumer C)
find_package(libdro $(pkg-config --modversion libdro) REQUIRED)
foreach(kind dro dro_static)
  add_executable(with_\${kind} $source/examples/embed.c)
  target_link_libraries(with_\${kind} PRIVATE dro::\${kind} m)
endforeach()
EOF
{ cmake -S "$tmp/consumer" -B "$tmp/consumer/build" -DCMAKE_PREFIX_PATH="$tmp/moved" &&
    cmake --build "$tmp/consumer/build"; } >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
"$tmp/consumer/build/with_dro" >/dev/null || fail "examples/embed.c fails with dro::dro"
"$tmp/consumer/build/with_dro_static" >/dev/null || fail "examples/embed.c fails with dro::dro_static"

# C++.
if [ -n "$CXX" ]; then
    printf '#include <dro/dro.h>\nint main() { return 0; }\n' >"$tmp/user.cpp"
    $CXX -Wall -Wextra -Werror -o "$tmp/user" "$tmp/user.cpp" $(pkg-config --cflags --libs libdro)
fi

# Only public names leave the library.
nm -D --defined-only "$libdir/libdro.so" | awk '$2 != "A" { print $NF }' >"$tmp/names"
grep -q '^dro_[a-z]' "$tmp/names" || fail "libdro.so exports nothing"
if grep -v '^dro_[^_]' "$tmp/names"; then fail "libdro.so exports the names above"; fi
