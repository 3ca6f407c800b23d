"""One module per cause. Each has `CAUSE` and `look(evidence)`; its docstring is its page (`hotloop explain`, docs/causes)."""
