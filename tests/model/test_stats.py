"""Statistics as additive sums."""

import pytest
import torch

from electra_ds.model import stats


def exact_auc(logits, labels):
    positive, negative = logits[labels], logits[~labels]
    above = (positive[:, None] > negative[None]).double() + 0.5 * (
        positive[:, None] == negative[None]
    ).double()
    return above.mean().item()


@pytest.mark.parametrize("scale", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("shift", [-6.0, 0.0, 3.0])
def test_auc_from_bins_is_close_to_exact(scale, shift):
    rng = torch.Generator().manual_seed(0)
    labels = torch.rand(40, 100, generator=rng) < 0.13
    logits = scale * (torch.randn(40, 100, generator=rng) + labels * 1.0) + shift
    real = torch.rand(40, 100, generator=rng) < 0.9
    found = stats.auc_from_histogram(stats.auc_histogram(logits, labels, real))
    assert found == pytest.approx(exact_auc(logits[real], labels[real]), abs=2e-3)
    assert 0.7 < found < 0.82


def test_auc_at_the_ends():
    def auc(logits, labels):
        every = torch.ones(1, len(labels), dtype=torch.bool)
        return stats.auc_from_histogram(
            stats.auc_histogram(torch.tensor([logits]), torch.tensor([labels]), every)
        )

    assert auc([-1e30, -1.0, 1.0, 1e30], [False, False, True, True]) == 1.0
    assert auc([2.0, 3.0, -2.0], [False, False, True]) == 0.0
    assert auc([0.3, 0.3], [True, False]) == 0.5
    assert auc([0.3, 0.4], [True, True]) == 0.5  # not defined: no original token


def test_discriminator_counts_by_hand():
    logits = torch.tensor([[1.0, -1.0, 2.0, -3.0, 5.0]])
    replaced = torch.tensor([[True, True, False, False, False]])
    real = torch.tensor([[True, True, True, True, False]])  # the last is padding
    masked = torch.tensor([[True, True, True, False, False]])
    sums = stats.discriminator_sums(logits, replaced, real, masked)
    sums["masked"] = torch.tensor(3.0)
    tags = stats.discriminator_tags(sums)
    assert tags == {
        "discriminator/accuracy": 0.5,
        "discriminator/accuracy_masked": pytest.approx(1 / 3),
        "discriminator/precision": 0.5,
        "discriminator/recall": 0.5,
        "discriminator/auc": 0.5,
    }


def test_generator_counts_leave_unused_slots_out():
    sums = stats.generator_sums(
        best=torch.tensor([7, 8, 9, 9]),
        max_prob=torch.tensor([0.5, 0.25, 0.75, 1.0]),
        targets=torch.tensor([7, 5, 9, 9]),
        weights=torch.tensor([1.0, 1.0, 0.0, 0.0]),
    )
    assert stats.generator_tags(sums) == {"generator/accuracy": 0.5, "generator/max_prob": 0.375}


def test_hardness_tags_equal_direct_formulas():
    rng = torch.Generator().manual_seed(0)
    weight, hardness, noise = torch.rand(3, 500, generator=rng).unbind(0)
    estimate = hardness + noise
    used = (torch.rand(500, generator=rng) < 0.8).float()
    sums = stats.hardness_sums(weight, weight > 0.9, estimate, hardness, used)
    sums["masked"] = used.sum().double()
    tags = stats.hardness_tags(sums)
    kept = used.bool()
    correlation = torch.corrcoef(torch.stack([estimate[kept], hardness[kept]]))[0, 1].item()
    assert tags["sampling/hardness_correlation"] == pytest.approx(correlation, abs=1e-5)
    size = (weight[kept].sum() ** 2 / (weight[kept] ** 2).sum() / kept.sum()).item()
    assert tags["sampling/effective_sample_size"] == pytest.approx(size, rel=1e-5)
    assert tags["sampling/clipped"] == pytest.approx((weight[kept] > 0.9).float().mean().item())


def test_constant_estimates_have_no_correlation():
    hardness = torch.rand(100)
    sums = stats.hardness_sums(hardness, hardness > 2, torch.full((100,), 0.1), hardness, torch.ones(100))
    sums["masked"] = torch.tensor(100.0)
    assert stats.hardness_tags(sums)["sampling/hardness_correlation"] == 0.0


def test_counts_stay_exact_beyond_fp32():
    total = torch.tensor(2.0**24, dtype=torch.float64)
    assert (total + stats.add(torch.ones(3))).item() == 2**24 + 3
    assert stats.add(torch.ones(2, dtype=torch.bool)).dtype == torch.float64
