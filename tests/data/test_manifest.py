"""What is missing, altered or foreign in a shard folder is found and named, and nothing in it is run."""

import io
import json
import pickle
import shutil
import tarfile
import zlib
from dataclasses import asdict
from hashlib import sha256

import numpy as np
import pytest
import webdataset
from hypothesis import given
from hypothesis import strategies as st

from electra_ds.config.errors import InputError, RunFailure
from electra_ds.data.manifest import load_manifest
from electra_ds.data.records import (
    END_OF_ARCHIVE,
    Block,
    RecordError,
    decode_record,
    encode_record,
    join_blocks,
)
from electra_ds.data.stream import Stream

from .rows import SETTINGS


@pytest.fixture
def copy(many_shards, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(many_shards, folder)
    return folder


def _edit(folder, change):
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_manifest_says_what_the_set_is(shards, encoder):
    content = json.loads((shards / "manifest.json").read_text())
    assert content["format"] == 1
    assert content["tokenizer"]["vocab_size"] == encoder.vocab.size
    assert content["tokenizer"]["special_ids"] == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    assert content["provenance"] == {"source": "test"}
    assert content["settings"]["document_separator"] == "blank"
    (shard,) = content["shards"]
    assert shard["sha256"] == sha256((shards / shard["name"]).read_bytes()).hexdigest()
    assert shard["records"] == len(shard["blocks"])
    manifest = load_manifest(shards)
    assert manifest.vocab == encoder.vocab
    assert manifest.vocab.padded_size % 64 == 0
    assert 0 <= manifest.vocab.padded_size - manifest.vocab.size < 64


@pytest.mark.parametrize("check", ["sizes", "checksums"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "manifest.json").unlink(), "no manifest.json"),
        (lambda f: (f / "manifest.json").write_text('{"format": 1'), "damaged manifest"),
        (lambda f: (f / "manifest.json").write_bytes(b"\xff\xfe"), "damaged manifest"),
        (lambda f: (f / "manifest.json").write_text("[]"), "damaged manifest"),
        (lambda f: (f / "shard-000003.tar").unlink(), r"missing shard-000003\.tar"),
        (lambda f: (f / "shard-000003.tar").write_bytes(b""), r"shard-000003\.tar: 0 bytes"),
        (lambda f: shutil.rmtree(f / "tokenizer"), r"tokenizer\.json: missing"),
        (lambda f: (f / "tokenizer" / "tokenizer.json").write_text("{}"), "not the tokenizer that made"),
        (lambda f: shutil.rmtree(f), "no such folder"),
        (lambda f: _edit(f, lambda c: c.update(format=99)), "format version 99"),
        (lambda f: _edit(f, lambda c: c.pop("shards")), "damaged manifest"),
        (lambda f: _edit(f, lambda c: c["shards"].clear()), "damaged manifest"),
        (lambda f: _edit(f, lambda c: c["shards"].pop()), "token counts contradict"),
        (lambda f: _edit(f, lambda c: c["shards"][0].update(name="../x.tar")), "no shard name"),
        (lambda f: _edit(f, lambda c: c["shards"][0]["blocks"].pop()), "contradict"),
        (lambda f: _edit(f, lambda c: c["shards"][0].update(tokens="many")), "damaged manifest|contradict"),
        (lambda f: _edit(f, lambda c: c["tokenizer"]["special_ids"].update(pad=4)), "special ids"),
        (lambda f: _edit(f, lambda c: c["tokenizer"].update(vocab_size=3)), "special ids"),
    ],
)
def test_damage_found_at_start_is_wrong_input(copy, damage, message, check):
    damage(copy)
    with pytest.raises(InputError, match=message) as caught:
        load_manifest(copy, check=check)
    assert str(copy) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_flipped_bit_anywhere_is_found_by_checksums(copy):
    shard = copy / "shard-000002.tar"
    good = shard.read_bytes()
    load_manifest(copy, check="checksums")
    for at in np.linspace(0, len(good) - 1, 40).astype(int):
        data = bytearray(good)
        data[at] ^= 4
        shard.write_bytes(data)
        load_manifest(copy)  # the size is right
        with pytest.raises(InputError, match=r"shard-000002\.tar: "):
            load_manifest(copy, check="checksums")


@pytest.mark.parametrize("name", ["sha256", "block_crc32"])
def test_checksums_of_the_manifest_are_all_compared(copy, name):
    def change(content):
        shard = content["shards"][1]
        shard[name] = "0" * 64 if name == "sha256" else [n ^ 1 for n in shard[name]]

    _edit(copy, change)
    with pytest.raises(InputError, match=r"shard-000001\.tar: .*(sha256|CRC-32) differs"):
        load_manifest(copy, check="checksums")


