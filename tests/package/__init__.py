"""Tests of packages for apps."""
