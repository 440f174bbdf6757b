"""What the documents name exists: files they link to, settings, recipes and DeepSpeed files they mention."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from electra_ds.config.schema import Config

LINK = re.compile(r"\]\(([^)\s]+)\)")
SETTING = re.compile(r"`((?:data|model|objective|optimizer|train)\.[a-z_.]+)(?:=[^`]*)?`")
FILE_ENDINGS = (".py", ".json", ".yaml", ".md", ".sh")


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a document."""
    headings = re.findall(r"^#+ +(.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def settings(of: type = Config, prefix: str = "") -> Iterator[str]:
    """Dotted names of all settings and of the groups they stand in."""
    for field in dataclasses.fields(of):
        name = prefix + field.name
        yield name
        if dataclasses.is_dataclass(field.type):
            yield from settings(field.type, name + ".")  # type: ignore[arg-type]


def test_links_lead_somewhere(markdown_files: list[Path]) -> None:
    broken = []
    for page in markdown_files:
        text = page.read_text(encoding="utf-8")
        for link in LINK.findall(text):
            if link.startswith(("http://", "https://", "mailto:")):
                continue
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.exists():
                broken.append(f"{page.name}: {link}")
            elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
                broken.append(f"{page.name}: {link} (no such heading)")
    assert not broken, "\n".join(broken)


def test_settings_named_in_documents_exist(markdown_files: list[Path]) -> None:
    known = set(settings())
    assert {"train.batch", "objective.hp", "objective.hp.weight_clip"} <= known
    unknown = [
        f"{page.name}: {name}"
        for page in markdown_files
        for name in SETTING.findall(page.read_text(encoding="utf-8"))
        if name not in known and not name.endswith(FILE_ENDINGS)
    ]
    assert not unknown, "\n".join(unknown)


def test_recipes_and_ds_configs_that_are_named_exist(
    root: Path, markdown_files: list[Path], shell_scripts: list[Path]
) -> None:
    recipes = {path.stem for path in (root / "electra_ds" / "recipes").glob("*.yaml")}
    ds_configs = {path.name for path in (root / "ds_configs").glob("*.json")}
    missing = []
    for page in (*markdown_files, *shell_scripts):
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"--recipe ([a-z]+_[a-z_]+)\b(?![./])", text)
        missing += [f"{page.name}: recipe {name}" for name in named if recipes and name not in recipes]
        named = re.findall(r"ds_configs/(\w+\.json)", text)
        missing += [
            f"{page.name}: ds_configs/{name}" for name in named if ds_configs and name not in ds_configs
        ]
    assert not missing, "\n".join(missing)
