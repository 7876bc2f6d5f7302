"""Packages: a prepared model for an app, with its contract, a loader in the app's language, and a sample.

``package`` writes a package, and ``verify`` checks it against its contract, which is ``model.json``. ``inspect_app``
checks the folder of an app. See ``docs/ship-it.md``.
"""

from dmlprep.package.app_folder import AppReport, inspect_app
from dmlprep.package.languages import LANGUAGES
from dmlprep.package.nupkg import NuGetPackage, NuGetRequest, write_nupkg
from dmlprep.package.packing import Package, package
from dmlprep.package.verifying import Verified, verify

__all__ = [
    "LANGUAGES",
    "AppReport",
    "NuGetPackage",
    "NuGetRequest",
    "Package",
    "Verified",
    "inspect_app",
    "package",
    "verify",
    "write_nupkg",
]
