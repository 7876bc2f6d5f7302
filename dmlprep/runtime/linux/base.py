"""What the root file system is made of.

Debian 13 (trixie), which is stable and changes only by security updates, holds all but two pieces: libvkd3d is 1.2
there, DirectML needs 2.1. That library, and the C library it was built for, come from Debian 14 (forky); a newer C
library serves older programs, that is its promise.
"""

from __future__ import annotations

import hashlib

SUITES = ("trixie", "forky")
"""The stable suite first: it serves what both have."""

ROOTS = (
    *("wine64", "libwine", "wine64-tools", "libwine-dev"),
    *("libvkd3d1", "libvkd3d-shader1"),
    *("mesa-vulkan-drivers", "libvulkan1"),
    *("xvfb", "xkb-data", "x11-xkb-utils"),
    # What winex11 loads at run time, and so no package names as a need.
    *("libxrender1", "libxrandr2", "libxfixes3", "libxi6", "libxcursor1", "libxcomposite1", "libxinerama1"),
    *("libxxf86vm1", "libgl1"),
    # What NVIDIA's Vulkan driver, which comes from the host, loads: without it vkCreateInstance gives -9.
    "libegl1",
    *("bubblewrap", "gcc-14", "libc6-dev"),
    # libc-bin holds C.utf8: without that locale Wine has no name for a file beyond ASCII.
    *("base-files", "dash", "coreutils", "libc-bin"),
)

PREFER = dict.fromkeys(("libvkd3d1", "libvkd3d-shader1", "libc6", "libc6-dev", "libc-bin"), "forky")

WITHOUT = frozenset(
    [
        # Sound, video, cameras, printers, smart cards: loaded by parts of Wine that nothing here uses.
        *("libasound2t64", "libavcodec61", "libavformat61", "libavutil59", "libcapi20-3t64", "libgphoto2-6t64"),
        *("libgphoto2-port12t64", "libgstreamer-plugins-base1.0-0", "libgstreamer1.0-0", "libpcap0.8t64"),
        *("libpcsclite1", "libpulse0", "libusb-1.0-0", "ocl-icd-libopencl1", "libxkbregistry0", "libwayland-egl1"),
        *("libglib2.0-0t64", "libegl-mesa0", "libglx-mesa0", "xserver-common", "x11-common"),
        # What only the packages' own scripts run.
        *("lsb-base", "sysvinit-utils", "debconf", "dpkg", "tar", "perl", "perl-base", "python3", "gawk"),
        # What parts of the compiler and of the C library would load.
        *("libssl3t64", "rpcsvc-proto", "libasan8", "libtsan2", "liblsan0", "libhwasan0", "libubsan1", "libitm1"),
        "libgprofng0",
    ]
)
"""Packages named as needs that are never loaded here; what only they need is left out as well."""

SKIP = (
    *("usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/share/info/", "usr/share/lintian/"),
    *("usr/share/bug/", "usr/share/perl5/", "usr/i686-w64-mingw32/", "usr/x86_64-w64-mingw32ucrt/", "boot/"),
)
"""Parts of packages that are not unpacked."""

LEAST = {"mesa-vulkan-drivers": "25.0.7", "libvkd3d1": "2.1", "libwine": "10.0~"}
"""Older ones were seen to compute garbage (Mesa 22.3.6) or to refuse shaders (vkd3d 1.x)."""

TESTED = {
    "libc6": "2.43-7",
    "libllvm19": "1:19.1.7-3+b1",
    "libvkd3d-shader1": "2.1+ds-1",
    "libvkd3d1": "2.1+ds-1",
    "libvulkan1": "1.4.309.0-1",
    "libwine": "10.0~repack-6",
    "mesa-vulkan-drivers": "25.0.7-2+deb13u1",
}
"""The versions that this release of dmlprep was tried with; ``status`` says when others are installed."""

OLDEST = {"forky": "2026-10-30T08:08:01Z", "trixie": "2026-09-12T07:55:41Z"}
"""When the release files were made that this release of dmlprep was tried with. Stable suites do not say until when
they stand, so an older one that a mirror shows again is told by this alone. Of the mirror that ``TESTED`` is from."""


def digest() -> str:
    """SHA-256 of what decides the root file system's contents, but for the versions that the mirror holds."""
    parts = [SUITES, ROOTS, sorted(PREFER.items()), sorted(WITHOUT), SKIP]
    return hashlib.sha256(repr(parts).encode()).hexdigest()
