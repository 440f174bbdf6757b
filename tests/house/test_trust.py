"""A shard, a checkpoint, a model folder is data, never code: nothing in the package would execute it."""

import ast

import pytest

UNPICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}

# (file, rule) -> why it is right there. Keep it short: each entry is a place to read in a security review.
ALLOWED: dict[tuple[str, str], str] = {}


def dotted(node: ast.expr) -> str:
    """``torch.load`` for the expression ``torch.load``; empty for anything but a plain dotted name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def safe_loaders(tree: ast.AST) -> set[str]:
    """YAML loaders that make plain data only: SafeLoader and the classes of the file derived from it."""
    known = {"yaml.SafeLoader", "yaml.CSafeLoader", "SafeLoader", "CSafeLoader"}
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for _ in classes:
        known |= {node.name for node in classes if any(dotted(base) in known for base in node.bases)}
    return known


def unsafe(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and rule of each place that could run code out of a file."""
    found = []
    loaders = safe_loaders(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(a.name.split(".")[0] in UNPICKLERS for a in node.names):
            found.append((node.lineno, "pickle"))
        elif isinstance(node, ast.ImportFrom):
            module, names = node.module or "", {alias.name for alias in node.names}
            if module.split(".")[0] in UNPICKLERS:
                found.append((node.lineno, "pickle"))
            if module == "torch" and "load" in names:
                found.append((node.lineno, "torch.load by another name"))
            if module == "yaml" and any("load" in name for name in names - {"safe_load", "safe_load_all"}):
                found.append((node.lineno, "yaml.load by another name"))
        elif isinstance(node, ast.Call):
            found += [(node.lineno, rule) for rule in unsafe_call(node, loaders)]
    return found


def unsafe_call(node: ast.Call, loaders: set[str]) -> list[str]:
    name = dotted(node.func)
    keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    rules = []
    if name == "torch.load" and not is_true(keywords.get("weights_only")):
        rules.append("torch.load")
    if "allow_pickle" in keywords and not is_false(keywords["allow_pickle"]):
        rules.append("allow_pickle")
    if "trust_remote_code" in keywords and not is_false(keywords["trust_remote_code"]):
        rules.append("trust_remote_code")
    if name in ("yaml.load", "yaml.load_all"):
        loader = keywords.get("Loader") or (node.args[1] if len(node.args) > 1 else None)
        if loader is None or dotted(loader) not in loaders:
            rules.append("yaml.load")
    if name in ("yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load", "yaml.full_load_all"):
        rules.append("yaml.load")
    if name in ("eval", "exec", "os.system", "os.popen"):
        rules.append(name)
    if is_true(keywords.get("shell")):
        rules.append("shell=True")
    return rules


def test_no_file_of_the_package_can_run_code_out_of_data(package_trees: dict[str, ast.Module]) -> None:
    wrong = [
        f"{path}:{line} {rule}"
        for path, tree in package_trees.items()
        for line, rule in unsafe(tree)
        if (path, rule) not in ALLOWED
    ]
    assert not wrong, "\n".join(wrong)


def test_the_allow_list_holds_only_what_is_needed(package_trees: dict[str, ast.Module]) -> None:
    needed = {(path, rule) for path, tree in package_trees.items() for _, rule in unsafe(tree)}
    stale = [entry for entry in ALLOWED if entry not in needed]
    assert not stale, f"no longer needed: {stale}"
    assert all(reason.strip() for reason in ALLOWED.values())


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        ("import pickle", ["pickle"]),
        ("from joblib import load", ["pickle"]),
        ("torch.load(path)", ["torch.load"]),
        ("torch.load(path, weights_only=False)", ["torch.load"]),
        ("torch.load(path, map_location='cpu', weights_only=True)", []),
        ("from torch import load", ["torch.load by another name"]),
        ("numpy.load(path, allow_pickle=True)", ["allow_pickle"]),
        ("numpy.load(path, allow_pickle=False)", []),
        ("Model.from_pretrained(path, trust_remote_code=flag)", ["trust_remote_code"]),
        ("yaml.load(text)", ["yaml.load"]),
        ("yaml.load(text, Loader=yaml.FullLoader)", ["yaml.load"]),
        ("yaml.load(text, yaml.SafeLoader)", []),
        ("class Strict(yaml.SafeLoader): pass\nclass Own(Strict): pass\nyaml.load(text, Own)", []),
        ("from yaml import unsafe_load", ["yaml.load by another name"]),
        ("yaml.safe_load(text)", []),
        ("eval(text)", ["eval"]),
        ("model.eval()", []),
        ("subprocess.run(command, shell=True)", ["shell=True"]),
    ],
)
def test_the_check_sees_what_it_must(source: str, rules: list[str]) -> None:
    assert [rule for _, rule in unsafe(ast.parse(source))] == rules
