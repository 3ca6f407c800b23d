"""One module per cause. Its name is the cause's, its docstring the page (`hotloop explain`, docs/causes)."""
