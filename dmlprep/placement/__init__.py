"""Which node goes to DirectML and which to the CPU, why, what fuses, where tensors cross. All of it offline."""

from dmlprep.placement.opset import choose_opset, off_directml
from dmlprep.placement.place import place
from dmlprep.placement.placement import Crossing, PlacedNode, Placement

__all__ = ["Crossing", "PlacedNode", "Placement", "choose_opset", "off_directml", "place"]
