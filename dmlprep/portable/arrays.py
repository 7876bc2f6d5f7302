"""The type of numpy arrays with any dimensions and element type."""

from __future__ import annotations

import numpy as np

Array = np.ndarray
