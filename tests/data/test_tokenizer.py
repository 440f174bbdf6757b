"""Tokenizers: training, loading, what they do with raw text."""

import json
import random

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from electra_ds.config.errors import InputError
from electra_ds.data.corpus import CorpusOptions
from electra_ds.data.encoding import load_encoder
from electra_ds.data.inputs import find_inputs
from electra_ds.data.tokenizer import WordPieceSettings, save_files, tokenizer_files
from electra_ds.data.tokenizer_training import train_tokenizer
from electra_ds.data.vocabulary import SPECIAL_TOKENS

ENGLISH = "the chef cooked the meal and the guests were eating it in the garden\n" * 4


def _train(path, size, options=None, **settings):
    return train_tokenizer(
        find_inputs([str(path)]), CorpusOptions(), WordPieceSettings(**settings), size, **options or {}
    )


def _encoder(path, size, folder, **settings):
    tokenizer = _train(path, size, {"allow_smaller": True}, **settings)
    save_files(tokenizer_files(tokenizer, WordPieceSettings(**settings)), folder)
    return load_encoder(folder)


def _ids(encoder, text):
    return encoder.encode([text])[0][0].tolist()


def test_special_tokens_have_fixed_ids_and_the_size_is_the_one_asked_for(encoder):
    assert [encoder.tokenizer.token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    assert encoder.vocab.size == encoder.tokenizer.get_vocab_size() == 400
    assert encoder.vocab.padded_size == 448
    assert sorted(encoder.tokenizer.get_vocab().values()) == list(range(400))


@pytest.mark.parametrize("text", ["bada [SEP] zuzu", "[MASK]", "x[CLS]y [PAD]", "[UNK]"])
def test_special_tokens_in_text_are_cut_like_other_text(encoder, text):
    """The brackets are marks of their own, so that each of them is a token (here one that is not known)."""
    ids = _ids(encoder, text)
    assert not set(ids) & {0, 2, 3, 4}
    assert ids.count(encoder.vocab.unk_id) >= 2 * text.count("[")


def test_training_gives_the_same_vocabulary_every_time(corpus_file, encoder):
    again = _train(corpus_file, 400)
    assert again.get_vocab() == encoder.tokenizer.get_vocab()


def test_a_sample_is_enough_and_is_said(corpus_file, caplog):
    caplog.set_level("INFO", logger="electra_ds")
    assert _train(corpus_file, 300, {"sample_bytes": 50_000}).get_vocab_size() == 300
    assert "--sample-bytes 50000" in caplog.text


def test_more_tokens_than_the_text_gives_are_refused_with_the_number(text_file, caplog):
    path = text_file(ENGLISH)
    with pytest.raises(
        InputError, match=r"gives (\d+) tokens, fewer than --vocab-size 30522; .*--vocab-size \d+"
    ):
        _train(path, 30_522)
    smaller = _train(path, 30_522, {"allow_smaller": True})
    assert 64 < smaller.get_vocab_size() < 400
    assert "fewer than --vocab-size 30522" in caplog.text
    assert _train(path, smaller.get_vocab_size()).get_vocab() == smaller.get_vocab()


def test_an_alphabet_larger_than_the_vocabulary_is_limited_and_said(text_file, caplog):
    rng = random.Random(1)
    characters = [chr(0x4E00 + n) for n in range(3000)]
    path = text_file("\n".join("".join(rng.choices(characters, k=50)) for _ in range(400)))
    assert _train(path, 1000, {"allow_smaller": True}).get_vocab_size() <= 1000
    assert "covers" in caplog.text


@pytest.mark.parametrize(
    ("content", "size", "message"),
    [
        ("", 100, "no text"),
        (" \n\n", 100, "no text"),
        ("text", 10, "--vocab-size 10"),
        (b"\xff", 100, "offset 0"),
    ],
)
def test_bad_input_is_named(text_file, content, size, message):
    with pytest.raises(InputError, match=message):
        _train(text_file(content), size)


def test_accents_are_kept_though_letters_are_lowered(text_file, tmp_path):
    path = text_file("musste müsste mochte möchte Musste\n" * 20)
    kept = _encoder(path, 200, tmp_path / "kept", lowercase=True, strip_accents=False)
    stripped = _encoder(path, 200, tmp_path / "stripped", lowercase=True)
    assert _ids(kept, "musste") != _ids(kept, "müsste")
    assert _ids(kept, "Musste") == _ids(kept, "musste")
    assert _ids(stripped, "möchte") == _ids(stripped, "mochte")
    cased = _encoder(path, 200, tmp_path / "cased", lowercase=False)
    assert _ids(cased, "Musste") != _ids(cased, "musste")


def test_composed_and_decomposed_letters_are_one(text_file, tmp_path):
    encoder = _encoder(text_file("café caffè\n" * 20), 200, tmp_path / "t", strip_accents=False)
    assert _ids(encoder, "caf\u00e9") == _ids(encoder, "cafe\u0301")


def test_ideographs_are_words_or_not(text_file, tmp_path):
    path = text_file("我喜欢中国\n" * 20)
    single = _encoder(path, 200, tmp_path / "single", cjk=True)
    learned = _encoder(path, 200, tmp_path / "learned", cjk=False)
    assert len(_ids(single, "我喜欢中国")) == 5
    assert len(_ids(learned, "我喜欢中国")) == 1


def test_the_saved_folder_is_that_of_transformers(encoder, tokenizer_folder):
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(tokenizer_folder)
    assert (loaded.pad_token_id, loaded.unk_token_id, loaded.cls_token_id) == (0, 1, 2)
    assert (loaded.sep_token_id, loaded.mask_token_id) == (3, 4)
    for text in ("Bada muzopi, zuzu!", "ünï ☃ 我", "x" * 120, "tab\tand\u00a0space"):
        assert loaded(text, add_special_tokens=False)["input_ids"] == _ids(encoder, text)
    pair = loaded("bada", "zuzu")
    assert pair["input_ids"][0] == 2
    assert pair["token_type_ids"][-1] == 1


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_words_of_other_tokenizers_come_from_their_word_ids(corpus_file, tmp_path, kind):
    if kind == "bpe":
        tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=400, special_tokens=list(SPECIAL_TOKENS), show_progress=False
        )
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=120, special_tokens=list(SPECIAL_TOKENS), unk_token="[UNK]", show_progress=False
        )
    text = corpus_file.read_text()
    tokenizer.train_from_iterator(text.splitlines()[:400], trainer)
    (tmp_path / "t").mkdir()
    tokenizer.save(str(tmp_path / "t" / "tokenizer.json"))
    encoder = load_encoder(tmp_path / "t")
    words = text.split()[:1000]
    ((ids, starts),) = encoder.encode([" ".join(words)])
    assert starts.sum() == len(words)
    pieces = np.split(ids, np.flatnonzero(starts)[1:])
    assert [encoder.tokenizer.decode(part.tolist()).strip() for part in pieces] == words


