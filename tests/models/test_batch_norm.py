"""Statistics of batches at the inputs of batch normalisation layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gleak.core.errors import IncompatibleError
from gleak.models import batching
from gleak.models.batch_norm import (
    batch_norm_passes,
    batch_statistics,
    check_batch,
    input_statistics,
    run_by_clients,
    running_statistics,
)

SHAPE = (3, 6, 6)


def network(**options: bool) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, **options), nn.Tanh(), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(64, 5), nn.BatchNorm1d(5, **options)).eval()


class Repeated(nn.Module):
    """One layer that runs twice, and one that never does."""

    def __init__(self) -> None:
        super().__init__()
        self.unused, self.norm = nn.BatchNorm2d(7), nn.BatchNorm2d(3)

    def forward(self, images: Tensor) -> Tensor:
        return self.norm(2 * self.norm(images)).flatten(1)


def buffers_after_a_step(model: nn.Module, samples: Tensor) -> Tensor:
    """What a server computes from the running statistics that a client sends: Shape (2, K)."""
    norms = [
        layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d | nn.BatchNorm1d)
    ]
    counts: list[int] = []
    for layer in norms:
        layer.momentum = 1.0
        layer.register_forward_pre_hook(lambda _, given: counts.append(given[0][:, 0].numel()))
    with torch.no_grad():
        model.train()(samples)
    means = torch.cat([layer.running_mean for layer in norms])
    unbiased = [v.running_var * (n - 1) / n for v, n in zip(norms, counts, strict=True)]
    return torch.stack([means, torch.cat(unbiased)])


@pytest.mark.parametrize(("mode", "channels"), [("evaluation", 4), ("training", 9)])
def test_a_server_reads_statistics_off_the_buffers_of_a_step(mode: str, channels: int) -> None:
    """In evaluation mode the first layer's: later ones see other inputs than in training mode."""
    samples = torch.rand(5, *SHAPE)
    run = run_by_clients(network(), mode)
    found = torch.from_numpy(batch_statistics(run, samples[None].numpy())[0])
    expected = buffers_after_a_step(network(), samples)[:, :channels]
    assert torch.allclose(found[:, :channels], expected, rtol=1e-4, atol=1e-6)


def test_they_are_those_of_all_passes_in_the_order_in_which_they_run() -> None:
    model, samples = Repeated().eval(), torch.rand(4, *SHAPE)
    assert batch_norm_passes(model, SHAPE) == [model.norm, model.norm]
    means, variances = batch_statistics(model, samples[None].numpy())[0]
    first = samples.mean((0, 2, 3)).numpy()
    assert means == pytest.approx([*first, *(2 * first)], rel=1e-4)
    assert variances[3:] == pytest.approx(4 * variances[:3], rel=1e-3)


@pytest.mark.parametrize("options", [{}, {"track_running_stats": False}], ids=["running", "batch"])
def test_victims_do_not_share_statistics(options: dict[str, bool]) -> None:
    model, inputs = network(**options), torch.rand(3, 4, *SHAPE)
    together = input_statistics(model, inputs)
    for victim, samples in enumerate(inputs):
        for one, alone in zip(together, input_statistics(model, samples[None]), strict=True):
            assert torch.allclose(one.mean[victim], alone.mean[0], atol=1e-6)
            assert torch.allclose(one.variance[victim], alone.variance[0], atol=1e-6)


def test_a_batch_that_is_cut_to_fit_into_memory_has_the_statistics_of_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs = torch.rand(2, 5, *SHAPE).numpy()
    whole = batch_statistics(network(), inputs)
    monkeypatch.setattr(batching, "VALUES", 2 * 3 * 6 * 6)
    np.testing.assert_allclose(batch_statistics(network(), inputs), whole, rtol=1e-5, atol=1e-7)


def test_without_such_a_layer_there_are_no_statistics() -> None:
    network_without = nn.Sequential(nn.Flatten(), nn.Linear(108, 2))
    assert batch_statistics(network_without, torch.rand(3, 2, *SHAPE).numpy()).shape == (3, 2, 0)


def test_in_training_mode_logits_are_torchs_and_running_statistics_stay() -> None:
    model, samples = network(), torch.rand(5, *SHAPE)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    copied = run_by_clients(model, "training")
    assert [*copied.parameters()] == [*model.parameters()]
    assert not torch.allclose(copied(samples), model(samples), atol=1e-2)
    assert torch.equal(copied(samples), network().train()(samples))
    copied.train()(samples)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    mean, variance = running_statistics(copied[1]) or ()
    assert torch.equal(mean, model[1].running_mean)
    assert torch.equal(variance, model[1].running_var)


def test_networks_and_batches_that_cannot_be_normalised_are_refused() -> None:
    check_batch(network(), SHAPE, 2)
    with pytest.raises(IncompatibleError, match=r"BatchNorm1d\) .* batch of 1 .*use more samples"):
        check_batch(network(), SHAPE, 1)
    with pytest.raises(IncompatibleError, match="leave out batch_norm=training"):
        check_batch(nn.Sequential(nn.Flatten(), nn.Linear(108, 2)), SHAPE, 4)
