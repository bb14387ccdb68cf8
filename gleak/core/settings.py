"""The workflow's configuration: ``config.yaml`` and ``--config``, checked before anything runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gleak.core.errors import SpecError, nearest

Scale = Literal["quick", "small", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
UNUSABLE = "\0\n{}"


def _usable(path: Path) -> Path:
    """Refuse what no file is called, or what the workflow would fill in."""
    if set(UNUSABLE) & set(str(path)):
        raise ValueError("may hold no line break, zero byte or brace")
    return path


Folder = Annotated[Path, AfterValidator(_usable)]


class Settings(BaseModel):
    """Every key of ``config.yaml``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    studies: list[str] = Field(description="files in studies/ without .yaml")
    scale: Scale = Field("quick", description="how large the studies run")
    data_dir: Folder = Field(Path("data"), description="the user's image folders and tables")
    results_dir: Folder = Field(Path("results"), description="everything that is made")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where torch computes")
    seed: int = Field(0, ge=0, description="of all random streams")
    shards: int = Field(1, ge=1, description="jobs one cell's victims are split over")

    def check_results(self) -> None:
        """Refuse a folder of results in which nothing can be written.

        Raises:
            SpecError: names it.
        """
        folder = self.results_dir
        if folder.exists() and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
            raise SpecError(
                f"config: nothing can be written in results_dir = {folder} (no folder, no "
                "permission, or a file system gone read-only); mend that, or set results_dir to "
                "another folder; what is there is left as it is"
            )

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
            return cls.model_validate(config)
        except ValidationError as error:
            faults = "; ".join(map(_describe, error.errors()))
            raise SpecError(f"config: {faults}") from None


def _describe(fault: Any) -> str:
    key = str(fault["loc"][0])
    if fault["type"] == "extra_forbidden":
        return f"unknown key {key!r}; {nearest(key, Settings.model_fields)}"
    return f"{key} = {fault['input']!r}: {fault['msg']}"
