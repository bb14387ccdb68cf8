"""What stands on an attack axis in place of a spec: the one that a search chose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from gleak.core.errors import SpecError, error_context, nearest
from gleak.core.spec import changed
from gleak.experiments.search.declaration import Search


class Reference(BaseModel):
    """The attack that a search chose, other fields changed after it.

    Args:
        search: its name.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    search: str

    def specs(self, searches: Mapping[str, Search]) -> tuple[str, str]:
        """Canonical specs: what the search began with, and what it chose.

        They are the same where nothing was chosen.

        Args:
            searches: of the study, at the scale.

        Raises:
            SpecError: no such search, or fields that its attack does not have.
        """
        fields: dict[str, Any] = self.model_extra or {}
        with error_context(f"search {self.search!r}"):
            if self.search not in searches:
                hint = nearest(self.search, searches)
                raise SpecError(f"the study has none of that name; {hint}")
            search = searches[self.search]
            found = search.chosen or search.base
            return str(changed(search.base, fields)), str(changed(found, fields))
