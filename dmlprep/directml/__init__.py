"""The behaviour of DirectML, node by node, without a session: kernels, placement, quirks and device memory.

Changes to a model belong in ``passes``, except the rewrite that belongs to a quirk.
"""
