"""The corpus: repeats go, held-out text is apart, wrong input is one clear line, nothing is half-written."""

import json
import random

import pytest

from electra_ds.config.errors import InputError
from electra_ds.quickstart import corpus, installed
from electra_ds.quickstart.corpus import (
    CorpusReport,
    Deduplicator,
    build_from_files,
    build_from_installation,
    is_held_out,
)
from electra_ds.quickstart.installed import Document, SourceFile, docstrings, documents, file_paragraphs

WORDS = [
    "river",
    "mountain",
    "window",
    "garden",
    "letter",
    "music",
    "silver",
    "answer",
    "captain",
    "village",
    "winter",
    "market",
]


def lines_of(path):
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line]


def sentence(generator):
    return " ".join(generator.choices(WORDS, k=12)).capitalize() + "."


class TestDeduplicator:
    def test_repeated_and_similar_paragraphs_are_not_new(self):
        report = CorpusReport()
        unseen = Deduplicator(report)
        said = "Constructs a {} tokenizer that splits the text into words and the words into pieces of them."
        assert unseen.is_new(said.format("BERT"))
        assert not unseen.is_new(said.format("BERT"))
        assert not unseen.is_new(said.format("RoBERTa"))  # the same with another name put in
        assert unseen.is_new("The reader keeps a small part of the file in memory and never more than that.")
        assert (report.repeated, report.similar) == (1, 1)

    def test_a_shared_turn_of_phrase_does_not_drop_a_paragraph(self):
        unseen = Deduplicator(CorpusReport())
        assert unseen.is_new("If this is not the case then a window of the house opens to the garden.")
        assert unseen.is_new("If this is not the case then old letters are read aloud by a captain at sea.")


class TestInstallation:
    @pytest.fixture
    def small(self, monkeypatch):
        """An installation of 400 small documents, some of which say the same."""
        generator = random.Random(0)
        shared = sentence(generator)
        made = [
            (Document(f"packages/{i}.py", (*(sentence(generator) for _ in range(3)), shared)), i + 1)
            for i in range(400)
        ]
        monkeypatch.setattr(installed, "find_files", lambda: [SourceFile(d.name, d.name) for d, _ in made])
        monkeypatch.setattr(installed, "documents", lambda files, processes: iter(made))
        monkeypatch.setattr(corpus, "MIN_BYTES", 10_000)
        return shared

    def test_texts_share_no_paragraph_and_repeats_are_gone(self, small, tmp_path):
        report = build_from_installation(tmp_path, processes=1)
        train, held_out = lines_of(tmp_path / "train.txt"), lines_of(tmp_path / "heldout.txt")
        assert held_out
        assert not set(train) & set(held_out)
        assert (train + held_out).count(small) == 1
        assert len(set(train + held_out)) == len(train + held_out) == report.paragraphs
        assert report.train_bytes == (tmp_path / "train.txt").stat().st_size
        assert json.loads((tmp_path / "corpus.json").read_text())["heldout_bytes"] == report.heldout_bytes

    def test_documents_stay_whole(self, small, tmp_path):
        build_from_installation(tmp_path, processes=1)
        for name in ("train.txt", "heldout.txt"):
            found = (tmp_path / name).read_text().rstrip("\n").split("\n\n")
            assert {len(document.splitlines()) for document in found} <= {3, 4}

    def test_building_twice_gives_the_same_bytes(self, small, tmp_path):
        for name in ("a", "b"):
            build_from_installation(tmp_path / name, processes=1)
        for name in ("train.txt", "heldout.txt"):
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()

    def test_too_little_text_is_refused_and_nothing_is_left(self, small, tmp_path, monkeypatch):
        monkeypatch.setattr(corpus, "MIN_BYTES", 5_000_000)
        with pytest.raises(InputError, match=r"only 0\.\d+ MB of text.*--input PATH"):
            build_from_installation(tmp_path, processes=1)
        assert not list(tmp_path.iterdir())

    def test_processes_do_not_change_the_order(self, tmp_path):
        for number in range(70):  # more than two tasks of files
            text = f'"""Number {number} is one of the modules of this folder and says so in its text."""\n'
            (tmp_path / f"{number:02}.py").write_text(text)
        files = [SourceFile(path.name, path) for path in sorted(tmp_path.iterdir())]
        once, twice = (list(documents(files, processes)) for processes in (1, 2))
        assert once == twice
        assert [d.name for d, _ in once if not d.name.startswith("topics/")] == [file.name for file in files]
        assert once[-1][1] == 70


