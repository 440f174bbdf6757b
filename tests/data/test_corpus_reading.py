"""Reading text: formats, line ends, documents, encodings, bad input."""

import bz2
import gzip
import io
import json
import lzma
import tracemalloc
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from electra_ds.config.errors import InputError
from electra_ds.data import corpus
from electra_ds.data.corpus import CorpusOptions, read_documents
from electra_ds.data.inputs import ReadCounts, find_inputs


def documents(path, counts=None, text_format="auto", **options):
    """All documents of a file, each a list of sentences."""
    result, sentences = [], []
    sources = find_inputs([str(path)], text_format)
    for part in read_documents(sources, CorpusOptions(**options), counts or ReadCounts()):
        sentences += part.sentences
        if part.ends_document:
            result.append(sentences)
            sentences = []
    assert not sentences
    return result


def test_blank_lines_separate_documents_and_make_none(text_file):
    path = text_file("\n \nA one\nA two\n\t\n\n\nB one\r\n\r\nC one")
    assert documents(path) == [["A one", "A two"], ["B one"], ["C one"]]


@pytest.mark.parametrize(
    ("separator", "expected"),
    [("line", [["a"], ["b"], ["c"]]), ("none", [["a", "b", "c"]]), ("blank", [["a", "b"], ["c"]])],
)
def test_document_separator(text_file, separator, expected):
    assert documents(text_file("a\nb\n\nc\n"), document_separator=separator) == expected


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\x85", "\x0c", "\x0b", "\x1c", "\r"])
def test_only_newline_ends_a_line(text_file, odd):
    path = text_file(f"one{odd}more\ntwo\nthree\n")
    assert documents(path, document_separator="line") == [["one more"], ["two"], ["three"]]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("kind", ["txt", "jsonl"])
def test_compressed_files_read_like_plain_ones(text_file, pack, kind):
    suffix = {gzip.compress: "gz", bz2.compress: "bz2", lzma.compress: "xz"}[pack]
    text = "A\n\nB\n" if kind == "txt" else '{"text": "A"}\n\n{"text": "B"}\n'
    assert documents(text_file(pack(text.encode()), f"x.{kind}.{suffix}")) == [["A"], ["B"]]


def test_json_lines_field_and_inner_line_ends(text_file):
    records = [{"body": "a\n\nb", "n": 1}, {"body": ""}, {"body": None}, {"body": "c\u2028d"}]
    path = text_file("\n".join(map(json.dumps, records)), "x.jsonl")
    assert documents(path, text_field="body") == [["a", "b"], [], [], ["c d"]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is not JSON"),
        ('{"other": 1}', "line 2 has no field 'text'"),
        ('{"text": 3}', "line 2"),
        ("[1]", "line 2"),
    ],
)
def test_bad_json_line_is_named(text_file, line, message):
    path = text_file('{"text": "fine"}\n' + line + "\n", "x.jsonl")
    with pytest.raises(InputError, match=message):
        documents(path)


def test_lone_surrogate_is_replaced_and_counted(text_file):
    counts = ReadCounts()
    assert documents(text_file('{"text": "a\\ud800b"}', "x.jsonl"), counts) == [["a?b"]]
    assert counts.decode_errors == 1


def test_bad_byte_names_file_and_offset(text_file):
    path = text_file(b"a" * (1 << 20) + b"bc\xd7\nrest")
    with pytest.raises(
        InputError, match=rf"{path.name}: not UTF-8 at byte offset {(1 << 20) + 2} \(byte 0xd7\)"
    ):
        documents(path)


@pytest.mark.parametrize(("policy", "expected"), [("replace", "ok\ufffd end"), ("skip", "ok end")])
def test_bad_bytes_are_counted(text_file, policy, expected):
    counts = ReadCounts()
    assert documents(text_file(b"ok\xd7 end\n"), counts, on_decode_error=policy) == [[expected]]
    assert counts.decode_errors == 1


def test_character_cut_off_at_the_end_is_an_error(text_file):
    with pytest.raises(InputError, match="byte offset 2"):
        documents(text_file(b"ok" + "é".encode()[:1]))


@given(st.binary(max_size=60))
def test_decoding_is_that_of_python_however_it_is_cut(data):
    from electra_ds.data.inputs import _decode

    counts = ReadCounts()
    text, used = _decode(data, True, 0, "x", "skip", counts)
    assert (text, used) == (data.decode("utf-8", "ignore"), len(data))


def test_characters_over_chunk_borders(text_file, monkeypatch):
    monkeypatch.setattr("electra_ds.data.inputs._CHUNK_BYTES", 3)
    assert documents(text_file("\ufeffäö€𝄞 x\n\nzß")) == [["äö€𝄞 x"], ["zß"]]


def test_long_line_comes_in_pieces_and_nothing_is_lost(text_file, monkeypatch):
    monkeypatch.setattr(corpus, "PIECE_CHARS", 50)
    words = [f"word{n}" for n in range(500)]
    (sentences,) = documents(text_file(" ".join(words)))
    assert " ".join(sentences).split() == words
    assert max(map(len, sentences)) <= 50
    (unbroken,) = documents(text_file("x" * 501))
    assert "".join(unbroken) == "x" * 501


def test_memory_is_flat_in_the_length_of_a_line(text_file):
    path = text_file(gzip.compress(b"lorem ipsum dolor " * 2_000_000, 1), "long.txt.gz")  # 36 MB, one line
    tracemalloc.start()
    parts = sum(1 for _ in read_documents(find_inputs([str(path)]), CorpusOptions(), ReadCounts()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert parts > 250
    assert peak < 24 << 20


def test_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"a\n\nb\n")))
    assert documents("-") == [["a"], ["b"]]


def test_folders_and_patterns_are_sorted_and_files_taken_once(text_file, tmp_path):
    for name in ("b.txt", "a/c.txt", "a/d.txt.gz", "a/readme.md"):
        text_file(gzip.compress(b"x") if name.endswith("gz") else "x", name)
    names = [
        s.path.name for s in find_inputs([str(tmp_path / "b.txt"), str(tmp_path), str(tmp_path / "*.txt")])
    ]
    assert names == ["b.txt", "c.txt", "d.txt.gz"]


@pytest.mark.parametrize("name", ["x.parquet", "x.txt.zst", "x.jsonl.zst"])
def test_formats_not_read_are_refused_by_name(text_file, name):
    with pytest.raises(InputError, match=r"\.txt and \.jsonl"):
        find_inputs([str(text_file("x", name))])


@pytest.mark.parametrize("name", ["missing.txt", "none-*.txt", "s3://bucket/x.txt", "hf://wikipedia"])
def test_missing_input_is_named(name):
    with pytest.raises(InputError, match=name.split("*")[0]):
        find_inputs([name])


def test_unknown_name_needs_a_format(text_file):
    path = text_file("a\n", "corpus.train")
    with pytest.raises(InputError, match="--format"):
        find_inputs([str(path)])
    assert documents(path, text_format="txt") == [["a"]]


@pytest.mark.parametrize("data", [gzip.compress(b"text " * 10_000)[:-20], b"no gzip at all"])
def test_damaged_archive_is_named(text_file, data):
    with pytest.raises(InputError, match=r"bad\.txt\.gz: damaged"):
        documents(text_file(data, "bad.txt.gz"))
