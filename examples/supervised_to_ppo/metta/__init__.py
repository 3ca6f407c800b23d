"""The document's import paths; the code behind them is in `thinky`."""
