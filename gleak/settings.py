"""The workflow's configuration: ``config.yaml`` and ``--config``, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gleak.errors import SpecError, nearest

Scale = Literal["quick", "small", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)


class Settings(BaseModel):
    """Every key of ``config.yaml``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    studies: list[str] = Field(description="files in studies/ without .yaml")
    scale: Scale = Field("quick", description="how large the studies run")
    data_dir: Path = Field(Path("data"), description="the user's image folders and tables")
    results_dir: Path = Field(Path("results"), description="everything that is made")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where torch computes")
    seed: int = Field(0, ge=0, description="of all random streams")
    shards: int = Field(1, ge=1, description="jobs one cell's victims are split over")

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Settings:
        """Check a configuration.

        Raises:
            SpecError: every unknown key and bad value, with what is valid.
        """
        config = dict(config)
        if isinstance(config.get("studies"), str):
            config["studies"] = config["studies"].split(",")
        try:
            return cls(**config)
        except ValidationError as error:
            faults = "; ".join(map(_describe, error.errors()))
            raise SpecError(f"config: {faults}") from None


def _describe(fault: Any) -> str:
    key = str(fault["loc"][0])
    if fault["type"] == "extra_forbidden":
        return f"unknown key {key!r}; {nearest(key, Settings.model_fields)}"
    return f"{key} = {fault['input']!r}: {fault['msg']}"
