"""Third-party model tools. Each has one module, which is the only one that imports it."""
