"""Mod of Flower clients that captures their rounds as they are, with the optimiser that they use.

    app = ClientApp(mods=[CapturingMod("/home/me/captured")])

Unlike a wrapper of the strategy (`flower.Capturing`), it sees the training.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from gleak.captures.frameworks.flower import FIRST, arrays_of
from gleak.captures.frameworks.flower_mods import round_of, trains
from gleak.captures.frameworks.observers import unharmed, write_round
from gleak.captures.observed_training import Samples, observed
from gleak.captures.round_folder import ROUND, RoundFolder
from gleak.core.errors import needs_extra

with needs_extra("flower"):
    from flwr.app import Context, Message
    from flwr.clientapp.typing import ClientAppCallable


class CapturingMod:
    """Mod that captures rounds in the format of ``gleak import``, and what it sees of the training.

    Beside the states it records the optimiser, learning rate and number of steps, by PyTorch's
    global hooks, without a change of the training. Nothing that goes wrong harms the round: it is
    logged. Place it last among the mods, where it sees what is sent.

    Args:
        folder: output; in it ``round-<number>/before.safetensors`` and each client's reply
            ``round-<number>/client-<node>.safetensors``. ``flwr run`` trains in the folder in which
            Flower was started first, so give an absolute path.
        rounds: numbers of the rounds to capture; by default only the first.
        samples: from what the network takes to values in [0, 1], to score attacks: the samples of
            the round are then written, too, as seen by the network; None: they are not.
        names: names of the arrays, if clients send plain lists of arrays; None: as sent.
    """

    def __init__(
        self,
        folder: Path | str,
        rounds: Collection[int] = FIRST,
        samples: Samples | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.folder, self.rounds = Path(folder).expanduser(), rounds
        self.samples, self.names = samples, names

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Train, and write what was received, trained and sent."""
        if not trains(message) or round_of(message) not in self.rounds:
            return call_next(message, context)
        number, client = round_of(message), str(context.node_id)
        with observed(self.samples) as training:
            reply = call_next(message, context)
        with unharmed(f"round {number}, client {client}"):
            if reply.has_content():
                files = RoundFolder(self.folder / f"{ROUND}{number}")
                before, after = (arrays_of(each.content, self.names) for each in (message, reply))
                write_round(files, client, before, after, training)
        return reply
