"""Learning rate and optimizer: closed forms, and AdamW against the update written out."""

import math

import pytest
import torch

from electra_ds.config.schema import OptimizerConfig
from electra_ds.training.optimizer import GuardedAdamW, group_values, parameter_groups, set_group_values
from electra_ds.training.schedule import learning_rate


def test_warm_up_starts_at_lr_over_warmup_and_linear_decay_ends_above_zero():
    optimizer = OptimizerConfig(lr=2e-4, schedule="linear", warmup_steps=10)
    rates = [learning_rate(optimizer, step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(2e-4 / 10, rel=1e-9)
    assert rates[9] == pytest.approx(2e-4 * 0.91, rel=1e-9)
    assert rates[50] == pytest.approx(1e-4, rel=1e-9)
    assert rates[99] == pytest.approx(2e-6, rel=1e-9)
    assert max(range(100), key=rates.__getitem__) == 9


def test_wsd_is_flat_and_then_falls():
    optimizer = OptimizerConfig(lr=1.0, schedule="wsd", warmup_steps=10, decay_share=0.2)
    assert learning_rate(optimizer, 79, 100) == 1.0
    assert learning_rate(optimizer, 90, 100) == pytest.approx(0.5)
    constant = OptimizerConfig(lr=1.0, schedule="constant", warmup_steps=0)
    assert {learning_rate(constant, step, 100) for step in range(100)} == {1.0}


@pytest.mark.parametrize("bias_correction", [True, False])
def test_adamw_equals_the_update_written_out(bias_correction):
    settings = OptimizerConfig(
        lr=0.01,
        warmup_steps=3,
        betas=(0.9, 0.98),
        eps=1e-3,
        weight_decay=0.1,
        bias_correction=bias_correction,
    )
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 2).double()
    expected = {name: p.detach().clone() for name, p in layer.named_parameters()}
    moments = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in expected.items()}
    optimizer = torch.optim.AdamW(parameter_groups(layer, 0.1), betas=settings.betas)
    for step in range(12):
        set_group_values(optimizer.param_groups, group_values(settings, step, 12))
        rate = learning_rate(settings, step, 12)
        for name, parameter in layer.named_parameters():
            gradient = parameter.grad = torch.randn_like(parameter)
            m, v = moments[name]
            m.mul_(0.9).add_(gradient, alpha=0.1)
            v.mul_(0.98).add_(gradient**2, alpha=0.02)
            bc1, bc2 = (1 - 0.9 ** (step + 1), 1 - 0.98 ** (step + 1)) if bias_correction else (1.0, 1.0)
            decay = 0.1 if name == "weight" else 0.0
            update = (m / bc1) / ((v / bc2).sqrt() + 1e-3) + decay * expected[name]
            expected[name] -= rate * update
        optimizer.step()
        for name, parameter in layer.named_parameters():
            torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-10, atol=1e-12)


def test_guarded_adamw_clips_and_leaves_out_an_update_that_is_not_finite():
    weight = torch.nn.Parameter(torch.ones(4, 4))
    groups = [{"params": [weight], "weight_decay": 0.0, "decayed": True}]
    optimizer = GuardedAdamW(groups, clip=1.0, lr=0.1)
    weight.grad = torch.full((4, 4), math.nan)
    optimizer.step()
    assert optimizer.overflow
    assert torch.equal(weight.detach(), torch.ones(4, 4))
    weight.grad = torch.full((4, 4), 2.0)
    optimizer.step()
    assert not optimizer.overflow
    assert optimizer._global_grad_norm == pytest.approx(8.0)
    assert torch.linalg.vector_norm(weight.grad) == pytest.approx(1.0, rel=1e-5)
    assert not torch.equal(weight.detach(), torch.ones(4, 4))
