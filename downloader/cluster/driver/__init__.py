"""What runs where the job was started: cutting the source into slices, having Ray run them, watching over
them, trying again what failed, and all that is told of the job (report, manifest, ``status``, ``verify``).
Here is who owns the plan and who writes what is of the whole job. What a node does for one slice is in
``node``; what is stored in the plan, and how, is in ``plan``. Ray is called in ``fleet`` only, in a process
of its own that is not patched and forks no workers.
"""
