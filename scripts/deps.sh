#!/bin/sh
# deps.sh build|test|peers|arm: makes sure that what building, testing, comparing or cross-compiling for ARM64
# needs is installed.
# A browser, with which the report is tested, is wished for: without it that test is skipped.
# Touches nothing when all is there. On Debian it installs the missing packages as root or through
# sudo, or prints the one line to run and fails; on other systems it names what is missing and goes on.
set -eu
missing= wished=
need() { missing="$missing $1"; }
have() { command -v "$1" >/dev/null 2>&1; }
tool() { have "$2" || need "$1"; }                                 # package, command
library() { pkg-config --exists "$2" 2>/dev/null || package "$1"; } # package, pkg-config name
package() { # of this machine's architecture, or name:architecture
    if have dpkg-query; then
        case $1 in *:*) arch=${1#*:} ;; *) arch=$(dpkg --print-architecture) ;; esac
        case $(dpkg-query -W -f '|${db:Status-Status}:${Architecture}|' "$1" 2>/dev/null) in
        *"|installed:$arch|"* | *"|installed:all|"*) ;;
        *) need "$1" ;;
        esac
    elif [ "$1" != libc6-dev ]; then
        need "$1"
    fi
}

debians_clang() { # its version
    case $(sed -n 's/^VERSION_ID="\(.*\)"/\1/p' /etc/os-release 2>/dev/null) in
    13) echo 19 ;;
    *) echo 14 ;;
    esac
}

case ${1:-} in build | test | peers | arm) ;; *) echo "usage: deps.sh build|test|peers|arm" >&2; exit 2 ;; esac
have cc || tool gcc gcc
package libc6-dev
tool make make
tool cmake cmake
tool pkg-config pkg-config
library libjansson-dev jansson
library zlib1g-dev zlib
library libzstd-dev libzstd
library libjpeg62-turbo-dev libjpeg
library libpng-dev libpng
package libdnnl-dev
if [ "$1" = test ]; then
    have c++ || tool g++ g++
    library libcmocka-dev cmocka
    tool clang clang
    package libclang-rt-$(debians_clang)-dev
    package libopenmpi-dev
    tool openmpi-bin mpirun
    have clang-format-14 || tool clang-format clang-format
    have chromium || wished=" chromium"
fi
if [ "$1" = peers ]; then
    tool python3 python3
    python3 -c 'import ensurepip, venv' 2>/dev/null || need python3-venv
fi
if [ "$1" = arm ]; then
    tool gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
    tool g++-aarch64-linux-gnu aarch64-linux-gnu-g++
    tool qemu-user qemu-aarch64
    for name in libgomp1 libjansson-dev zlib1g-dev libzstd-dev libjpeg62-turbo-dev libpng-dev libcmocka-dev; do
        package $name:arm64
    done
fi
if [ -z "$missing$wished" ]; then exit 0; fi

if ! have dpkg-query || ! have apt-get; then
    echo "deps: not found (under their Debian names):$missing$wished; install them with your package manager" >&2
    exit 0
fi
if [ "$(id -u)" -eq 0 ]; then
    sudo=
elif have sudo && sudo -n true 2>/dev/null; then
    sudo="sudo -n"
elif have sudo && [ -t 0 ] && [ -t 2 ]; then
    sudo=sudo
elif [ -z "$missing" ]; then
    exit 0
else
    echo "deps: packages are missing; run: sudo apt-get update && sudo apt-get install -y$missing$wished" >&2
    exit 1
fi

apt() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 "$@" >/dev/null; }
echo "deps: installing$missing$wished" >&2
if [ "$1" = arm ] && ! dpkg --print-foreign-architectures | grep -q '^arm64$'; then
    $sudo dpkg --add-architecture arm64
    apt update
fi
ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1 || apt update
# A stale list names files that are gone: refresh it and try once more.
install() { apt install --no-install-recommends $1 || { apt update && apt install --no-install-recommends $1; }; }
if [ -n "$missing" ]; then install "$missing"; fi
if [ -n "$wished" ]; then install "$wished" || echo "deps: cannot install$wished: some tests are skipped" >&2; fi
