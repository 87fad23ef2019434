"""What driver and nodes agree about: the plan of a job, its slices and records, on storage that all of them
see, and what both must find in the same place or make in the same way (the Config of a slice, where shards
are staged). Nothing here runs a slice, calls Ray, or knows which of the two reads it. What one side alone
reads is in ``driver`` or ``node``: the lock on a plan is the driver's, a scratch directory the node's.
"""
