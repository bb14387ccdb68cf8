"""Small networks of every kind that users bring, by name; all take images of `SHAPE`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

from gleak.testing.network_forms import WithoutGraph

SHAPE = (3, 8, 8)
CLASSES = 4
FEATURES = 4 * 6 * 6
Build = Callable[[], nn.Module]


def behind_convolution(*layers: nn.Module, channels: int = 4, features: int = FEATURES) -> Build:
    """A convolution, some layers and a dense one."""
    return lambda: nn.Sequential(
        nn.Conv2d(3, channels, 3), *deepcopy(layers), nn.Flatten(), nn.Linear(features, CLASSES)
    )


class Function(nn.Module):
    """A layer without parameters."""

    def __init__(self, compute: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, inputs: Tensor) -> Tensor:
        return self.compute(inputs)


class Tokens(nn.Module):
    """Images as sequences of 24 tokens of 8 values, through a layer for sequences."""

    def __init__(self, layer: nn.Module, pool: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.pool = layer, pool
        self.head = nn.Linear(8, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.pool(self.layer, inputs.flatten(1).unflatten(1, (-1, 8))))


class Dense(nn.Module):
    """Two dense layers; `between` says what happens between them."""

    def __init__(self, between: Callable[[Dense, Tensor], Tensor], width: int = 6) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(192, 6), nn.Linear(width, CLASSES)
        self.between = between

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.between(self, self.first(inputs.flatten(1))))


class TimeFirst(nn.Module):
    """A dense layer on (T, N, F), with T colours in front of the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(64, 6), nn.Linear(18, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        by_time = self.inner(inputs.flatten(2).transpose(0, 1)).sigmoid()
        return self.head(by_time.transpose(0, 1).flatten(1))


class OverwritesInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(192, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs.sub_(0.5).mul_(2).flatten(1))


class Cells(nn.Module):
    """A recurrent cell over colours."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(64, 6), nn.Linear(6, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        state = inputs.new_zeros(len(inputs), 6)
        for colour in inputs.flatten(2).unbind(1):
            state = self.cell(colour, state)
        return self.head(state)


class Embedded(nn.Module):
    """Positions that are learned, as a table and as a parameter of the network itself."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.offset = nn.Embedding(24, 8), nn.Parameter(torch.randn(24, 8))
        self.head = nn.Linear(192, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = inputs.flatten(1).unflatten(1, (24, 8))
        places = self.table(torch.arange(24))
        return self.head((tokens * places + self.offset).flatten(1))


class Bilinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Bilinear(192, 192, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs.flatten(1), inputs.flatten(1))


class Heads(nn.Module):
    """A head that is registered before the body, and one that no logit depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.unused = nn.Linear(6, CLASSES), nn.Linear(6, CLASSES)
        self.body = nn.Linear(192, 6)
        self.auxiliary = nn.Linear(6, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.body(inputs.flatten(1)).sigmoid()
        self.auxiliary(features)
        return self.head(features)


def time_means(layer: nn.Module, tokens: Tensor) -> Tensor:
    return layer(tokens).mean(1)


def last_output(layer: nn.Module, tokens: Tensor) -> Tensor:
    return layer(tokens)[0][:, -1]


def self_attention(layer: nn.Module, tokens: Tensor) -> Tensor:
    return layer(tokens, tokens, tokens, need_weights=False)[0].mean(1)


def attention_weights(layer: nn.Module, tokens: Tensor) -> Tensor:
    values, weights = layer(tokens, tokens, tokens)
    return values.mean(1) * weights.square().sum((1, 2))[:, None]


def attention() -> nn.Module:
    return nn.MultiheadAttention(8, 2, batch_first=True)


def transformer_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


def encoder() -> nn.Module:
    return nn.TransformerEncoder(transformer_layer(), 2, enable_nested_tensor=False)


def contrasted(_: Dense, values: Tensor) -> Tensor:
    """Every sample weighted by its similarity to the others of its batch."""
    unit = functional.normalize(values, dim=1)
    return (unit @ unit.T).softmax(1) @ values


def tied() -> nn.Module:
    network = nn.Sequential(
        nn.Flatten(), nn.Linear(192, 6), nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, CLASSES)
    )
    network[3].weight = network[2].weight
    return network


def reparametrised(how: Callable[[nn.Module], nn.Module]) -> Build:
    def build() -> nn.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            layers = how(nn.Conv2d(3, 4, 3)), how(nn.Linear(FEATURES, CLASSES))
        return nn.Sequential(layers[0], nn.Sigmoid(), nn.Flatten(), layers[1])

    return build


def pruned(layer: nn.Module) -> nn.Module:
    return prune.l1_unstructured(layer, "weight", 0.5)


def frozen_body() -> nn.Module:
    network = behind_convolution(nn.Sigmoid())()
    network[0].requires_grad_(False)
    return network


def frozen_weight() -> nn.Module:
    network = behind_convolution(nn.Sigmoid())()
    network[0].weight.requires_grad_(False)
    return network


def volumes() -> nn.Module:
    layers = nn.Unflatten(1, (1, 3)), nn.Conv3d(1, 2, 3), nn.Sigmoid()
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(72, CLASSES))


def sequences() -> nn.Module:
    layers = nn.Flatten(2), nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.Sigmoid()
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(248, CLASSES))


def patches() -> nn.Module:
    layers = nn.Unfold(3), nn.Unflatten(2, (6, 6)), nn.Conv2d(27, 4, 1), nn.Tanh()
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(FEATURES, CLASSES))


def transposed() -> nn.Module:
    layers = nn.ConvTranspose2d(3, 4, 3, padding=2), nn.Tanh()
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(FEATURES, CLASSES))


def grouped() -> nn.Module:
    layers = nn.Conv2d(3, 6, 3, groups=3), nn.Conv2d(6, 4, 1), nn.SiLU()
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(FEATURES, CLASSES))


def padded(mode: str) -> Build:
    def build() -> nn.Module:
        layers = nn.Conv2d(3, 4, 3, padding=1, padding_mode=mode), nn.Tanh(), nn.AvgPool2d(3, 1)
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(FEATURES, CLASSES))

    return build


INTERACTING: dict[str, Build] = {
    "batch statistics, functional": behind_convolution(
        Function(lambda x: functional.batch_norm(x, None, None, training=True)), nn.Sigmoid()
    ),
    "batch norm without running statistics": behind_convolution(
        nn.BatchNorm2d(4, track_running_stats=False), nn.Sigmoid()
    ),
    "centred": lambda: Dense(lambda _, x: x - x.mean(0)),
    "contrastive head": lambda: Dense(contrasted),
}
"""Networks whose samples have a part in each other's logits."""

SEPARATE: dict[str, Build] = {
    "attention": lambda: Tokens(attention(), self_attention),
    "attention weights": lambda: Tokens(attention(), attention_weights),
    "transformer layer": lambda: Tokens(transformer_layer(), time_means),
    "transformer encoder": lambda: Tokens(encoder(), time_means),
    "LSTM": lambda: Tokens(nn.LSTM(8, 8, batch_first=True), last_output),
    "stacked GRU with dropout": lambda: Tokens(
        nn.GRU(8, 4, 2, batch_first=True, bidirectional=True, dropout=0.2), last_output
    ),
    "RNN": lambda: Tokens(nn.RNN(8, 8, batch_first=True), last_output),
    "recurrent cell": Cells,
    "spectral norm, hooks": reparametrised(spectral_norm),
    "spectral norm": reparametrised(parametrizations.spectral_norm),
    "weight norm, hooks": reparametrised(weight_norm),
    "weight norm": reparametrised(parametrizations.weight_norm),
    "orthogonal weight": lambda: nn.Sequential(
        nn.Flatten(), parametrizations.orthogonal(nn.Linear(192, 6)), nn.Linear(6, CLASSES)
    ),
    "pruned": reparametrised(pruned),
    "frozen body": frozen_body,
    "frozen weight, trained bias": frozen_weight,
    "heads": Heads,
    "overwrites its inputs": OverwritesInputs,
    "overwrites activations": behind_convolution(nn.ReLU(inplace=True)),
    "dense on time first": TimeFirst,
    "weight used twice": lambda: Dense(
        lambda net, x: x + 0.1 * functional.linear(x, net.first.weight[:, :6])
    ),
    "divided by a weight's norm": lambda: Dense(lambda net, x: x / net.last.weight.norm()),
    "layer used twice": lambda: Dense(lambda net, x: net.last(x)[:, :1] * x),
    "tied weights": tied,
    "learned positions": Embedded,
    "bilinear": Bilinear,
    "1-d convolution and batch norm": sequences,
    "3-d convolution": volumes,
    "transposed convolution": transposed,
    "grouped convolution": grouped,
    "circular padding": padded("circular"),
    "reflected padding": padded("reflect"),
    "unfolded patches": patches,
    "batch norm": behind_convolution(nn.BatchNorm2d(4), nn.Sigmoid()),
    "layer norm": behind_convolution(nn.LayerNorm((4, 6, 6)), nn.Sigmoid()),
    "group norm": behind_convolution(nn.GroupNorm(2, 4), nn.Sigmoid()),
    "instance norm": behind_convolution(nn.InstanceNorm2d(4, affine=True), nn.Sigmoid()),
    "RMS norm": behind_convolution(nn.RMSNorm((4, 6, 6)), nn.Sigmoid()),
    "local response norm": behind_convolution(nn.LocalResponseNorm(2), nn.Sigmoid()),
    "PReLU": behind_convolution(nn.PReLU(4)),
    "RReLU": behind_convolution(nn.RReLU()),
    "GELU": behind_convolution(nn.GELU()),
    "GLU": behind_convolution(nn.GLU(1), channels=8),
    "dropout of three kinds": behind_convolution(
        nn.Dropout2d(0.3), nn.ELU(), nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2)
    ),
    "max pooling": behind_convolution(nn.MaxPool2d(2), features=36),
    "adaptive pooling": behind_convolution(nn.Sigmoid(), nn.AdaptiveAvgPool2d(2), features=16),
    "upsampling": behind_convolution(nn.Upsample(size=6, mode="bilinear")),
    "pixel shuffle": behind_convolution(nn.Tanh(), nn.PixelShuffle(2)),
}
"""Networks each of whose samples has logits of its own."""


class Ordered(nn.Module):
    """Layers that are registered in another order than that in which they run."""

    def __init__(self, registered: dict[str, nn.Module], run: str) -> None:
        super().__init__()
        for name, layer in registered.items():
            self.add_module(name, layer)
        self.run = run.split()

    def forward(self, inputs: Tensor) -> Tensor:
        for name in self.run:
            inputs = self.get_submodule(name)(inputs)
        return inputs


class Scale(nn.Module):
    """A learned factor without axes."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.7))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.factor * inputs


class Root(nn.Module):
    """Parameters of the network itself, of some shapes, registered before its layers."""

    def __init__(
        self, shapes: dict[str, tuple[int, ...]], run: Callable[[Root, Tensor], Tensor]
    ) -> None:
        super().__init__()
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape) / 8))
        self.body, self.head = nn.Linear(192, 6), nn.Linear(6, CLASSES)
        self.run = run

    def forward(self, inputs: Tensor) -> Tensor:
        return self.run(self, inputs.flatten(1))


class WideAndDeep(nn.Module):
    """Logits of a dense layer, and of two more, of the same inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.deep = nn.Linear(192, CLASSES), nn.Linear(192, 6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        flat = inputs.flatten(1)
        return self.wide(flat) + self.head(self.deep(flat).relu())


class Autoencoding(nn.Module):
    """A first layer that runs again, transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(192, 6), nn.Linear(192, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        code = self.first(inputs.flatten(1)).relu()
        return self.head(code @ self.first.weight)


class ClassToken(nn.Module):
    """A vision transformer: a token and positions of its own before an encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.places = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(25, 8))
        self.encoder, self.head = transformer_layer(), nn.Linear(8, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = inputs.flatten(1).unflatten(1, (24, 8))
        joined = torch.cat([self.token.expand(len(tokens), 1, 8), tokens], 1)
        return self.head(self.encoder(joined + self.places)[:, 0])


class Blocks(nn.Module):
    """Parameters in a list and in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(6, 192) / 8, torch.randn(CLASSES, 6)])
        self.biases = nn.ParameterDict({"first": torch.zeros(6), "last": torch.zeros(CLASSES)})

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.linear(inputs.flatten(1), self.weights[0], self.biases["first"])
        return functional.linear(hidden.sigmoid(), self.weights[1], self.biases["last"])


def dense(*between: nn.Module, width: int = 6) -> nn.Sequential:
    """Return dense layers, with a ReLU and others between them."""
    first, last = nn.Linear(192, width), nn.Linear(width, CLASSES)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), *between, last)


def small_convolution() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sigmoid(), nn.Flatten())


def frozen(network: nn.Module, *names: str) -> nn.Module:
    """Freeze parameters, given by the beginnings of their names."""
    for name, value in network.named_parameters():
        value.requires_grad_(not name.startswith(names))
    return network


def swapped() -> nn.Module:
    registered = {"head": nn.Linear(6, CLASSES), "act": nn.ReLU(), "body": nn.Linear(192, 6)}
    return Ordered(registered | {"flat": nn.Flatten()}, "flat body act head")


def swapped_convolutions() -> nn.Module:
    registered = {"head": nn.Linear(36, CLASSES), "flat": nn.Flatten(), "act": nn.ReLU()}
    registered |= {"late": nn.Conv2d(4, 4, 4), "early": nn.Conv2d(3, 4, 3)}
    return Ordered(registered, "early act late flat head")


def unused_first(unused: Build) -> Build:
    def build() -> nn.Module:
        registered = {"unused": unused(), "flat": nn.Flatten(), "body": nn.Linear(192, 6)}
        registered |= {"act": nn.ReLU(), "head": nn.Linear(6, CLASSES)}
        return Ordered(registered, "flat body act head")

    return build


def twice_first() -> nn.Module:
    registered = {"flat": nn.Flatten(), "body": nn.Linear(192, 192), "act": nn.ReLU()}
    return Ordered(registered | {"head": nn.Linear(192, CLASSES)}, "flat body act body head")


def tied_first() -> nn.Module:
    network = dense(nn.Linear(6, 6))
    network.insert(1, nn.Linear(192, 192))
    network.insert(1, nn.Linear(192, 192))
    network[1].weight = network[2].weight
    return network


def traced() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(dense(), torch.rand(2, *SHAPE))


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(dense())


FORMS: dict[str, dict[str, Build]] = {
    "order": {
        "head registered first": swapped,
        "convolutions registered last": swapped_convolutions,
        "normalised rows": lambda: nn.Sequential(
            nn.Flatten(), nn.BatchNorm1d(192), *list(dense())[1:]
        ),
        "wide and deep": WideAndDeep,
    },
    "scalar": {
        "scalar first": lambda: nn.Sequential(Scale(), *dense()),
        "scalar temperature": lambda: nn.Sequential(*dense(), Scale()),
        "scalar behind a convolution": behind_convolution(Scale(), nn.Sigmoid()),
        "scalar of the network": lambda: Root(
            {"factor": ()}, lambda net, x: net.head(net.factor * net.body(x).relu())
        ),
        "empty parameter": lambda: Root(
            {"nothing": (0, 3)}, lambda net, x: net.head(net.body(x).relu()) + net.nothing.sum()
        ),
    },
    "frozen": {
        "frozen first dense layer": lambda: frozen(dense(), "1."),
        "frozen first weight": lambda: frozen(dense(), "1.weight"),
        "frozen first bias": lambda: frozen(dense(), "1.bias"),
        "frozen first of three": lambda: frozen(dense(nn.Linear(6, 6), nn.ReLU()), "1."),
        "frozen head": lambda: frozen(dense(), "3."),
        "frozen second dense layer": lambda: frozen(
            behind_convolution(nn.Flatten(), nn.Linear(FEATURES, 6), features=6)(), "2."
        ),
        "frozen but a scalar": lambda: frozen(nn.Sequential(*dense(), Scale()), "1.", "3."),
    },
    "unused": {
        "unused layer first": unused_first(lambda: nn.Linear(6, 6)),
        "unused frozen layer first": unused_first(lambda: nn.Linear(6, 6).requires_grad_(False)),
        "unused scalar first": unused_first(Scale),
        "unused recurrent layer first": unused_first(lambda: nn.GRU(8, 8)),
    },
    "tied": {
        "first layer twice": twice_first,
        "first weights tied": tied_first,
        "first weight transposed": Autoencoding,
    },
    "sequence first": {
        "GRU": lambda: Tokens(nn.GRU(8, 8, batch_first=True), last_output),
        "class token": ClassToken,
    },
    "root": {
        "dense parameters of the network": lambda: Root(
            {"weight": (6, 192), "bias": (6,)},
            lambda net, x: net.head(functional.linear(x, net.weight, net.bias).relu()),
        ),
        "shift of the network": lambda: Root(
            {"shift": (192,)}, lambda net, x: net.head(net.body(x + net.shift).relu())
        ),
        "parameter list": Blocks,
    },
    "double": {
        "double, dense": lambda: dense().double(),
        "double, linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES)).double(),
        "double, convolution": lambda: behind_convolution(nn.Sigmoid())().double(),
        "double, batch norm": lambda: behind_convolution(nn.BatchNorm2d(4), nn.ReLU())().double(),
        "double, GRU": lambda: Tokens(nn.GRU(8, 8, batch_first=True), last_output).double(),
        "double, attention": lambda: Tokens(attention(), self_attention).double(),
        "double, scalar": lambda: nn.Sequential(*dense(), Scale()).double(),
    },
    "no graph": {
        "features without a graph": lambda: WithoutGraph(
            small_convolution(), FEATURES, torch.no_grad
        ),
        "dense features without a graph": lambda: WithoutGraph(
            dense(width=192)[:2], 192, torch.no_grad
        ),
    },
}
"""Networks by what is unusual in their form: order, names, shapes and precision of parameters."""

WRAPPED: dict[str, Build] = {
    "DataParallel": lambda: nn.DataParallel(dense()),
    "DataParallel, convolution": lambda: nn.DataParallel(behind_convolution(nn.Sigmoid())()),
    "compiled": lambda: torch.compile(dense(), backend="eager"),
}
"""Networks in wrappers of torch."""

REFUSED: dict[str, Build] = {
    "script": scripted,
    "trace": traced,
    "inference mode": lambda: WithoutGraph(small_convolution(), FEATURES, torch.inference_mode),
}
"""Networks that are refused by name."""

SEPARATE |= {name: build for form in FORMS.values() for name, build in form.items()}
NETWORKS = SEPARATE | INTERACTING
