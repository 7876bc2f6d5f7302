"""Views of a run record: text, HTML, JSON and SARIF."""
