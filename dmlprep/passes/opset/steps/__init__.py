"""How single operators step below one of their versions; see ``build.Step``."""
