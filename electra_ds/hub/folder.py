"""Reading a model folder that someone else may have made: JSON and safetensors, never code, never pickle."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.implementations import BertWordPieceTokenizer

from electra_ds.config.errors import InputError
from electra_ds.hub.names import Network, Tensors

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin", "tf_model.h5")


@dataclass(frozen=True)
class ModelFolder:
    """One network as a Hugging Face folder holds it; ``tensors`` have Hugging Face's names."""

    path: Path
    config: dict[str, Any]
    tensors: Tensors
    tokenizer: Tokenizer


def read_folder(path: Path, network: Network) -> ModelFolder:
    """Read a folder that must hold the given network. Raises InputError saying what to pass instead."""
    _explain_wrong_folder(path)
    config = _read_json(path / "config.json")
    if not isinstance(config, dict):
        raise InputError(f"{path / 'config.json'}: no JSON object; restore the file")
    tensors = _read_tensors(path)
    head = {"discriminator": "discriminator_predictions.", "generator": "generator_predictions."}[network]
    if not any(name.startswith(head) for name in tensors):
        raise InputError(
            f"{path}: {_what_it_is(tensors)}; pass the folder of a {network}{_beside(path, network)}"
        )
    return ModelFolder(path, config, tensors, _read_tokenizer(path))


def _explain_wrong_folder(path: Path) -> None:
    """Raise InputError for everything that is recognisably another kind of folder."""
    if not path.exists():
        raise InputError(f"{path}: no such folder; pass one that 'electra-ds export' wrote or a download")
    if not path.is_dir():
        raise InputError(f"{path}: is a file; pass the model folder that holds it")
    if (path / "config.yaml").is_file():
        raise InputError(
            f"{path}: is a run folder; first 'electra-ds export {path} --output DIR', pass DIR/discriminator"
        )
    if not (path / "config.json").is_file():
        for name in ("discriminator", "generator"):
            if (path / name / "config.json").is_file():
                raise InputError(f"{path}: holds several models; pass {path / name}")
        raise InputError(f"{path}: holds no config.json, so it is no model folder; pass one that does")


def _read_tensors(path: Path) -> Tensors:
    names = [WEIGHTS]
    if not (path / WEIGHTS).is_file() and (path / INDEX).is_file():
        index = _read_json(path / INDEX)
        try:
            names = sorted(set(index["weight_map"].values()))
        except (KeyError, TypeError, AttributeError):
            raise InputError(f"{path / INDEX}: no weight map; restore the file") from None
    tensors: Tensors = {}
    for name in names:
        file = path / str(name)
        if file.parent != path:
            raise InputError(f"{path / INDEX}: names {name!r}, outside the folder; do not trust this folder")
        if not file.is_file():
            pickled = [other for other in PICKLED if (path / other).is_file()]
            if pickled:
                raise InputError(
                    f"{path}: has its weights only as {pickled[0]}, which can run code and is not opened;"
                    f" convert them to {WEIGHTS} or download a version that has it"
                )
            raise InputError(f"{path}: holds no {name}; pass a folder with weights")
        try:
            tensors.update(load_file(file))
        except (SafetensorError, OSError) as error:
            raise InputError(f"{file}: damaged ({error}); export or download it again") from None
    return tensors


def _what_it_is(tensors: Tensors) -> str:
    if any(name.startswith("generator_predictions.") for name in tensors):
        return "is a generator"
    if any(name.startswith("discriminator_predictions.") for name in tensors):
        return "is a discriminator"
    if any(name.startswith("electra.") for name in tensors):
        return "is an ELECTRA without its pretraining head, such as a fine-tuned one"
    return "is no ELECTRA"


def _beside(path: Path, network: Network) -> str:
    neighbour = path.parent / network
    return f", here {neighbour}" if neighbour != path and (neighbour / "config.json").is_file() else ""


def _read_tokenizer(path: Path) -> Tokenizer:
    """The fast tokenizer; where there is only a vocabulary, WordPiece as BERT has it."""
    file = path / "tokenizer.json"
    if file.is_file():
        try:
            return Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises a bare Exception
            raise InputError(f"{file}: not a tokenizer ({error}); restore the file") from None
    vocabulary = path / "vocab.txt"
    if not vocabulary.is_file():
        raise InputError(
            f"{path}: holds neither tokenizer.json nor vocab.txt; copy the model's tokenizer there"
        )
    settings = path / "tokenizer_config.json"
    given = _read_json(settings) if settings.is_file() else {}
    return BertWordPieceTokenizer(
        str(vocabulary),
        lowercase=given.get("do_lower_case", True),
        strip_accents=given.get("strip_accents"),
        handle_chinese_chars=given.get("tokenize_chinese_chars", True),
    )._tokenizer


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not readable as JSON ({error}); restore the file") from None
