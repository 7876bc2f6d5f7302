"""Text for people and programs: wrapping, sizes, and the escapes of each format."""
