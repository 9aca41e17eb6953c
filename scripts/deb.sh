#!/bin/sh
# deb.sh: makes the Debian packages libdro0, libdro-dev and dro for this machine, in build-deb/. JOBS compilers at a time
# (2); DEBFULLNAME and DEBEMAIL name who made them. Looks at them with lintian where that is installed, and fails on its
# errors. Writes only build-deb/.
set -eu
cd "$(dirname "$0")/.."
out=$(pwd)/build-deb
for tool in dpkg-deb dpkg-shlibdeps dpkg-architecture; do
    command -v $tool >/dev/null || { echo "deb: no $tool (Debian: dpkg-dev)" >&2; exit 1; }
done
number() { sed -n "s/^#define DRO_VERSION_$1 *//p" include/dro/version.h; }
major=$(number MAJOR) version=$(number MAJOR).$(number MINOR).$(number PATCH)-1
triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH) arch=$(dpkg-architecture -qDEB_HOST_ARCH)
maintainer="${DEBFULLNAME:-The libdro authors} <${DEBEMAIL:-libdro@users.noreply.github.com}>"
rm -rf "$out/installed" "$out/debian" "$out"/lib*[0v] "$out"/dro "$out"/*.deb
mkdir -p "$out/debian"

sh scripts/quiet.sh "configure (packages)" cmake -S . -B "$out/build" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR=lib/"$triplet" -DDRO_TESTS=OFF -DDRO_EXAMPLES=OFF \
    -DCMAKE_C_FLAGS="$(dpkg-buildflags --get CFLAGS) $(dpkg-buildflags --get CPPFLAGS)" \
    -DCMAKE_EXE_LINKER_FLAGS="$(dpkg-buildflags --get LDFLAGS)" \
    -DCMAKE_SHARED_LINKER_FLAGS="$(dpkg-buildflags --get LDFLAGS)"
sh scripts/quiet.sh "build (packages)" cmake --build "$out/build" -j "${JOBS:-2}"
DESTDIR="$out/installed" cmake --install "$out/build" --prefix /usr >/dev/null

# Source package's control file: dpkg-shlibdeps asks for it.
printf 'Source: libdro\nMaintainer: %s\n' "$maintainer" >"$out/debian/control"
for name in libdro"$major" libdro-dev dro; do
    printf '\nPackage: %s\nArchitecture: %s\nDescription: part of libdro\n' $name "$arch" >>"$out/debian/control"
done

# take PACKAGE PATH...: moves what was installed into a package's tree.
take() {
    tree=$out/$1
    shift
    for path in "$@"; do
        mkdir -p "$tree/$(dirname "$path")"
        mv "$out/installed/$path" "$tree/$path"
    done
}
(cd "$out/installed" && find . -name 'libdro.so.*' -o -name libdro_mpi.so) |
    while read -r file; do take libdro"$major" "$file"; done
take libdro-dev usr/include usr/lib
take dro usr/bin usr/share
left=$(cd "$out/installed" && find . -type f)
[ -z "$left" ] || { echo "deb: in no package: $left" >&2; exit 1; }
strip --strip-unneeded "$out"/libdro"$major"/usr/lib/"$triplet"/libdro.so.*.*.*
module=$(find "$out"/libdro"$major" -name libdro_mpi.so)
[ -z "$module" ] || strip --strip-unneeded "$module"
strip "$out/dro/usr/bin/dro"
strip --strip-debug "$out/libdro-dev/usr/lib/$triplet/libdro.a"
find "$out/dro/usr/share/man" -type f -exec gzip -9n {} +
echo "libdro $major libdro$major" >"$out/shlibs"

# needs FILE: the packages of the libraries that it is linked with.
needs() { (cd "$out" && dpkg-shlibdeps --ignore-missing-info -O "$1" 2>/dev/null) | sed 's/^shlibs:Depends=//'; }

# MPI is needed under mpirun and srun alone: without it the module is not opened.
mpi=$([ -z "$module" ] || needs "$module" | tr ',' '\n' | sed -n 's/^ *\([^ ]*mpi[^ ]*\).*/\1/p')

