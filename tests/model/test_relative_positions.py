"""Relative position buckets and the bias made of them."""

import pytest
import torch

from electra_ds.model.relative import (
    LOCAL_SLOPES,
    RelativeBias,
    bucket_distances,
    local_bias,
    relative_buckets,
)


def test_buckets_equal_the_published_definition_at_every_distance():
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(-1200, 1201)
    expected = T5Attention._relative_position_bucket(
        distance, bidirectional=True, num_buckets=32, max_distance=128
    )
    assert torch.equal(relative_buckets(distance), expected)


@pytest.mark.parametrize(
    ("distance", "bucket"),
    [(0, 0), (-1, 1), (1, 17), (-7, 7), (7, 23), (-8, 8), (8, 24), (-127, 15), (128, 31), (5000, 31)],
)
def test_buckets_by_hand(distance, bucket):
    assert relative_buckets(torch.tensor([distance])).item() == bucket


def test_bias_depends_on_key_minus_query_alone():
    table = RelativeBias(heads=3)
    torch.nn.init.normal_(table.weight)
    bias = table(40)
    assert bias.shape == (1, 3, 40, 40)
    for head, query, key in [(0, 5, 5), (1, 0, 39), (2, 39, 0), (1, 20, 12)]:
        bucket = relative_buckets(torch.tensor([key - query])).item()
        assert bias[0, head, query, key] == table.weight[bucket, head]
    assert not torch.equal(bias[0, 0], bias[0, 0].T)


def test_every_pair_of_a_bucket_trains_it():
    table = RelativeBias(heads=2)
    table(64).sum().backward()
    place = torch.arange(64)
    counts = torch.bincount(relative_buckets(place[None] - place[:, None]).flatten(), minlength=32)
    torch.testing.assert_close(table.weight.grad, counts[:, None].expand(-1, 2).float())


def test_local_bias_falls_with_distance_by_head():
    distances = bucket_distances()
    assert distances[:9].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 9.5]  # bucket 8 holds 8, 9, 10 and 11
    assert (distances[1:16].diff() > 0).all()
    torch.testing.assert_close(distances[17:32], distances[1:16])  # left and right alike
    bias = local_bias(heads=3)
    for head, slope in enumerate([LOCAL_SLOPES[0], LOCAL_SLOPES[1], LOCAL_SLOPES[0]]):
        torch.testing.assert_close(bias[:, head], -slope * distances)
