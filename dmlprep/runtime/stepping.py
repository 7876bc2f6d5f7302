"""Keep values in a session between runs, such as a decoder's past keys and values (worker code)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dmlprep.process.wire import numpy_dtype
from dmlprep.runtime.types import CarriedValue


class Held:
    """The values that a session keeps between its steps.

    Args:
        adapter: the number of the DirectML adapter that has the values; ``None``: the CPU.
        rows: input, output, element type and sizes of each value.
        shared: input and output of a value share one memory of the device. Otherwise an output of one step is the input
            of the next one.
    """

    def __init__(
        self, ort: Any, session: Any, adapter: int | None, rows: Sequence[Sequence[str]], *, shared: bool
    ) -> None:
        self._session = session
        self._device = ("cpu", 0) if adapter is None else ("dml", adapter)
        self._pairs = [CarriedValue(row[0], row[1], row[2], tuple(map(int, row[3:]))) for row in rows]
        self._shared = shared
        place = self._device if shared else ("cpu", 0)
        make = ort.OrtValue.ortvalue_from_numpy
        self._values = [make(np.zeros(one.shape, numpy_dtype(one.dtype)), *place) for one in self._pairs]

    def step(self, feeds: Mapping[str, object], wanted: Sequence[str]) -> list[object]:
        """Run once with the kept values and ``feeds``; return the outputs ``wanted``.

        All of them are OrtValues; the outputs are in the host's memory.
        """
        binding = self._session.io_binding()
        for name, value in feeds.items():
            binding.bind_ortvalue_input(name, value)
        for one, value in zip(self._pairs, self._values, strict=True):
            binding.bind_ortvalue_input(one.input, value)
            if self._shared:
                binding.bind_ortvalue_output(one.output, value)
            else:
                binding.bind_output(one.output, *self._device)
        for name in wanted:
            binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        outputs = binding.get_outputs()  # in the order in which they were bound
        if not self._shared:
            self._values = outputs[: len(self._pairs)]
        return list(outputs[len(self._pairs) :])
