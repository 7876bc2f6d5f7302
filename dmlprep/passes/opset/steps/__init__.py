"""The lowering of single operators below one of their versions; see ``build.Step``."""
