"""Training a WordPiece tokenizer, and the files that carry one."""

import json
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from electra_ds.config.errors import InputError
from electra_ds.data.corpus import CorpusOptions, read_lines
from electra_ds.data.inputs import ReadCounts, Source
from electra_ds.data.vocabulary import SPECIAL_TOKENS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DEFAULT_SAMPLE_BYTES = 1 << 28
MODEL_MAX_LENGTH = 512
MIN_VOCAB_SIZE = 64
MAX_WORD_CHARS = 100  # WordPiece maps longer words to [UNK]
_LONG_RUN = re.compile(rf"\w{{{MAX_WORD_CHARS + 1},}}")
_CJK = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WordPieceSettings:
    """How text is normalised before it is cut into pieces."""

    lowercase: bool = True
    strip_accents: bool | None = None  # None: as lowercase, the habit of BERT
    cjk: bool = True  # every CJK ideograph is a word of its own
    unicode_form: Literal["none", "nfc", "nfkc"] = "nfc"  # composed and decomposed letters get the same ids

    @property
    def strips_accents(self) -> bool:
        """Whether accents are removed."""
        return self.lowercase if self.strip_accents is None else self.strip_accents


def wordpiece(vocabulary: dict[str, int], settings: WordPieceSettings) -> "Tokenizer":
    """Return a tokenizer with this vocabulary (token to id, special tokens included)."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    model = models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=MAX_WORD_CHARS)
    tokenizer = Tokenizer(model)
    bert = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.cjk,
        strip_accents=settings.strips_accents,
        lowercase=settings.lowercase,
    )
    forms = {"nfc": normalizers.NFC, "nfkc": normalizers.NFKC}
    form = forms.get(settings.unicode_form)
    tokenizer.normalizer = normalizers.Sequence([form(), bert]) if form else bert
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    if vocabulary:
        tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
        )
    return tokenizer


def tokenizer_files(tokenizer: "Tokenizer", settings: WordPieceSettings) -> dict[str, bytes]:
    """Return the files of a tokenizer's folder, from which ``AutoTokenizer.from_pretrained`` gives the same
    ids.
    """
    roles = dict(zip(("pad", "unk", "cls", "sep", "mask"), SPECIAL_TOKENS, strict=True))
    special = {f"{role}_token": token for role, token in roles.items()}
    config = {
        # The generic class reads tokenizer.json as it is; BertTokenizer would build its own normaliser.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": MODEL_MAX_LENGTH,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "do_lower_case": settings.lowercase,
        "strip_accents": settings.strips_accents,
        "tokenize_chinese_chars": settings.cjk,
        **special,
    }
    by_id = sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    return {
        "tokenizer.json": tokenizer.to_str(pretty=False).encode(),
        "tokenizer_config.json": (json.dumps(config, indent=2) + "\n").encode(),
        "special_tokens_map.json": (json.dumps(special, indent=2) + "\n").encode(),
        "vocab.txt": "".join(f"{token}\n" for token, _ in by_id).encode(),
    }


def save_files(files: dict[str, bytes], folder: Path) -> None:
    """Write files into a folder, each under its final name in one step, ``tokenizer.json`` last."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name == "tokenizer.json"):
        temporary = folder / (name + ".tmp")
        temporary.write_bytes(files[name])
        os.replace(temporary, folder / name)


