#!/bin/sh
# Makes a CPython 3.11 that runs on musl, on a machine with Debian 12's packages, a C compiler and make,
# for `make dist` to try the musllinux wheel with. Nothing is installed outside of the folder:
#
#   release/musl_python.sh /tmp/musl && MUSL_PYTHON=/tmp/musl/python/bin/python3 make dist
#
# Debian's own sources of Python, OpenSSL, zlib and libffi are compiled with its musl, in minutes.
set -eu
place=${1:?the folder to make it in}
mkdir -p "$place"
place=$(cd "$place" && pwd -P)
root=$place/root
deps=$place/deps
src=$place/src
machine=$(uname -m)
triplet=$machine-linux-musl
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
log=$place/log
jobs=$(nproc)

# Lists of sources of its own: the machine's need not have any.
mkdir -p "$place/apt/lists/partial" "$place/apt/cache/archives/partial" "$place/apt/sources" "$src"
cat > "$place/apt/sources/debian.sources" <<LIST
Types: deb deb-src
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: main
Signed-By: $keyring
LIST
apt() {
    apt-get -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$place/apt/sources" \
        -o Dir::State::lists="$place/apt/lists" -o Dir::Cache="$place/apt/cache" -o APT::Sandbox::User=root "$@"
}
exec 3>&1 >> "$log" 2>&1
trap 'status=$?; if [ $status != 0 ]; then tail -n 20 "$log"; echo "see $log"; fi >&3' EXIT
step() { echo "$1"; echo "$1" >&3; }

cd "$src"
step "fetching the sources of musl, zlib, libffi, OpenSSL and Python"
apt update
apt download musl musl-dev
apt source --download-only zlib libffi openssl python3.11
for package in musl*.deb; do dpkg -x "$package" "$root"; done
for tarball in *.orig.tar.*; do
    case $tarball in *.asc) ;; *) tar -xf "$tarball" ;; esac
done

# A compiler whose programs are loaded by this musl. The kernel's headers are the same for each C library.
for name in linux asm-generic; do ln -sfn "/usr/include/$name" "$root/usr/include/$triplet/$name"; done
ln -sfn "/usr/include/$machine-linux-gnu/asm" "$root/usr/include/$triplet/asm"
lib=$root/usr/lib/$triplet
cat > "$place/specs" <<SPECS
%rename cpp_options old_cpp_options

*cpp_options:
-nostdinc -isystem $root/usr/include/$triplet -isystem include%s %(old_cpp_options)

*cc1:
%(cc1_cpu) -nostdinc -isystem $root/usr/include/$triplet -isystem include%s

*link_libgcc:
-L$root/lib/$triplet -L$lib -L .%s

*libgcc:
libgcc.a%s %:if-exists(libgcc_eh.a%s)

*startfile:
%{!shared: $lib/Scrt1.o} $lib/crti.o crtbeginS.o%s

*endfile:
crtendS.o%s $lib/crtn.o

*link:
-dynamic-linker $root/lib/ld-musl-$machine.so.1 -nostdlib %{shared:-shared} %{static:-static} %{rdynamic:-export-dynamic}

*esp_link:


*esp_options:


*esp_cpp_options:


SPECS
cc=$place/cc
cat > "$cc" <<CC
#!/bin/sh
case \$1 in -print-multiarch|--print-multiarch) echo $triplet; exit ;; esac
exec gcc "\$@" -specs "$place/specs"
CC
chmod +x "$cc"

step "compiling zlib"
cd "$src"/zlib-*
CC="$cc" CFLAGS='-O2 -fPIC' ./configure --static --prefix="$deps"
make -j"$jobs" install

step "compiling libffi"
cd "$src"/libffi-*
./configure CC="$cc" --build="$machine-pc-linux-musl" --prefix="$deps" --disable-shared --with-pic \
    --disable-docs --disable-multi-os-directory
make -j"$jobs" install

step "compiling OpenSSL"
cd "$src"/openssl-*
# musl has no contexts to switch between, which `async` needs.
CC="$cc" ./Configure "linux-$machine" no-shared no-async no-engine no-tests --prefix="$deps" --libdir=lib
make -j"$jobs" build_libs
make install_dev

step "compiling Python"
cd "$src"/Python-3.11*
./configure CC="$cc" --build="$machine-pc-linux-musl" --prefix="$place/python" --with-openssl="$deps" \
    --disable-test-modules --with-ensurepip=install \
    CPPFLAGS="-I$deps/include" LDFLAGS="-L$deps/lib" \
    LIBFFI_INCLUDEDIR="$deps/include" PKG_CONFIG_PATH="$deps/lib/pkgconfig"
make -j"$jobs"
make install
"$place/python/bin/python3" -c 'import ctypes, hashlib, ssl, zlib'
step "$place/python/bin/python3 runs"
