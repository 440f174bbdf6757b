"""From text to shards: nothing lost, the same bytes every time, nothing half-written, bad input named."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from electra_ds.config.errors import InputError, RunFailure
from electra_ds.data import prepare as prepare_module
from electra_ds.data.corpus import CorpusOptions
from electra_ds.data.encoding import load_encoder
from electra_ds.data.manifest import load_manifest
from electra_ds.data.shards import read_block

from .conftest import make_documents, write_shards


def blocks_of(folder):
    """All blocks of a shard set, in order."""
    manifest = load_manifest(folder, check="checksums")
    blocks = []
    for shard in manifest.shards:
        offsets = np.cumsum((0, *shard.block_bytes))
        blocks += [read_block(folder / shard.name, shard, n, int(offsets[n])) for n in range(shard.records)]
    return blocks


def tokens_of(folder):
    return np.concatenate([block.tokens for block in blocks_of(folder)])


def test_shards_hold_the_text_in_order(corpus_file, encoder, tmp_path):
    folder = write_shards([corpus_file], encoder, tmp_path / "out")
    words = encoder.tokenizer.encode(" ".join(corpus_file.read_text().split()), add_special_tokens=False)
    assert tokens_of(folder).tolist() == words.ids
    assert max(len(block.tokens) for block in blocks_of(folder)) <= 600


def test_counts_of_the_manifest(shards, encoder):
    for folder in (shards, shards / "heldout"):
        blocks, counts = blocks_of(folder), load_manifest(folder).counts
        assert counts["tokens"] == sum(len(block.tokens) for block in blocks)
        assert counts["sentences"] == sum(len(block.sentences) for block in blocks)
        assert counts["documents"] <= sum(len(block.documents) for block in blocks)
    whole = [load_manifest(folder).counts["documents"] for folder in (shards, shards / "heldout")]
    assert sum(whole) == 200
    assert 8 <= whole[1] <= 36  # a tenth, by hash


def test_word_starts_are_those_of_the_tokenizer(text_file, encoder, tmp_path):
    folder = write_shards([text_file("badaga, muzopi bade.\nzuzu")], encoder, tmp_path / "out")
    (block,) = blocks_of(folder)
    pieces = [encoder.tokenizer.id_to_token(int(number)) for number in block.tokens]
    assert [not piece.startswith("##") for piece in pieces] == block.word_starts.tolist()
    assert int(block.word_starts.sum()) == 6  # four words, two marks


def test_the_same_text_gives_the_same_bytes(corpus_file, encoder, tmp_path):
    first = write_shards([corpus_file], encoder, tmp_path / "a", held_out=0.1, shard_bytes=40_000)
    second = write_shards([corpus_file], encoder, tmp_path / "b", held_out=0.1, shard_bytes=40_000)
    files = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(second) for path in second.rglob("*") if path.is_file())
    assert len([name for name in files if name.suffix == ".tar"]) > 3
    for name in files:
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_held_out_documents_do_not_depend_on_their_neighbours(encoder, tmp_path, text_file):
    documents = make_documents(60)
    both = []
    for name, order in (("a", documents), ("b", documents[::-1])):
        path = text_file("\n\n".join(order), f"{name}.txt")
        folder = write_shards([path], encoder, tmp_path / name, held_out=0.3)
        both.append(sorted(tokens_of(folder / "heldout").tolist()))
    assert both[0] == both[1]


def test_a_document_longer_than_a_record_goes_on_at_a_sentence_end(text_file, encoder, tmp_path):
    sentences = [" ".join(["badaga"] * 20) + "." for _ in range(60)]
    folder = write_shards([text_file("\n".join(sentences))], encoder, tmp_path / "out", record_tokens=100)
    assert load_manifest(folder).counts["documents"] == 1
    assert load_manifest(folder).counts["continued"] == 1
    blocks = blocks_of(folder)
    assert len(blocks) > 5
    # The tokenizer has never seen a full stop.
    assert all(block.tokens[-1] == encoder.vocab.unk_id for block in blocks)


def test_a_sentence_longer_than_a_record_is_cut_and_nothing_is_lost(text_file, encoder, tmp_path):
    text = " ".join(["badaga muzopi"] * 300)
    folder = write_shards([text_file(text)], encoder, tmp_path / "out", record_tokens=64)
    assert tokens_of(folder).tolist() == encoder.tokenizer.encode(text, add_special_tokens=False).ids


def test_special_tokens_in_text_are_text(text_file, encoder, tmp_path):
    line = "bada [SEP] [MASK][CLS] [PAD] zuzu [sep] [UNK]"
    folder = write_shards([text_file(f"{line}\n\n{line}")], encoder, tmp_path / "out")
    assert not np.isin(tokens_of(folder), encoder.vocab.control_ids).any()


def test_special_tokens_in_text_are_text_for_a_tokenizer_that_would_take_them(text_file, tmp_path):
    """A word-level tokenizer with the special tokens as words knows no other way to cut them."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "bada"]
    tokenizer = Tokenizer(models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder = tmp_path / "tok"
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    out = write_shards([text_file("bada [SEP] [MASK] bada")], load_encoder(folder), tmp_path / "out")
    assert tokens_of(out).tolist() == [5, 1, 1, 5]


def test_empty_and_short_documents_are_left_out_and_counted(text_file, encoder, tmp_path):
    path = text_file(
        "".join(json.dumps({"text": t}) + "\n" for t in ("", "  ", "bada", "bada zuzu muzo pi " * 3)),
        "x.jsonl",
    )
    counts = load_manifest(write_shards([path], encoder, tmp_path / "out", min_tokens=8)).counts
    assert (counts["documents"], counts["empty"], counts["short"]) == (1, 2, 1)


def test_undecodable_bytes_are_counted_in_the_manifest(text_file, encoder, tmp_path):
    for policy in ("replace", "skip"):
        path = text_file(b"bada \xd7 zuzu\n")
        options = CorpusOptions(on_decode_error=policy)
        folder = write_shards([path], encoder, tmp_path / policy, corpus=options)
        assert load_manifest(folder).counts["decode_errors"] == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no document with text"),
        (b"\n \r\n\xef\xbb\xbf\n", "no document with text"),
        (b"bada\n" * 1000 + b"\xff\xfe", "not UTF-8 at byte offset 5000"),
        (b"\xff\xfeb\0a\0", "not UTF-8 at byte offset 0"),
    ],
)
def test_bad_input_is_named_and_leaves_nothing(text_file, encoder, tmp_path, content, message):
    path = text_file(content)
    with pytest.raises(InputError, match=rf"text\.txt: {message}"):
        write_shards([path], encoder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_byte_order_mark_and_carriage_returns_change_nothing(text_file, encoder, tmp_path):
    text = "bada zuzu\nmuzo\n\nzuzu bada\n"
    plain = write_shards([text_file(text, "a.txt")], encoder, tmp_path / "a")
    odd = write_shards([text_file("\ufeff" + text.replace("\n", "\r\n"), "b.txt")], encoder, tmp_path / "b")
    assert (plain / "shard-000000.tar").read_bytes() == (odd / "shard-000000.tar").read_bytes()


def test_held_out_without_a_document_is_refused(text_file, encoder, tmp_path):
    with pytest.raises(InputError, match="--held-out 1e-09"):
        write_shards([text_file("bada")], encoder, tmp_path / "out", held_out=1e-9)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options",
    [{"held_out": 1.0}, {"held_out": -0.1}, {"record_tokens": 8}, {"shard_bytes": 0}, {"min_tokens": 601}],
)
def test_impossible_options_are_refused(corpus_file, encoder, tmp_path, options):
    with pytest.raises(InputError, match="--" + next(iter(options)).split("_")[0]):
        write_shards([corpus_file], encoder, tmp_path / "out", **options)