def test_source_files_are_parsed_and_not_imported(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        '"""The module says in a sentence of its own what it is made for and by whom."""\n'
        "raise SystemExit('imported')\n"
        "# A comment of two lines tells those who read it why the thing is done here\n"
        "# and not at the place where all of them would have looked for it first.\n"
        "if True:\n    class A:\n        def f(self):\n"
        '            """Return what has been left in the box by the one who was there before."""\n'
    )
    assert [text.split()[0] for text in docstrings(path.read_text())] == ["The", "Return"]
    assert [text.split()[0] for text in file_paragraphs(path)] == ["The", "Return", "A"]


def test_a_file_of_another_python_gives_no_docstrings():
    assert docstrings('"""A docstring."""\nprint "two"\n') == []


def test_the_split_is_by_name_alone_and_about_as_large_as_asked():
    held_out = sum(is_held_out(f"packages/name{i}.py") for i in range(20_000)) / 20_000
    assert 0.034 < held_out < 0.046
    assert is_held_out("packages/name25.py") == is_held_out("packages/name25.py")


class TestOwnFiles:
    @pytest.fixture(autouse=True)
    def little_is_enough(self, monkeypatch):
        monkeypatch.setattr(corpus, "MIN_INPUT_BYTES", 1000)

    def test_held_out_lines_stand_nowhere_in_training(self, tmp_path):
        generator = random.Random(1)
        lines = [sentence(generator) for _ in range(9000)]
        lines[::9] = [lines[0]] * len(lines[::9])  # stands in nearly every unit
        (tmp_path / "in.txt").write_text("\n".join(lines), encoding="utf-8")  # one document, no blank line
        build_from_files([str(tmp_path / "in.txt")], tmp_path / "out")
        train, held_out = (lines_of(tmp_path / "out" / name) for name in ("train.txt", "heldout.txt"))
        assert 0.005 < len(held_out) / len(lines) < 0.12
        assert not set(train) & set(held_out)
        assert set(train) | set(held_out) == set(lines)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "no text in it"),
            (b" \n\n \n", "no text in it"),
            (b"A line.\n", "only 0.00 MB of text"),
            (b"Good text.\n" * 500 + b"\xff\xfe bad\n", "in.txt: not UTF-8 at byte offset 5500"),
            (None, "in.txt: no such file"),
        ],
        ids=["empty", "blank", "little", "not utf-8", "missing"],
    )
    def test_wrong_input_is_one_line_and_leaves_nothing(self, tmp_path, content, message):
        if content is not None:
            (tmp_path / "in.txt").write_bytes(content)
        with pytest.raises(InputError) as raised:
            build_from_files([str(tmp_path / "in.txt")], tmp_path / "out")
        assert message in str(raised.value)
        assert "\n" not in str(raised.value)
        assert not list((tmp_path / "out").glob("*"))


@pytest.mark.slow
def test_this_installation_carries_enough_prose(tmp_path):
    report = build_from_installation(tmp_path)
    train, held_out = lines_of(tmp_path / "train.txt"), lines_of(tmp_path / "heldout.txt")
    assert report.bytes >= 5_000_000
    assert not set(train) & set(held_out)
    assert 0.01 < report.heldout_bytes / report.bytes < 0.10
    assert not any(">>>" in line or "::" in line[-2:] for line in train)
