"""Hooks on what a training script imports and defines.

What lives here: what carries out what the adapters (`hotloop.adapters`) say, what is recognised by its shape alone, and what
torch needs beyond plain targets. Who may touch it: `run.child`. Invariant: a library is hooked only once the script has
imported it; nothing here is imported by `import hotloop`.
"""
