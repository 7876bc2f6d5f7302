"""Views of a run record: text, HTML, JSON, SARIF and the forms of build systems, without any decisions.

A module is a view, or a part of several: ``text`` is a run, ``placement_text`` is ``check``, ``speed`` is ``bench``.
The sentences of findings are in the code that reports them.
"""
