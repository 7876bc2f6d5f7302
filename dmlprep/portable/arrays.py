"""The type of numpy arrays whose dimensions and element type are not declared."""

from __future__ import annotations

import numpy as np

Array = np.ndarray
