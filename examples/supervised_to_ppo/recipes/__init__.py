"""Recipes, as the document names them: `tools/run.py cvc.NAME` runs `recipes/experiment/cvc/NAME.py`."""
