"""A WordPiece tokenizer and the files that carry one."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from electra_ds.data.vocabulary import SPECIAL_TOKENS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MODEL_MAX_LENGTH = 512
MAX_WORD_CHARS = 100  # WordPiece maps longer words to [UNK]


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
