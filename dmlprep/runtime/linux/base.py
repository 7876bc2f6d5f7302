"""The Debian packages of the root file system.

Debian 13 (trixie) is stable, changes only by security updates, and has all but two parts. Its libvkd3d is 1.2, but
DirectML needs 2.1. That library and its C library come from Debian 14 (forky); a newer C library supports older
programs.
"""

from __future__ import annotations

import hashlib

SUITES = ("trixie", "forky")
"""Codenames of Debian's suites (releases), in order. The first is stable, and provides the packages that both have."""

ROOTS = (
    *("wine64", "libwine", "wine64-tools", "libwine-dev"),
    *("libvkd3d1", "libvkd3d-shader1"),
    *("mesa-vulkan-drivers", "libvulkan1"),
    *("xvfb", "xkb-data", "x11-xkb-utils"),
    # winex11 loads these at run time, so no package depends on them.
    *("libxrender1", "libxrandr2", "libxfixes3", "libxi6", "libxcursor1", "libxcomposite1", "libxinerama1"),
    *("libxxf86vm1", "libgl1"),
    # NVIDIA's Vulkan driver, which comes from the host, loads this. Without it vkCreateInstance returns -9.
    "libegl1",
    *("bubblewrap", "gcc-14", "libc6-dev"),
    # libc-bin contains C.utf8. Without that locale, Wine cannot open files with non-ASCII names.
    *("base-files", "dash", "coreutils", "libc-bin"),
)

PREFER = dict.fromkeys(("libvkd3d1", "libvkd3d-shader1", "libc6", "libc6-dev", "libc-bin"), "forky")

WITHOUT = frozenset(
    [
        # Sound, video, cameras, printers, smart cards: for parts of Wine that are not used here.
        *("libasound2t64", "libavcodec61", "libavformat61", "libavutil59", "libcapi20-3t64", "libgphoto2-6t64"),
        *("libgphoto2-port12t64", "libgstreamer-plugins-base1.0-0", "libgstreamer1.0-0", "libpcap0.8t64"),
        *("libpcsclite1", "libpulse0", "libusb-1.0-0", "ocl-icd-libopencl1", "libxkbregistry0", "libwayland-egl1"),
        *("libglib2.0-0t64", "libegl-mesa0", "libglx-mesa0", "xserver-common", "x11-common"),
        # Only the packages' own scripts run these.
        *("lsb-base", "sysvinit-utils", "debconf", "dpkg", "tar", "perl", "perl-base", "python3", "gawk"),
        # Only parts of the compiler and the C library that are not used here load these.
        *("libssl3t64", "rpcsvc-proto", "libasan8", "libtsan2", "liblsan0", "libhwasan0", "libubsan1", "libitm1"),
        "libgprofng0",
    ]
)
"""Dependencies that the runtime never loads. Packages that only they need are omitted as well."""

SKIP = (
    *("usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/share/info/", "usr/share/lintian/"),
    *("usr/share/bug/", "usr/share/perl5/", "usr/i686-w64-mingw32/", "usr/x86_64-w64-mingw32ucrt/", "boot/"),
)
"""Prefixes of paths in packages that are not unpacked."""

LEAST = {"mesa-vulkan-drivers": "25.0.7", "libvkd3d1": "2.1", "libwine": "10.0~"}
"""Oldest usable versions by package. Mesa 22.3.6 computes garbage, and vkd3d 1.x refuses shaders."""

TESTED = {
    "libc6": "2.43-7",
    "libllvm19": "1:19.1.7-3+b1",
    "libvkd3d-shader1": "2.1+ds-1",
    "libvkd3d1": "2.1+ds-1",
    "libvulkan1": "1.4.309.0-1",
    "libwine": "10.0~repack-6",
    "mesa-vulkan-drivers": "25.0.7-2+deb13u1",
}
"""The versions that this release of dmlprep was tested with; ``status`` reports other installed versions."""

OLDEST = {"forky": "2026-10-30T08:08:01Z", "trixie": "2026-09-12T07:55:41Z"}
"""Dates of the release files that this release of dmlprep was tested with, from the mirror of ``TESTED``. Release files
of stable suites have no expiry date. Only this date detects a mirror that replays an older one."""


def digest() -> str:
    """Return the SHA-256 of the settings that decide the content of the root file system, without package versions."""
    parts = [SUITES, ROOTS, sorted(PREFER.items()), sorted(WITHOUT), SKIP]
    return hashlib.sha256(repr(parts).encode()).hexdigest()
