"""Steps: functions that lower a node of one operator version to the version before (``build.Step`` says how)."""
