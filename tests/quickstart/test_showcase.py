"""Which words are changed is drawn before scores are known, and what is said of them is counted right."""

from electra_ds.hub.detect import Detection, Word
from electra_ds.quickstart.showcase import frequent_words, plan_changes, report, show_all

TEXT = """The captain opened the letter and read it to the village.
A garden behind the market was open in winter and closed in summer.
This sentence has the number 7 in it and is therefore not a plain one.
Short one here.
The village answered the letter of the captain before the winter came.
"""


class FindsLongWords:
    """Stands for a discriminator: distrusts a word by its length."""

    def detect(self, texts):
        for text in texts:
            words = text.removesuffix(".").split()
            yield Detection(text, tuple(Word(w, 0, 0, min(len(w), 10) / 10) for w in words), False)


def files(tmp_path):
    for name in ("train.txt", "heldout.txt"):
        (tmp_path / name).write_text(TEXT)
    return tmp_path / "train.txt", tmp_path / "heldout.txt"


def test_frequent_words_are_no_stop_words_and_whole_words(tmp_path):
    train, _ = files(tmp_path)
    words = frequent_words(train)
    assert set(words[:4]) == {"captain", "letter", "village", "winter"}
    assert not {"before", "this", "hort", "short"} & set(words)


def test_one_word_changes_and_always_the_same(tmp_path):
    train, held_out = files(tmp_path)
    words = frequent_words(train)
    changes = plan_changes(held_out, words)
    assert changes == plan_changes(held_out, words)
    assert len(changes) == 3
    for change in changes:
        before, after = (text.removesuffix(".").split() for text in (change.before, change.after))
        differing = [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
        assert differing == [change.place]
        assert (before[change.place], after[change.place]) == (change.old, change.new)
        assert {change.old, change.new} <= set(words)


def test_report_counts_what_was_found(tmp_path):
    train, held_out = files(tmp_path)
    changes = plan_changes(held_out, frequent_words(train))
    shown = show_all(FindsLongWords(), changes)
    longest = [max(change.after.removesuffix(".").split(), key=len) for change in changes]
    found = sum(change.new == word for change, word in zip(changes, longest, strict=True))
    assert sum(each.found for each in shown) == found
    text = "\n".join(report(shown))
    assert f"In each of {len(changes)} held-out sentences" in text
    assert f"word most in {found} of them" in text
    assert text.count("<- changed") == 1
    assert text.count("most distrusted") == 1


def test_text_without_plain_sentences_is_said_to_have_none():
    assert report([]) == ["The held-out text has no plain sentence to change a word in."]
