"""Views of a run record: HTML, SARIF, and the placement's JSON."""
