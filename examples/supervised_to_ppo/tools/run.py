#!/usr/bin/env python3
"""Run a recipe.

    ./tools/run.py cvc.thinky_supervised_to_ppo run=NAME supervised_steps=5_000 trainer.total_timesteps=10_000 …

`cvc.NAME` is recipes/experiment/cvc/NAME.py. Anything it sets can be changed by key=value; numbers may be written 5_000.
"""

import importlib
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(EXAMPLE))


def main(arguments: list[str]) -> int:
    folder = EXAMPLE / "recipes" / "experiment"
    recipes = sorted(".".join(p.relative_to(folder).with_suffix("").parts) for p in folder.rglob("*.py"))
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"{__doc__}\nRecipes: {', '.join(recipes)}\nSettings of a recipe: ./tools/run.py RECIPE --help")
        return 0 if arguments else 2
    name, *rest = arguments
    if name not in recipes:
        print(f"There is no recipe {name!r}; there are {', '.join(recipes)}.", file=sys.stderr)
        return 2
    from thinky.settings import read_command_line

    recipe = importlib.import_module(f"recipes.experiment.{name}")
    settings = read_command_line(recipe.make_settings(), rest, recipe.__doc__)
    from thinky.trainer import train

    train(settings)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
