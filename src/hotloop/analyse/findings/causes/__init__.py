"""One module per cause. Its name is the cause's, its docstring the page (`hotloop explain`, the site), its TURN when it claims
time: the most specific first, so that a general one gets what is left."""