def _planted(folder, members):
    """Replace the first shard by one record with these members, and make the manifest agree with it."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    size = sum(512 + len(content) + -len(content) % 512 for _, content in members)
    record = data.getvalue()[:size]
    whole = record + END_OF_ARCHIVE

    def change(content):
        shard = content["shards"][0]
        content["counts"]["tokens"] += 4 - shard["tokens"]
        shard.update(
            bytes=len(whole),
            sha256=sha256(whole).hexdigest(),
            tokens=4,
            blocks=[4],
            block_bytes=[size],
            block_crc32=[zlib.crc32(record)],
            records=1,
        )

    _edit(folder, change)
    (folder / "shard-000000.tar").write_bytes(whole)


class _Bomb:
    def __reduce__(self):
        return (open, (self.path, "w"))


def _npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def _members(key="0"):
    return [
        (f"{key}.tokens.npy", _npy(np.array([7, 8, 9, 7], dtype=np.uint16))),
        (f"{key}.sentences.npy", _npy(np.array([4], dtype=np.int32))),
        (f"{key}.documents.npy", _npy(np.array([1], dtype=np.int32))),
        (f"{key}.wordstarts.npy", _npy(np.array([255], dtype=np.uint8))),
    ]


def _first_block(folder):
    return Stream(load_manifest(folder), SETTINGS, 1)._read(0)


def test_a_planted_record_of_the_right_form_is_read(copy):
    _planted(copy, _members())
    assert _first_block(copy).tokens.tolist() == [7, 8, 9, 7]
    load_manifest(copy, check="checksums")


@pytest.mark.parametrize("name", ["0.pyd", "0.pickle", "0.extra.pkl", "0.__init__.py", "0.pth", "0.tokens"])
def test_other_members_are_refused_and_never_run(copy, tmp_path, name):
    bomb = _Bomb()
    bomb.path = str(tmp_path / "boom")
    _planted(copy, [*_members(), (name, pickle.dumps(bomb))])
    with pytest.raises(RunFailure, match="unexpected member"):
        _first_block(copy)
    with pytest.raises(InputError, match="unexpected member"):
        load_manifest(copy, check="checksums")
    assert not (tmp_path / "boom").exists()


def test_an_array_that_needs_pickle_is_refused_and_never_run(copy, tmp_path):
    bomb = _Bomb()
    bomb.path = str(tmp_path / "boom")
    _planted(copy, [("0.tokens.npy", _npy(np.array([bomb, 1], dtype=object))), *_members()[1:]])
    with pytest.raises(RunFailure, match="not a plain npy array"):
        _first_block(copy)
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (_members()[:3], "lacks wordstarts"),
        ([*_members()[:2], *_members("1")[2:]], "interleaved"),
        ([*_members(), *_members("1")], "interleaved"),
        ([("0.tokens.npy", _npy(np.zeros(4, dtype=np.float32))), *_members()[1:]], "not a row of integers"),
        ([("0.tokens.npy", _npy(np.full(4, 60_000, dtype=np.uint16))), *_members()[1:]], "beyond the vocab"),
        ([_members()[0], ("0.sentences.npy", _npy(np.array([3, 2]))), *_members()[2:]], "sentences is not"),
        ([*_members()[:2], ("0.documents.npy", _npy(np.array([2]))), _members()[3]], "documents is not"),
    ],
)
def test_records_that_break_the_format_are_named(copy, members, message):
    _planted(copy, members)
    with pytest.raises(RunFailure, match=rf"shard-000000\.tar: .*{message}"):
        _first_block(copy)


def test_a_link_in_a_shard_is_refused():
    info = tarfile.TarInfo("0.tokens.npy")
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with pytest.raises(RecordError, match="not a plain file"):
        decode_record(info.tobuf(format=tarfile.USTAR_FORMAT))


@given(st.binary(max_size=2000))
def test_any_bytes_are_a_record_or_an_error(data):
    with pytest.raises(RecordError):
        decode_record(data)


@given(st.integers(0, 3), st.integers(0, 2**32), st.sampled_from([np.uint16, np.uint32]))
def test_records_come_back_as_they_were(documents, seed, dtype):
    rng = np.random.default_rng(seed)
    sentences = np.sort(rng.choice(200, 10, replace=False)) + 1
    block = Block(
        tokens=rng.integers(0, 60_000, sentences[-1]).astype(dtype),
        sentences=sentences.astype(np.int32),
        documents=np.sort(np.r_[rng.choice(9, documents, replace=False) + 1, 10]).astype(np.int32),
        word_starts=rng.random(sentences[-1]) < 0.5,
    )
    data = encode_record("000000007", block)
    assert data == encode_record("000000007", block)
    key, back = decode_record(data)
    assert key == "000000007"
    for name, value in asdict(block).items():
        assert getattr(back, name).dtype == value.dtype
        assert (getattr(back, name) == value).all()
    twice = join_blocks([block, back])
    assert len(twice.tokens) == twice.sentences[-1] == 2 * len(block.tokens)
    assert twice.documents[-1] == len(twice.sentences) == 20


def test_webdataset_reads_the_shards_and_keys_are_unique(many_shards):
    manifest = load_manifest(many_shards)
    files = [str(many_shards / shard.name) for shard in manifest.shards]
    keys, tokens = set(), 0
    for sample in webdataset.WebDataset(files, shardshuffle=False):
        assert set(sample) >= {"tokens.npy", "sentences.npy", "documents.npy", "wordstarts.npy"}
        assert "." not in sample["__key__"]
        keys.add(sample["__key__"])
        tokens += len(np.load(io.BytesIO(sample["tokens.npy"])))
    assert len(keys) == sum(shard.records for shard in manifest.shards)
    assert len({len(key) for key in keys}) == 1
    assert tokens == manifest.tokens
