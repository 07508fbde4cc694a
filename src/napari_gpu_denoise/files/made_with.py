"""Whether the record of a result tells the noise that is asked for."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np


def has_noise(record: dict[str, Any], sigma: Any, noise: Any) -> bool:
    """Return whether a result was made with this `sigma` and `noise`, those of `denoise`.

    What is measured may be anything that was measured, of the model that is named, if any.
    """
    source, models = str(record.get("sigma_source", "")), record.get("noise") or []
    if not source.startswith(("given", "estimated")):
        return True  # the filter takes no noise
    if sigma is None and isinstance(noise, (int, float, np.number)):
        sigma = noise
    if sigma is not None:
        return source.startswith("given") and _has_sigma(record, source, sigma)
    if noise is None or isinstance(noise, str):
        named = {each.get("model") for each in models} if noise not in (None, "auto") else set()
        return source.startswith("estimated") and named <= {noise}
    given = getattr(noise, "models", noise)
    given = given if isinstance(given, (tuple, list)) else [given]
    if any(getattr(each, "needs_image", False) for each in given):
        return {each.name for each in given} == {each.get("model") for each in models}
    wanted = [json.loads(json.dumps(each.as_dict())) for each in given]
    return bool(models) and all(
        each == models[min(number, len(models) - 1)] for number, each in enumerate(wanted)
    )


def _has_sigma(record: dict[str, Any], source: str, sigma: Any) -> bool:
    """Return whether a record has these values, or tells of a map like this one."""
    values, held = np.ravel(np.asarray(sigma, np.float64)), list(record.get("sigma", []))
    if source == "given":
        return held == values.tolist()
    told = f"given as a map from {values.min():.4g} to {values.max():.4g}"
    mean = math.sqrt(np.mean(np.square(values)))
    return told == source and len(held) == 1 and math.isclose(held[0], mean, rel_tol=1e-9)
