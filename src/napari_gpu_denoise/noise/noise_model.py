"""What every model of noise can do."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np

from napari_gpu_denoise.errors import SettingsError


class NoiseModel(ABC):
    """What all models of noise share; use one of `models`.

    A filter for additive noise is used in three steps: ``stabilise`` the image, filter that with
    ``sigma_after``, ``unstabilise`` what comes out.
    """

    name: ClassVar[str]

    def _check(
        self,
        *,
        positive: tuple[str, ...] = (),
        not_negative: tuple[str, ...] = (),
        tables: tuple[str, ...] = (),
    ) -> None:
        """Make plain floats of all fields, and refuse those that cannot be.

        Those that are `tables` become tuples of tuples of them.
        """
        for field in dataclasses.fields(self):
            given = getattr(self, field.name)
            if field.name in tables:
                object.__setattr__(self, field.name, self._table(field.name, given))
                continue
            try:
                value = float(given)
            except (TypeError, ValueError):
                value = math.nan
            wanted, fits = "a finite number", math.isfinite(value)
            if field.name in positive:
                wanted, fits = "a finite number above 0", fits and value > 0
            elif field.name in not_negative:
                wanted, fits = "a finite number of at least 0", fits and value >= 0
            if not fits:
                raise SettingsError(
                    f"{field.name}={given!r} cannot be that of {self.name} noise: give {wanted}."
                )
            object.__setattr__(self, field.name, value)

    def _table(self, name: str, given: Any) -> tuple[tuple[float, ...], ...]:
        try:
            table = np.array(given, dtype=np.float64)
        except (TypeError, ValueError):
            table = np.array(np.nan)
        if table.ndim != 2 or not table.size or not np.isfinite(table).all():
            raise SettingsError(
                f"{name} cannot be that of {self.name} noise: give rows of finite numbers, all of "
                "one length."
            )
        return tuple(map(tuple, table.tolist()))

    @property
    def sigma_after(self) -> float:
        """Standard deviation of the noise after `stabilise`."""
        return 1.0

    @abstractmethod
    def variance(self, mean: Any) -> np.ndarray:
        """Return the variance of pixels.

        Parameters
        ----------
        mean : array or float
            Expected value of the pixels as they are measured, grey levels.

        Returns
        -------
        ndarray, float64
            Of the shape of `mean`, squared grey levels.
        """

    @abstractmethod
    def stabilise(self, image: Any) -> np.ndarray:
        """Return an image whose noise is the same everywhere.

        Parameters
        ----------
        image : array, any shape and real dtype
            Grey levels. Not modified. NaN stays NaN.

        Returns
        -------
        ndarray, float32
            Of the shape of `image`, with noise of standard deviation `sigma_after`.

        Raises
        ------
        ImageError
            If the image is empty, or not of real numbers.
        """

    @abstractmethod
    def unstabilise(self, stabilised: Any) -> np.ndarray:
        """Return the grey levels whose stabilised pixels have these means.

        This is the exact unbiased inverse, not the algebraic one: it knows that the mean of a
        curve is not the curve of the mean.

        Parameters
        ----------
        stabilised : array, any shape
            What a filter made of the result of `stabilise`. Not modified.

        Returns
        -------
        ndarray, float32
            Of the shape of `stabilised`, grey levels.

        Raises
        ------
        ImageError
            If the array is empty, or not of real numbers.
        """

    @abstractmethod
    def summary(self) -> str:
        """Return the model as one line of text."""

    def as_dict(self) -> dict[str, Any]:
        """Return the name of the model and its parameters, ready for JSON.

        Returns
        -------
        dict
            Key ``model``, and one for each field.
        """
        return {"model": self.name, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the model that `as_dict` described.

        Parameters
        ----------
        values : dict
            As from `as_dict`. ``NoiseModel.from_dict`` makes whichever model it names.

        Returns
        -------
        NoiseModel

        Raises
        ------
        SettingsError
            If it names another model, or its parameters do not fit.
        """
        fields = dict(values)
        name = fields.pop("model", None)
        known = {model.name: model for model in cls.__subclasses__() or [cls]}
        if name not in known:
            raise SettingsError(f"model={name!r} is not known here: give {' or '.join(known)}.")
        try:
            return known[name](**fields)
        except TypeError as error:
            wanted = ", ".join(field.name for field in dataclasses.fields(known[name]))
            raise SettingsError(
                f"{', '.join(map(str, fields)) or 'nothing'} does not describe {name} noise: "
                f"give {wanted}."
            ) from error
