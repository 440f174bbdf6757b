"""The same results on a GPU, through the fused attention kernel, without waiting for it."""

import pytest
import torch

from electra_ds.model.build import build_model
from electra_ds.model.objectives import OBJECTIVES
from electra_ds.model.slots import Slots

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
SETTINGS = {"model__positions": "both", "model__relative_init": "local", "objective__hp__start_step": 1}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_a_step_equals_the_cpus(name, masked, config, vocab, batch, context):
    rows = batch(rows=8)
    rows.needs_mask = masked
    rows.segments[:, 9:] += masked
    reference = build_model(config(name, **SETTINGS), vocab)
    model = build_model(config(name, **SETTINGS), vocab).cuda()
    on_device = rows.to("cuda")
    # the words are fixed: a rounding difference could flip a draw
    if name == "mlm":
        losses = [reference(rows, context(rows)).loss, model(on_device, context(rows)).loss]
    else:
        slots = [Slots.of(rows), Slots.of(on_device)]
        losses = [
            net.detect(part, slot, (slot.targets + 1) % 70).token_loss.mean()
            + net.generate(part, slot).logits.float().logsumexp(-1).mean()
            for net, part, slot in zip([reference, model], [rows, on_device], slots, strict=True)
        ]
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(losses[1].cpu(), losses[0], rtol=1e-4, atol=1e-5)
    for (key, expected), found in zip(reference.named_parameters(), model.parameters(), strict=True):
        if expected.grad is not None:
            scale = expected.grad.abs().max().clamp(min=1e-3)
            assert (found.grad.cpu() - expected.grad).abs().max() < 2e-3 * scale, key


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_no_operation_waits_for_the_device(name, config, vocab, batch, context):
    settings = SETTINGS | {"model__dropout": 0.1, "objective__sample_with_dropout": False}
    model = build_model(config(name, **settings), vocab).to("cuda", torch.bfloat16)
    rows = batch(rows=8).to("cuda")
    rows.needs_mask = True
    for step in (0, 1):  # the first calls fill caches, which may wait
        model(rows, context(rows, step=step)).loss.backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in (0, 1):
            out = model(rows, context(rows, step=step))
            out.loss.backward()
            model.carry(out.sums)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert out.loss.isfinite()
