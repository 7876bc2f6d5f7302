"""Which node goes to DirectML and which to the CPU, why, what fuses, where tensors cross. All of it offline."""

from dmlprep.directml.placement.opset import choose_opset, off_directml
from dmlprep.directml.placement.place import place
from dmlprep.directml.placement.placement import Crossing, PlacedNode, Placement

__all__ = ["Crossing", "PlacedNode", "Placement", "choose_opset", "off_directml", "place"]