class _Sample:
    """The text a tokenizer is trained on: of each source its share of the limit, counted as it goes by."""

    def __init__(self, sources: Sequence[Source], options: CorpusOptions, cjk: bool, limit: int) -> None:
        self.sources, self.options, self.cjk, self.limit = sources, options, cjk, limit
        self.bytes = 0
        self.limited = False
        self.characters: Counter[str] = Counter()
        self.counts = ReadCounts()

    def __iter__(self) -> Iterator[str]:
        estimates = [source.text_estimate for source in self.sources]
        total = sum(estimates)
        for source, estimate in zip(self.sources, estimates, strict=True):
            share = self.limit if not total or not estimate else -(-self.limit * estimate // total)
            quota = min(share, self.limit - self.bytes)
            yield from self._texts(source, quota)

    def _texts(self, source: Source, quota: int) -> Iterator[str]:
        used = 0
        for piece in read_lines([source], self.options, self.counts):
            if piece is None or not piece.text.strip():
                continue
            if used >= quota:
                self.limited = True
                return
            used += len(piece.text.encode())
            self.bytes += len(piece.text.encode())
            self.characters.update(piece.text)
            yield _LONG_RUN.sub(self._shorten, piece.text)

    def _shorten(self, match: re.Match[str]) -> str:
        """Leave out words that WordPiece never cuts, which would only cost memory; ideographs are no such
        word.
        """
        return match.group() if self.cjk and _CJK.search(match.group()) else " "


def train_tokenizer(
    sources: Sequence[Source],
    options: CorpusOptions,
    settings: WordPieceSettings,
    vocab_size: int,
    sample_bytes: int = DEFAULT_SAMPLE_BYTES,
) -> "Tokenizer":
    """Train a WordPiece tokenizer of at most ``vocab_size`` tokens; [PAD] [UNK] [CLS] [SEP] [MASK] are ids 0
    to 4.

    Text too small for that many tokens gives fewer, with a warning. Raises InputError if there is no text.
    """
    from tokenizers import trainers

    if vocab_size < MIN_VOCAB_SIZE:
        raise InputError(f"--vocab-size {vocab_size}: must be at least {MIN_VOCAB_SIZE}")
    if sample_bytes < 1:
        raise InputError(f"--sample-bytes {sample_bytes}: must be at least 1")
    tokenizer = wordpiece({}, settings)
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        # A character can stand at a word's beginning and inside one (##): two entries. A third is left for
        # pieces, or the alphabet alone would exceed the size asked for.
        limit_alphabet=(vocab_size - len(SPECIAL_TOKENS)) // 3,
        show_progress=False,
    )
    sample = _Sample(sources, options, settings.cjk, sample_bytes)
    tokenizer.train_from_iterator(iter(sample), trainer)
    if not sample.bytes:
        raise InputError(
            f"{', '.join(source.name for source in sources[:3])}: no text to train a tokenizer on"
        )
    log.info(
        "trained on %s bytes of text%s",
        f"{sample.bytes:,}",
        f" (a sample: --sample-bytes {sample_bytes})" if sample.limited else " (all of it)",
    )
    vocabulary = _ordered(tokenizer.get_vocab())
    if len(vocabulary) > vocab_size:
        raise InputError(
            f"the text needs {len(vocabulary)} tokens, more than --vocab-size {vocab_size}; ask for more"
        )
    if len(vocabulary) < vocab_size:
        log.warning("the text is too small for %d tokens: the vocabulary has %d", vocab_size, len(vocabulary))
    trained = wordpiece(vocabulary, settings)
    _report_coverage(trained, sample.characters)
    return trained


def _ordered(vocabulary: dict[str, int]) -> dict[str, int]:
    """Renumber: special tokens, single characters sorted, then pieces in the order in which they were
    found.
    """

    def place(item: tuple[str, int]) -> tuple[int, str, int]:
        token, number = item
        if token in SPECIAL_TOKENS:
            return (0, "", SPECIAL_TOKENS.index(token))
        single = len(token.removeprefix("##")) == 1
        return (1, token, 0) if single else (2, "", number)

    return {token: number for number, (token, _) in enumerate(sorted(vocabulary.items(), key=place))}


def _report_coverage(tokenizer: "Tokenizer", characters: Counter[str]) -> None:
    vocabulary = tokenizer.get_vocab()
    total = covered = 0
    for character, count in characters.items():
        normal = tokenizer.normalizer.normalize_str(character).strip()
        total += count
        covered += count * all(c in vocabulary or "##" + c in vocabulary for c in normal)
    if covered < total:
        message = (
            "the vocabulary covers %.4f %% of the characters of the text; words with others become [UNK]"
        )
        log.log(logging.WARNING if covered < 0.999 * total else logging.INFO, message, 100 * covered / total)
