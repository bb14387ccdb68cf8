"""Configuration of the workflow (``config.yaml`` and ``--config``), checked before any job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from gleak.core.errors import SpecError
from gleak.core.yaml_input import read_model

Scale = Literal["quick", "small", "headline", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
NO_GPU_SCALE = "the scale gpu has been removed; use paper on a GPU"
UNUSABLE = "\0\n{}<"
"""Characters of paths that file names, wildcards or the report's scripts do not allow."""
LISTS = ("studies", "plugins")
"""Keys whose values may be given as a text with commas."""


def _usable(path: Any) -> Any:
    if set(UNUSABLE) & set(str(path)):
        raise ValueError("may contain no line break, zero byte, brace or '<'")
    return path


def _refuse_gpu(scale: Any) -> Any:
    if scale == "gpu":
        raise ValueError(NO_GPU_SCALE)
    return scale


Folder = Annotated[Path, AfterValidator(_usable)]


class Settings(BaseModel):
    """Keys of ``config.yaml``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    studies: list[Annotated[str, AfterValidator(_usable)]] = Field(
        [],
        description="names of files in studies/ without .yaml, or paths of files that end in .yaml",
    )
    scale: Annotated[Scale, BeforeValidator(_refuse_gpu)] = Field(
        "quick", description="size of the experiments"
    )
    data_dir: Folder = Field(Path("data"), description="the user's image folders and tables")
    captures_dir: Folder | None = Field(
        None, description="folder of captured updates; null: <data_dir>/captures"
    )
    download: bool = Field(False, description="fetch missing datasets over the network")
    results_dir: Folder = Field(Path("results"), description="folder of all outputs")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="device that torch uses")
    seed: int = Field(0, ge=0, description="seed of all random streams")
    shards: int = Field(1, ge=1, description="number of jobs that share the victims of a cell")
    start_method: Literal["fork", "spawn"] = Field("fork", description="how a job's process starts")
    plugins: list[str] = Field(
        default_factory=list, description="modules of your own that register attacks, defences, ..."
    )

    @property
    def captures(self) -> Path:
        """Folder of captured updates."""
        return self.captures_dir or self.data_dir / "captures"

    def study_files(self, folder: Path) -> dict[str, Path]:
        """Return the file of each study by its name; those given by name are in ``folder``."""
        named: dict[str, Path] = {}
        for text in dict.fromkeys(self.studies):
            file = Path(text) if text.endswith(".yaml") else folder / f"{text}.yaml"
            if named.setdefault(file.stem, file) != file:
                raise SpecError(
                    f"config: studies {named[file.stem]} and {file} have one name, and would "
                    "replace each other's results; rename one"
                )
        return named

    def check_results(self) -> None:
        """Raise an error if the results folder is not writable."""
        folder = self.results_dir
        if folder.exists() and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
            raise SpecError(
                f"config: results_dir = {folder} is not writable (not a folder, no permission, or "
                "a read-only file system); fix that, or set results_dir to another folder; "
                "existing results are unchanged"
            )

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Settings:
        """Read a configuration; the error lists every unknown key and invalid value."""
        config = dict(config)
        for key in LISTS:
            if isinstance(config.get(key), str):
                config[key] = [name for name in config[key].split(",") if name]
        return read_model(cls, config, "config")
