"""A rule is a row of the target's data and a module of the same name."""

from __future__ import annotations

import json
import re
from pathlib import Path

from dmlprep.directml.targets.precision import precision_faults
from dmlprep.passes.precision import RULES, policy

TOP = Path(__file__).resolve().parents[4]
SHARED = {"__init__", "forms", "rules", "scales", "stretches"}


def test_every_module_is_a_rule() -> None:
    modules = {path.stem for path in Path(policy.__file__).parent.glob("*.py")} - SHARED
    assert modules <= {rule.name.replace("-", "_") for rule in RULES}


def test_every_row_is_a_rule_but_those_that_are_only_known() -> None:
    about = {rule.name for rule in RULES if rule.fault is not None}
    assert about == {fault.id for fault in precision_faults() if fault.when != "never kept"}


def test_the_example_of_the_page_is_complete() -> None:
    page = (TOP / "docs" / "add-an-fp16-rule.md").read_text(encoding="utf-8")
    row = json.loads(re.findall(r"```json\n(.*?),\n```", page, re.DOTALL)[0])
    assert (
        row.keys() == json.loads((TOP / "dmlprep/directml/targets/data/precision.json").read_text())["faults"][0].keys()
    )
    compile(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], "modulo.py", "exec")
