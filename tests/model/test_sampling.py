"""Sampling by inverse CDF and the chunked fp32 softmax."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_ds.model import sampling
from electra_ds.model.sampling import generator_weights, hardness_weights, log_hardness, log_prob, scan


def p_g(logits, size, draws, temperature=1.0, excluded=None):
    return scan(generator_weights(logits, size, temperature, excluded), logits, draws)


def test_chi_square_at_full_vocabulary_from_bf16_logits():
    """The words follow the fp64 softmax of the bf16 logits, rare ones included."""
    size, draws = 30522, 400_000
    rng = torch.Generator().manual_seed(0)
    logits = (2 * torch.randn(1, 30528, generator=rng)).bfloat16()
    expected = logits[0, :size].double().softmax(0) * draws
    uniform = torch.rand(draws, generator=rng)
    rows = torch.arange(draws).split(4000)
    words = torch.cat([p_g(logits.expand(len(part), -1), size, uniform[part]).sampled for part in rows[:2]])
    # one row's CDF serves all draws: the shares do not depend on the row
    whole = cdf_draws(logits, size, uniform)
    assert torch.equal(words, whole[: len(words)])
    counts = torch.bincount(whole, minlength=size).double()
    # pool the rare words, as the test asks for at least about five expected in a cell
    order = expected.argsort(descending=True)
    common = order[: int((expected > 5).sum())]
    cells = torch.cat([counts[common], (draws - counts[common].sum())[None]])
    means = torch.cat([expected[common], (draws - expected[common].sum())[None]])
    chi_square = ((cells - means) ** 2 / means).sum().item()
    freedom = len(cells) - 1
    assert freedom > 5000
    deviation = (chi_square - freedom) / (2 * freedom) ** 0.5
    assert abs(deviation) < 4
    rare = torch.ones(size, dtype=torch.bool)
    rare[common] = False
    assert counts[rare].sum() > 0


def cdf_draws(logits, size, uniform):
    """Return the words of many draws from one row, in columns, by the same rule."""
    shares = (logits[:, :size].float() - logits[:, :size].float().max()).exp()
    cdf = shares.cumsum(-1)[0]
    return torch.searchsorted(cdf, uniform * cdf[-1], right=True).clamp(max=size - 1)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.integers(2, 90),
    scale=st.sampled_from([0.0, 1.0, 30.0, 3000.0]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    edge=st.sampled_from([0.0, 1 - 2**-24, 1.0, None]),  # 1.0: a draw that was rounded up,
)
def test_words_are_real_and_never_impossible(seed, size, scale, dtype, edge):
    rng = torch.Generator().manual_seed(seed)
    width = -(-size // 64) * 64
    logits = scale * torch.randn(7, width, generator=rng)
    logits[:, size:] = 60000.0  # padding rows of the table would win if they were looked at
    logits = logits.to(dtype)
    draws = torch.rand(7, generator=rng) if edge is None else torch.full((7,), edge)
    excluded = torch.randint(size, (7,), generator=rng)
    for rule in (None, excluded):
        found = p_g(logits, size, draws, excluded=rule)
        assert ((found.sampled >= 0) & (found.sampled < size)).all()
        assert found.sampled_log_prob.isfinite().all()
        assert found.log_total.isfinite().all()
        if rule is not None:
            assert (found.sampled != rule).all()


def test_summary_of_a_distribution():
    logits = torch.tensor([[1.0, 3.0, 0.0, 9.0], [0.0, -1.0, 2.0, 9.0]])
    reference = logits[:, :3].softmax(-1)
    found = p_g(logits, 3, torch.tensor([0.0, 0.999]))
    assert found.best.tolist() == [1, 2]
    assert found.sampled.tolist() == [0, 2]
    torch.testing.assert_close(found.max_prob, reference.max(-1).values)
    torch.testing.assert_close(found.log_total, logits[:, :3].logsumexp(-1))
    torch.testing.assert_close(found.sampled_log_prob, reference[[0, 1], [0, 2]].log())
    assert torch.equal(p_g(logits, 3, None).sampled, found.best)


def test_inverse_cdf_takes_the_word_whose_interval_holds_the_draw():
    logits = torch.tensor([0.2, 0.5, 0.3]).log().expand(4, -1)
    assert p_g(logits, 3, torch.tensor([0.19, 0.21, 0.69, 0.71])).sampled.tolist() == [0, 1, 1, 2]


def test_temperature_and_exclusion():
    logits = torch.randn(5, 64, generator=torch.Generator().manual_seed(1))
    draws = torch.rand(5, generator=torch.Generator().manual_seed(2))
    excluded = torch.tensor([0, 1, 2, 3, 4])
    found = p_g(logits, 60, draws, temperature=2.0, excluded=excluded)
    kept = logits[:, :60].clone() / 2
    kept[torch.arange(5), excluded] = -torch.inf
    torch.testing.assert_close(
        found.sampled_log_prob, kept.log_softmax(-1).gather(1, found.sampled[:, None])[:, 0]
    )


def test_chunks_change_nothing(monkeypatch):
    logits = torch.randn(50, 64, generator=torch.Generator().manual_seed(1))
    draws = torch.rand(50, generator=torch.Generator().manual_seed(2))
    whole = p_g(logits, 61, draws)
    monkeypatch.setitem(sampling._CHUNK_ELEMENTS, "cpu", 64 * 7)
    cut = p_g(logits, 61, draws)
    assert torch.equal(whole.sampled, cut.sampled)
    assert torch.equal(whole.log_total, cut.log_total)


@pytest.mark.parametrize("chunk", [64 * 3, 1 << 17])
def test_log_prob_equals_torch_in_value_and_gradient(monkeypatch, chunk):
    monkeypatch.setitem(sampling._CHUNK_ELEMENTS, "cpu", chunk)
    rng = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(11, 64, generator=rng)).requires_grad_()
    words = torch.randint(60, (11,), generator=rng)
    excluded = (words + 1) % 60
    factors = torch.randn(11, generator=rng)
    for rule in (None, excluded):
        seen = logits[:, :60]
        if rule is not None:
            seen = seen.scatter(1, rule[:, None], -torch.inf)
        expected = seen.log_softmax(-1).gather(1, words[:, None])[:, 0]
        total = p_g(logits.detach(), 60, None, excluded=rule).log_total
        found = log_prob(logits, total, words, 60, rule)
        torch.testing.assert_close(found, expected)
        (gradient,) = torch.autograd.grad((found * factors).sum(), logits)
        (reference,) = torch.autograd.grad((expected * factors).sum(), logits)
        torch.testing.assert_close(gradient, reference, rtol=1e-5, atol=1e-6)
        assert (gradient[:, 60:] == 0).all()


def test_hardness_weights_are_p_g_times_the_estimated_loss():
    rng = torch.Generator().manual_seed(0)
    logits, scores = torch.randn(2, 6, 64, generator=rng).unbind(0)
    original = torch.randint(60, (6,), generator=rng)
    base = generator_weights(logits, 60, 1.0, None)
    found = hardness_weights(base, scores, 60, original)(slice(0, 6)).softmax(-1)
    called_original = torch.sigmoid(scores[:, :60])
    loss = -torch.log(1 - called_original)
    column = original[:, None]
    loss.scatter_(1, column, -torch.log(called_original.gather(1, column)))
    expected = logits[:, :60].softmax(-1) * loss
    torch.testing.assert_close(found, expected / expected.sum(-1, keepdim=True))
    # where the original word does not count as original, its column is like any other
    everywhere = hardness_weights(base, scores, 60, None)(slice(0, 6)).softmax(-1)
    expected = logits[:, :60].softmax(-1) * -torch.log(1 - called_original)
    torch.testing.assert_close(everywhere, expected / expected.sum(-1, keepdim=True))


def test_estimated_hardness_is_finite_at_any_score():
    assert log_hardness(torch.tensor([-1e4, 0.0, 1e4], dtype=torch.bfloat16)).isfinite().all()
