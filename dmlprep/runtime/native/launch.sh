# Runs inside the sandbox: a Windows of its own for this process, a display for Wine's Vulkan driver, then the program.
# Arguments: the program and its arguments. The prefix made at installation is read-only, so it is copied (10 MB).
set -e
cp -a /prefix "$WINEPREFIX"
Xvfb :1 -screen 0 640x480x24 -nolisten tcp </dev/null >/dev/null 2>&1 &
tries=0
while [ ! -e /tmp/.X11-unix/X1 ]; do
  tries=$((tries + 1))
  if [ "$tries" -gt 500 ]; then
    echo "the display server did not start" >&2
    exit 6
  fi
  sleep 0.02
done
export LD_PRELOAD=/native/tiles.so:/native/zeros.so
exec /usr/lib/wine/wine64 "$@"
