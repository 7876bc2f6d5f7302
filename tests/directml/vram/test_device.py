"""How the provider and Direct3D 12 round."""

from __future__ import annotations

import pytest

from dmlprep.directml.vram.device import bucket_bytes, committed_bytes, pool_bytes, readback_bytes, upload_bytes
from dmlprep.graph.analysis.liveness import Buffer

_KIB, _MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("nbytes", "bucket", "committed"),
    [
        (0, 64 * _KIB, 64 * _KIB),
        (1, 64 * _KIB, 64 * _KIB),
        (64 * _KIB, 64 * _KIB, 64 * _KIB),
        (64 * _KIB + 1, 128 * _KIB, 128 * _KIB),
        (602_112, _MIB, 655_360),  # ResNet-50's picture
        (13_856_768, 16 * _MIB, 13_893_632),  # the block of its fused graph
        (10**30, 1 << 100, -(-(10**30) // 65536) * 65536),
    ],
)
def test_tensors_of_a_run_take_powers_of_two_and_weights_pages(nbytes: int, bucket: int, committed: int) -> None:
    assert (bucket_bytes(nbytes), committed_bytes(nbytes)) == (bucket, committed)


def test_a_buffer_serves_the_next_tensor_of_its_size_only() -> None:
    held = [Buffer("a", 1, 0, 1), Buffer("b", 2, 2, 3), Buffer("c", 70_000, 2, 3), Buffer("d", 3, 3, 3)]
    assert pool_bytes(held) == 2 * 64 * _KIB + 128 * _KIB


def test_what_goes_up_at_once_doubles() -> None:
    assert upload_bytes([]) == 0
    assert upload_bytes([1]) == _MIB
    assert upload_bytes([_MIB, 1]) == 2 * _MIB
    assert upload_bytes([_MIB] * 4) == 4 * _MIB
    assert upload_bytes([_MIB] * 5) == 8 * _MIB


def test_the_largest_output_decides_what_comes_down() -> None:
    assert (readback_bytes(1), readback_bytes(3 * _MIB)) == (_MIB, 4 * _MIB)