# finish PACKAGE SECTION DEPENDS SUMMARY TEXT: what every package has besides, and the package.
finish() {
    tree=$out/$1 doc=$out/$1/usr/share/doc/$1
    mkdir -p "$tree/DEBIAN" "$doc"
    printf 'libdro (%s) unstable; urgency=medium\n\n  * Built from its source tree.\n\n -- %s  %s\n' "$version" \
        "$maintainer" "$(date -R -d "@$(git log -1 --format=%ct 2>/dev/null || date +%s)")" |
        gzip -9n >"$doc/changelog.Debian.gz"
    { echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
      echo "Upstream-Name: libdro"
      printf '\nFiles: *\n%s\nLicense: Expat\n' "$(sed -n 's/^Copyright (c) /Copyright: /p' LICENSE)"
      sed -e '1,/^Copyright/d' LICENSE | sed -e '1{/^$/d}' -e 's/^$/./' -e 's/^/ /'; } >"$doc/copyright"
    { printf 'Package: %s\nSource: libdro\nVersion: %s\nArchitecture: %s\n' "$1" "$version" "$arch"
      printf 'Maintainer: %s\nSection: %s\nPriority: optional\n' "$maintainer" "$2"
      printf 'Installed-Size: %s\nDepends: %s\n' "$(du -sk "$tree" | cut -f 1)" "$3"
      case $1:$mpi in
      *:) ;;
      dro:*) printf 'Suggests: libdro%s, %s\n' "$major" "$mpi" ;;
      libdro[0-9]*) printf 'Suggests: %s\n' "$mpi" ;;
      esac
      printf 'Description: %s\n%s\n' "$4" "$(echo "$5" | fold -s -w 76 | sed -e 's/^/ /' -e 's/ *$//')"; } \
        >"$tree/DEBIAN/control"
    if [ "$1" = libdro"$major" ]; then
        cp "$out/shlibs" "$tree/DEBIAN/shlibs"
        echo "activate-noawait ldconfig" >"$tree/DEBIAN/triggers"
    fi
    find "$tree" -type d -exec chmod 755 {} +
    find "$tree" -type f -exec chmod 644 {} +
    [ ! -d "$tree/usr/bin" ] || chmod 755 "$tree"/usr/bin/*
    (cd "$tree" && find usr -type f -exec md5sum {} + >DEBIAN/md5sums)
    dpkg-deb --root-owner-group --build "$tree" "$out/$1_${version}_$arch.deb" >/dev/null
}
about="libdro minimises lambda log E exp(loss / lambda) online, one small batch at a time, so that models do not \
ignore rare and hard examples. It implements RECOVER and the methods that it is compared with."
finish libdro"$major" libs "$(needs "$(find "$out"/libdro"$major" -name 'libdro.so.*.*.*')")" \
    "distributionally robust optimisation, online (library)" "$about This package has the shared library."
finish libdro-dev libdevel "libdro$major (= $version), libc6-dev, libjansson-dev, libzstd-dev, zlib1g-dev, \
libjpeg62-turbo-dev, libpng-dev, libdnnl-dev" \
    "distributionally robust optimisation, online (for development)" "$about This package has the headers and the \
static library."
finish dro science "$(needs "$out/dro/usr/bin/dro")" \
    "train models that do not ignore the rare and the hard" "$about This package has the program."
(cd "$out" && ls -l ./*.deb | awk '{ print "deb: build-deb/" substr($NF, 3) ", " $5 " bytes" }')
if command -v lintian >/dev/null; then
    sh scripts/quiet.sh "lintian" lintian --fail-on error --tag-display-limit 0 "$out"/*.deb
else
    echo "deb: no lintian here: the packages were not looked at"
fi
