"""Show run records (all results of a run, ``run.json``) as text, HTML, JSON, SARIF and in the forms of build systems.

The modules make no decisions. Each is a view, or a part of several: ``text`` shows a run, ``placement_text`` the result
of ``check``, ``speed`` that of ``bench``. The messages of findings are in the code that reports them.
"""
