"""Hooks on what a training script imports and defines, one module per library.

What lives here: which functions mean what. Each module has `MODULES`, the imports it waits for, and `install(patches, module)`,
called once for each of them. Who may touch it: `run.child`. Invariant: a library is hooked only once the script has imported
it; the modules do not know one another; nothing here is imported by `import hotloop`.
"""
