"""Everything that a module needs to declare a quirk, in one import."""

from dmlprep.directml.quirks.editing import END, Edit
from dmlprep.directml.quirks.quirk import DIRECTML_API, DML_OPERATORS, DML_PROVIDER, MEASURED, ORT_SOURCE, Match, Quirk
from dmlprep.directml.targets.facts import GraphFacts, NodeFacts, Value

__all__ = ["DIRECTML_API", "DML_OPERATORS", "DML_PROVIDER", "END", "MEASURED", "ORT_SOURCE"]
__all__ += ["Edit", "GraphFacts", "Match", "NodeFacts", "Quirk", "Value"]
