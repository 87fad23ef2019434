"""What runs on a node for one slice: the tasks and the actor that Ray calls, the directory of an attempt,
the process that runs the slice, and what it leaves in the plan. A node knows one slice and the Config of
all: nothing here reads other slices, decides what runs again, or owns the plan; that is in ``driver``. Ray
is imported in functions only, and what is patched runs in a process of its own.
"""
