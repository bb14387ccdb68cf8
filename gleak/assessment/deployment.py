"""``deployment.yaml``: the description of a deployment, in the terms of those who run it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from gleak.core.errors import SpecError
from gleak.core.yaml_input import load_mapping, read_model

STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
Scale = Literal["quick", "small"]
TEMPLATE = """\
# A deployment of federated learning, for: gleak assess {name}
# Names are those of gleak list; gleak describe NAME shows the fields of one (lenet+width=24).
# Every key but model and data may be left out.

model: lenet              # a name of gleak list model, or your own function, as module.function
data: digits              # a name of gleak list dataset, or a folder with test/<class>/<image>
training: untrained       # parameters that clients receive; or central, federated, pretrained
client:                   # what a client does in one round
  batch_size: 1           # samples
  # local_steps: 5        # more than one: federated averaging
  # local_lr: 0.01
  # optimizer: sgd~momentum=0.9    # or adam, ...: gleak list client_optimizer
defense: none             # the defence in use
# defenses: [gaussian+std=1e-3, topk+keep=0.1]     # defences to compare, each beside its cost
# vary: {{batch_size: [1, 4], rounds: [0, 2, 5]}}    # fields of the client, model, training, rounds
# curves: true            # the same for batch size, local steps, rounds, the optimiser's state
# captures: [hand]        # updates of your own clients, imported with gleak import; without client
attacker:
  kind: honest_but_curious         # or crafting_server, which may change the parameters it sends
  # grants: [labels]      # what the attacker knows besides: gleak describe an attack for names
thresholds: {{ssim: 0.5}}   # a client above one of these is exposed: gleak list metric
# thresholds: {{tpr_at_1: 0.05, identified: 0.05, epsilon_measured: 1}}   # besides, each if given:
#   members found at 1% false positives, images told from 99 others of their class, audited epsilon
budget: {{minutes: 5}}      # of one core, by gleak plan; or scale: quick or small
# victims: 20             # number of simulated clients; unless given, what the budget allows
# iterations: 1000        # of the attack for each client; unless given, what the budget allows
# attacks: [invertgrad+tv=0.1]     # to run beside those that gleak chooses
# pictures: false         # no true and recovered samples in the report
# seed: 0
"""


def _name_or_fields(value: Any) -> Any:
    if not isinstance(value, str | dict):
        raise ValueError("give the name of a dataset, a folder of images, or {folder: ...}")
    return value


class Attacker(BaseModel):
    """The attacker, who is always the server."""

    model_config = STRICT

    kind: Literal["honest_but_curious", "crafting_server"] = Field(
        "honest_but_curious",
        description="a crafting server may change the parameters that it broadcasts",
    )
    grants: list[str] = Field([], description="what the attacker knows besides the update")


class Budget(BaseModel):
    """Size of the work: the largest that a time allows, or that of a scale."""

    model_config = STRICT

    minutes: float | None = Field(
        None,
        gt=0,
        description="minutes of one core, as gleak plan estimates them; without the key budget 5",
    )
    scale: Scale | None = Field(
        None,
        description="in place of minutes: clients and iterations of the attack, however long they "
        "take; quick: 10 and 1000, small: 20 and 4800; more: give victims and iterations",
    )

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.minutes is None) == (self.scale is None):
            raise ValueError("give either minutes or scale")
        return self


class Deployment(BaseModel):
    """The content of a deployment file."""

    model_config = STRICT

    model: str = Field(description="a registered model, or a function as module.function")
    data: Annotated[str | dict[str, Any], BeforeValidator(_name_or_fields)] = Field(
        description="a registered dataset, a folder of images, or {folder: ..., size: ...}"
    )
    training: str = Field("untrained", description="how the broadcast parameters came about")
    client: dict[str, Any] = Field(
        {}, description="fields of the client; name: fedsgd, fedavg, ..., unless it follows"
    )
    captures: list[str] = Field([], description="names of imported updates, see gleak import")
    defense: str = Field(
        "none", description="the defence in use; of captures that with which they were imported"
    )
    defenses: list[str] = Field([], description="defences to compare with it")
    attacker: Attacker = Attacker()
    attacks: list[str] = Field([], description="attacks to run besides those that are chosen")
    vary: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        {},
        description="a field of the client, model, training, or rounds (federated ones before that "
        "of the update, 0: untrained) -> its values",
    )
    curves: bool = Field(
        False,
        description="vary also batch size, local steps, rounds and the optimiser's state, each "
        "from a client that hides little to that of the deployment",
    )
    victims: int | None = Field(None, ge=1, description="simulated clients; null: by the budget")
    iterations: int | None = Field(
        None, ge=1, description="iterations of the attack for each client; null: by the budget"
    )
    budget: Budget = Budget(minutes=5)
    thresholds: dict[str, float] = Field(
        {},
        description="metric -> value from which a client is exposed, default ssim: 0.5; and on who "
        "took part tpr_at_1 or auc, on identified images identified, on epsilon epsilon_measured, "
        "of which none has a default",
    )
    pictures: bool = Field(True, description="show true and recovered samples in the report")
    seed: int = Field(0, ge=0, description="seed of all random streams")


def read_deployment(path: Path) -> Deployment:
    """Read a deployment file."""
    if not path.is_file():
        command = f"gleak assess --init {shlex.quote(str(path))}"
        raise SpecError(f"{path}: no such file; write one with: {command}")
    return read_model(Deployment, load_mapping(path, "deployment", "model, data, ..."), str(path))


def write_template(path: Path) -> None:
    """Write a deployment file with comments on every key, where there is no file yet."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE.format(name=shlex.quote(str(path))))
    except FileExistsError:
        raise SpecError(f"{path} exists already; edit it, or give another name") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be written ({error.strerror})") from None