def test_output_that_holds_something_is_refused(corpus_file, encoder, shards, tmp_path):
    with pytest.raises(InputError, match="a finished shard set"):
        write_shards([corpus_file], encoder, shards)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("seed: 1\n")
    with pytest.raises(InputError, match="is not empty"):
        write_shards([corpus_file], encoder, tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["config.yaml"]
    with pytest.raises(InputError, match="is a file"):
        write_shards([corpus_file], encoder, tmp_path / "run" / "config.yaml")


def test_shards_of_another_tokenizer_are_named(corpus_file, encoder, shards, text_file):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "bada"]
    other = load_encoder(text_file("\n".join(words) + "\n", "vocab.txt"))
    with pytest.raises(InputError, match="shards of another tokenizer"):
        write_shards([corpus_file], other, shards)


def test_full_disk_is_a_failure_and_leaves_nothing(corpus_file, encoder, tmp_path, monkeypatch):
    def full(self, block, documents):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prepare_module.ShardWriter, "write", full)
    with pytest.raises(RunFailure, match="No space left on device"):
        write_shards([corpus_file], encoder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


_KILLED = """
import os, signal, sys
from pathlib import Path
from electra_ds.data import shards
from tests.data.conftest import write_shards
from electra_ds.data.encoding import load_encoder
finish, left = shards.ShardWriter.finish_shard, [3]
def dying(self):
    left[0] -= 1
    if not left[0]:
        self._file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    finish(self)
shards.ShardWriter.finish_shard = dying
write_shards([sys.argv[1]], load_encoder(sys.argv[2]), Path(sys.argv[3]), shard_bytes=40_000)
"""


def test_killed_in_the_middle_and_started_again(corpus_file, tokenizer_folder, encoder, tmp_path):
    """Only whole shards have their final name, the folder is refused, and a second run makes it good."""
    folder = tmp_path / "corpus.v1.2"
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", _KILLED, str(corpus_file), str(tokenizer_folder), str(folder)]
    result = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(root)}, check=False, timeout=120)
    assert result.returncode == -signal.SIGKILL
    assert len(list(folder.glob("*.tar"))) == 2
    assert len(list(folder.glob("*.tmp"))) == 1
    with pytest.raises(InputError, match=r"manifest\.json"):
        load_manifest(folder)
    write_shards([corpus_file], encoder, folder, shard_bytes=40_000)
    again = write_shards([corpus_file], encoder, tmp_path / "straight", shard_bytes=40_000)
    assert load_manifest(folder, check="checksums").shards == load_manifest(again).shards
    assert not list(folder.glob("*.tmp"))


_MEASURED = """
import resource, sys
from pathlib import Path
from tests.data.conftest import write_shards
from electra_ds.data.encoding import load_encoder
encoder = load_encoder(sys.argv[2])
write_shards([sys.argv[1]], encoder, Path(sys.argv[3]) / "warm", record_tokens=16_384)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
write_shards([sys.argv[4]], encoder, Path(sys.argv[3]) / "long", record_tokens=16_384)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_is_flat_for_a_line_without_end(text_file, tokenizer_folder, tmp_path):
    """One line without an end, mostly of characters that make no token, so that it is quick."""
    line = b"bada " * 20_000 + b"\0" * (24 << 20) + b"zuzu " * 20_000
    long = text_file(gzip.compress(line, 1), "long.txt.gz")
    small = text_file("bada zuzu " * 200_000, "small.txt")
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(small), str(tokenizer_folder), str(tmp_path), str(long)],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    assert int(result.stdout) < 16 << 10  # KiB more than two megabytes of text took
    assert load_manifest(tmp_path / "long").counts["documents"] == 1
