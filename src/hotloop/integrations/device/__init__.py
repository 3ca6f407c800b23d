"""What a device did: its times by span, copies and waits by line, memory of its allocator.

What lives here: `marks` and `attribution` know no library; `cuda` ties them to torch, with `transfers` and `allocator`.
"""
