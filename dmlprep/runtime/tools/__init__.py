"""Third-party model tools: one module for each, and the only ones that import it."""
