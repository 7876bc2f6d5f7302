# Runs inside the sandbox: builds what native/ holds into /out.
set -e
cd /tmp # winegcc makes its temporary folder where it stands
n=/native
export WINEBUILD=/usr/lib/wine/winebuild
flags="-O2 -fPIC -Wall -Wno-attributes -Wno-unused"
# shellcheck disable=SC2086
/usr/lib/wine/winegcc $flags -shared $n/d3d12.spec $n/d3d12.c $n/memory.c -o /out/d3d12.dll.so
/usr/lib/wine/winebuild --dll --fake-module -E $n/d3d12.spec -o /out/d3d12.dll
# shellcheck disable=SC2086
/usr/lib/wine/winegcc $flags -mconsole $n/host.c $n/session.c $n/cache.c $n/values.c $n/wire.c $n/device.c -lversion -o /out/host.exe
gcc -O2 -Wall -fPIC -shared $n/rounding.c -o /out/rounding.so
gcc -O2 -Wall -fPIC -shared $n/tiles.c -o /out/tiles.so
gcc -O2 -Wall -fPIC -shared -fno-builtin $n/zeros.c -o /out/zeros.so
gcc -O2 -Wall $n/devices.c -o /out/devices
