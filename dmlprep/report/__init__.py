"""Views of a run record: text, HTML, JSON, SARIF and the forms of build systems. They decide nothing."""
