"""The subcommand ``electra-ds recipes``: list, show and copy the shipped recipes."""

import argparse
from pathlib import Path
from typing import Any

from electra_ds.config.errors import EXIT_DONE, InputError, nearest
from electra_ds.config.loading import dump, load_config
from electra_ds.config.recipes import describe_recipe, find_recipe, recipe_names

_EXAMPLE = """example:
  electra-ds recipes ls
  electra-ds recipes show tiny_hp_dist
  electra-ds recipes cp tiny_hp_dist mine.yaml
"""


def register(subparsers: Any) -> None:
    """Add ``recipes`` and its three actions to the subparsers of ``electra-ds``."""
    parser = subparsers.add_parser(
        "recipes",
        help="list, show and copy the shipped recipes",
        description="Recipes are short YAML files with all that a run needs beside its data.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ls|show|cp", required=True)

    def add(name: str, description: str, example: str) -> argparse.ArgumentParser:
        return actions.add_parser(
            name,
            help=description,
            description=description,
            epilog=f"example:\n  electra-ds recipes {example}\n",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    action = add("ls", "List the shipped recipes, one line each.", "ls")
    action.set_defaults(func=_list)
    action = add("show", "Print every setting of a recipe as YAML.", "show base_hp_dist")
    action.add_argument("name", help="a shipped recipe or the path of one")
    action.set_defaults(func=_show)
    action = add(
        "cp", "Copy a recipe to a file of your own, to be changed there.", "cp small_electra mine.yaml"
    )
    action.add_argument("name", help="a shipped recipe")
    action.add_argument("file", type=Path, help="the new file; an existing one is never overwritten")
    action.set_defaults(func=_copy)


def _list(args: argparse.Namespace) -> int:
    names = recipe_names()
    width = max(map(len, names))
    for name in names:
        print(f"{name:<{width}}  {describe_recipe(name)}")
    print("\nnext: electra-ds recipes show tiny_hp_dist")
    return EXIT_DONE


def _show(args: argparse.Namespace) -> int:
    # Comments around the YAML, so that the output can be used as a recipe.
    print(f"# {find_recipe(args.name)}, complete")
    print(dump(load_config(args.name)), end="")
    if args.name in recipe_names():
        print(f"# next: electra-ds recipes cp {args.name} mine.yaml")
    else:
        print(f"# next: electra-ds pretrain --recipe {args.name} --data SHARDS --output runs/NAME")
    return EXIT_DONE


def _copy(args: argparse.Namespace) -> int:
    if args.name not in recipe_names():  # an own file may extend its neighbours, and would break elsewhere
        raise InputError(
            f"no shipped recipe {args.name!r}{nearest(args.name, recipe_names())}: "
            f"copy one of {', '.join(recipe_names())}"
        )
    source = find_recipe(args.name)
    if args.file.suffix not in (".yaml", ".yml"):
        raise InputError(f"{args.file}: a recipe's file name ends in .yaml: use {args.file}.yaml")
    try:
        # "x" refuses an existing file, also one that appears in this moment.
        with args.file.open("x", encoding="utf-8") as file:
            file.write(source.read_text(encoding="utf-8"))
    except FileExistsError:
        raise InputError(f"{args.file}: exists and is not overwritten: choose another name") from None
    except OSError as error:
        raise InputError(f"{args.file}: cannot be written ({error.strerror}): choose another place") from None
    print(f"copied {source} to {args.file}")
    print(f"next: electra-ds pretrain --recipe {args.file} --data SHARDS --output runs/{args.file.stem}")
    return EXIT_DONE
