"""The placement of nodes on DirectML or the CPU, with reasons, fusions, and copies between devices. All offline."""

from dmlprep.directml.placement.opset import choose_opset, off_directml
from dmlprep.directml.placement.place import place
from dmlprep.directml.placement.placement import Crossing, PlacedNode, Placement

__all__ = ["Crossing", "PlacedNode", "Placement", "choose_opset", "off_directml", "place"]
