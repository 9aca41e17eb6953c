#!/bin/sh
# test-deb.sh [SUITE...]: installs the packages of build-deb/ in a clean chroot of each Debian (bookworm), as root: dro
# train, man dro, a C program through pkg-config, and apt-get purge, which must leave nothing. Packages for another
# Debian than this one are first built in a chroot of that. Needs debootstrap and a mirror (MIRROR). Writes only
# build-deb/chroot-SUITE*, which it removes when all went well, and build-deb/SUITE with the packages built there.
set -eu
cd "$(dirname "$0")/.."
[ "$(id -u)" -eq 0 ] || { echo "test-deb: run it as root: debootstrap and chroot need that" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "test-deb: no debootstrap (Debian: debootstrap)" >&2; exit 1; }
[ $# -gt 0 ] || set -- bookworm
fail() { echo "FAILED: test-deb: $*" >&2; exit 1; }
# make_root FOLDER: a Debian $suite.
make_root() {
    [ -e "$1/etc/debian_version" ] || debootstrap --variant=minbase "$suite" "$1" \
        "${MIRROR:-http://deb.debian.org/debian}" >"$1.log" 2>&1 || { tail "$1.log"; fail "$suite: debootstrap"; }
    rm -f "$1/etc/dpkg/dpkg.cfg.d/docker" # where there is one it leaves manual pages out
}
# inside COMMAND...: in $root, quietly.
inside() {
    chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@" >"$root.log" 2>&1 ||
        { cat "$root.log"; fail "$suite: $*"; }
}
for suite in "$@"; do
    packages=build-deb
    if [ "$suite" != "$(. /etc/os-release && echo "$VERSION_CODENAME")" ]; then
        packages=build-deb/$suite root=$(pwd)/build-deb/chroot-$suite-build
        make_root "$root"
        inside apt-get update
        inside apt-get install -y --no-install-recommends gcc g++ make cmake pkg-config dpkg-dev libopenmpi-dev
        rm -rf "$root/tmp/libdro" "$packages"
        mkdir -p "$root/tmp/libdro" "$packages"
        git ls-files -z | tar --null -T - -cf - | tar -xf - -C "$root/tmp/libdro"
        inside sh -c 'cd /tmp/libdro && sh scripts/deps.sh build && sh scripts/deb.sh'
        cp "$root"/tmp/libdro/build-deb/*.deb "$packages"
        rm -rf "$root" "$root.log"
    fi
    ls "$packages"/*.deb >/dev/null 2>&1 || { echo "test-deb: no packages: run make deb first" >&2; exit 1; }
    root=$(pwd)/build-deb/chroot-$suite
    files() { (cd "$root" && find usr etc var/lib opt srv -path var/lib/apt -prune -o -path var/lib/dpkg -prune -o \
        -path var/cache -prune -o -print | LC_ALL=C sort); }
    make_root "$root"
    inside apt-get update
    # What the packages themselves need, and a compiler and man, stay: they are there before.
    needs=$(for deb in $packages/*.deb; do dpkg-deb -f "$deb" Depends; echo; done | tr ',' '\n' |
        awk 'NF && $1 !~ /^libdro/ { print $1 }' | sort -u)
    inside apt-get install -y --no-install-recommends gcc pkg-config man-db $needs
    files >"$root.before"
    cp $packages/*.deb "$root/tmp/"
    inside sh -c 'apt-get install -y --no-install-recommends /tmp/*.deb'
    inside dro train --data synth:glyphs,n=120,test=30,size=12,classes=3 --epochs 2 --out /tmp/run
    inside sh -c 'man dro | grep -q "distributionally robust"'
    cat >"$root/tmp/one.c" <<'PROGRAM'
#include <dro/dro.h>
#include <stdio.h>
int main(void)
{
    dro_context *ctx;
    if (dro_context_create(NULL, 1, &ctx) != DRO_OK)
        return 1;
    printf("libdro %s on %s\n", dro_version(), dro_context_backend(ctx));
    dro_context_destroy(ctx);
    return 0;
}
PROGRAM
    inside sh -c 'cc -Wall -Werror /tmp/one.c -o /tmp/one $(pkg-config --cflags --libs libdro) && /tmp/one'
    said=$(cat "$root.log")
    inside apt-get purge -y dro libdro-dev "libdro$(sed -n 's/^#define DRO_VERSION_MAJOR *//p' include/dro/version.h)"
    files >"$root.after"
    diff "$root.before" "$root.after" >"$root.log" || { cat "$root.log"; fail "$suite: files are left after purge"; }
    echo "test-deb: $suite: installed, dro train, man dro, a program ($said), purged without a trace"
    rm -rf "$root" "$root.log" "$root.before" "$root.after"
done
