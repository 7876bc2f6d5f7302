"""Sessions of these tests are served by workers that are kept."""

from tests.kept_workers import kept_workers

__all__ = ["kept_workers"]
