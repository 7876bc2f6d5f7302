"""Kinds of operators that several rooms ask for."""

from __future__ import annotations

MOVES = frozenset(
    """
    Identity Reshape Transpose Slice Squeeze Unsqueeze Flatten Expand Tile Gather GatherElements
    GatherND Concat Split DepthToSpace SpaceToDepth ReverseSequence Compress Trilu Dropout
    """.split()  # noqa: SIM905 - a list of a hundred names reads better as words
)
"""Operators that move values and change none."""

CONTROL = frozenset(
    """
    If Loop Scan SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap
    SplitToSequence ConcatFromSequence Optional OptionalGetElement OptionalHasElement
    """.split()  # noqa: SIM905 - a list of a hundred names reads better as words
)
"""Control flow, and what makes or reads sequences and optionals."""