def test_a_saved_limit_or_padding_is_switched_off(encoder, tmp_path):
    tokenizer = Tokenizer.from_str(encoder.tokenizer.to_str())
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=32)
    (tmp_path / "t").mkdir()
    tokenizer.save(str(tmp_path / "t" / "tokenizer.json"))
    assert _ids(load_encoder(tmp_path / "t"), "bada " * 20) == _ids(encoder, "bada " * 20)


def test_a_vocabulary_alone_is_an_uncased_wordpiece(text_file):
    path = text_file("\n".join([*SPECIAL_TOKENS, "ca", "##fe", "m", "##e"]) + "\n", "vocab.txt")
    encoder = load_encoder(path)
    ((ids, starts),) = encoder.encode(["CAFÉ me"])
    assert ids.tolist() == [5, 6, 7, 8]
    assert starts.tolist() == [True, False, True, False]
    text_file(json.dumps({"do_lower_case": False}), "tokenizer_config.json")
    assert _ids(load_encoder(path.parent), "CAFÉ me") == [1, 7, 8]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[PAD]\n[UNK]\n\xd7\n", "byte offset 12"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\nok\n", r"lacks \[MASK\]"),
        (b"[PAD]\n[UNK]\n[CLS]\n[CLS]\n[SEP]\n[MASK]\n", "line 4 repeats"),
    ],
)
def test_bad_vocabulary_is_named(text_file, content, message):
    with pytest.raises(InputError, match=message):
        load_encoder(text_file(content, "vocab.txt"))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no tokenizer.json"),
        ({"tokenizer.json": "{"}, "not a tokenizer"),
        ({"tokenizer.json": "{}", "tokenizer_config.json": "{"}, "not JSON"),
    ],
)
def test_bad_tokenizer_folder_is_named(text_file, tmp_path, files, message):
    for name, content in files.items():
        text_file(content, f"tok/{name}")
    with pytest.raises(InputError, match=message):
        load_encoder(tmp_path / "tok")


def test_special_tokens_named_otherwise_and_missing_ones(tmp_path):
    words = ["<pad>", "<unk>", "<s>", "</s>", "<mask>", "bada"]
    tokenizer = Tokenizer(models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match=r"no pad_token \('\[PAD\]'\)"):
        load_encoder(tmp_path)
    names = {"pad_token": "<pad>", "unk_token": {"content": "<unk>"}, "cls_token": "<s>", "sep_token": "</s>"}
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({**names, "mask_token": "<mask>"}))
    assert load_encoder(tmp_path).vocab.control_ids == (0, 2, 3, 4)
    config.write_text(json.dumps({**names, "mask_token": "</s>"}))
    with pytest.raises(InputError, match="the same token"):
        load_encoder(tmp_path)
