"""Any image folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator

from gleak.core.registry import register
from gleak.core.spec import FILE_NAME, parameter
from gleak.data.image_folder import ImageFolderDataset


@register("folder")
class Folder(ImageFolderDataset):
    """Images of your own: ``<data_dir>/<folder>/{train,test}/<class>/<image>``."""

    source: ClassVar[str] = "the user's own images"

    folder: str = parameter("images", "name of the folder below data_dir", pattern=FILE_NAME)
    channels: Annotated[Literal[1, 3], BeforeValidator(int)] = parameter(3, "1 for grey, 3 for RGB")

    @property
    def shape(self) -> tuple[int, ...]:
        """Grey or RGB, as asked."""
        return (self.channels, self.size, self.size)

    def root(self, data_dir: Path) -> Path:
        """The folder that is named."""
        return data_dir / self.folder
