from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from gleak.core.errors import SpecError
from gleak.defenses.base import DefenseSpec, Memory, encode
from gleak.defenses.sending import protect

UPDATE = {
    "weight": torch.ones(1, 2, 2),
    "empty": torch.ones(1, 0),
    "bias": torch.ones(1, 2),
}


def sent(result: Any) -> dict[str, Any]:
    class Own(DefenseSpec):
        name: ClassVar[str] = "own"

        def protect(self, *_: Any) -> Any:
            return result

    return dict(protect(Own(), UPDATE, torch.Generator(), Memory()))


def test_parameters_without_values_are_left_alone() -> None:
    result = sent({name: encode(UPDATE[name] * 0) for name in ("bias", "weight")})
    assert list(result) == list(UPDATE)
    assert not result["weight"].decode().any()
    assert result["empty"].decode().shape == (1, 1, 0)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"bias": encode(UPDATE["bias"])}, "left out weight; return every parameter"),
        ({k: v * 0 for k, v in UPDATE.items()}, "returned empty, which the update does not have"),
        ({k: UPDATE[k] for k in ("weight", "bias")}, r"returned Tensor for weight, .*encode"),
        ([encode(UPDATE["weight"])], "returned list, expected a dictionary"),
        (None, "returned NoneType"),
    ],
)
def test_what_protect_returns_is_checked(result: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        sent(result)
