"""Sentences of the documents that have numbers, each number as what the code has in its place.

``{room.module.NAME}`` is a constant of the downloader, ``{Config.name}`` the default of a field, and
``{diagnostics.module.NAME}`` a constant of the diagnostics; with arithmetic where the document has another
unit. A format may follow: ``,`` groups digits, ``b`` is bytes in KiB, MiB or GiB, ``w`` is a word.
``tests/unit/test_documents.py`` looks for the sentences.
"""

from __future__ import annotations

from typing import Final

__all__ = ["NUMBERS"]

# What all connections may hold together; see `PipelinedClient.resize`.
_SHARE: Final = "max(http.pipelined.client._HELD_BYTES // {n}, http.pipelined.transport.BUFFER // 4) * {n}"
_AUTO, _MOST = (
    f"{{{_SHARE.format(n=f'core.limits.{name}')}:b}}"
    for name in ("MOST_ADAPTIVE_CONNECTIONS", "MOST_CONNECTIONS")
)

NUMBERS: Final[dict[str, tuple[str, ...]]] = {
    "docs/design.md": (
        "batches of at most {messages.BATCH_ITEMS:,} items",
        "frames with a {core.frames._HEADER}-byte length",
        "A child that is silent for {process.watching.STALL_TIMEOUT} s is killed",
        "after {Config.stall_timeout / 2 + Config.stall_timeout / 2 * core.silence.FOR_DISK} s.",
        "a process in state D waits for a disk and has {Config.stall_timeout * core.silence.FOR_DISK} s",
        "Large files are read and copied in threads, {process.long_work.PIECE:b} at a time",
        "pauses for 1 ms whenever it was busy for {process.long_work.BUSY * 1000} ms",
        "A part of a list ({sources.lines._PART >> 20} MB) is parsed in one go",
        # The ledger
        "For each item it writes {core.item_states.ITEM_BYTES} bytes into a mapped file",
        "Items that were in flight at {core.leases.DEATHS_TO_SUSPECT:w} deaths are *suspects*",
        "A worker has at most {storage.ledger._MOST_SLOTS} slots in its ledger",
        "A batch that is younger than {worker.narrowing._AGE} s is not",
        "{core.read_ahead._RESTING:,} files may wait in all workers together, "
        "and {core.read_ahead._MIN_RESTING:,} in each at least",
        "A narrowed batch counts as {worker.narrowing._OF_BATCH:w} files more, "
        "one of shards also for its compressed items, {worker.narrowing._OF_ITEM} bytes each",
        "as they are needed, {storage.ledger._ENTRY.size} bytes each",
        # Names, publishing
        "The key is {storage.name_key.KEY_BYTES} random bytes",
        "a held directory is trusted for {'a second' if sinks.directory._TRUSTED == 1 else '?'}",
        "A file of more than {process.long_work.READ_AT_ONCE:b} is read in a thread.",
        "Files of more than {sinks.files_writer._LONG_TO_READ >> 20} MB that are to be replaced are not "
        "read",
        # The pipelined client
        "A body of up to {http.pipelined.parser._WHOLE:b} goes into the sink in one piece",
        "{http.pipelined.parser.MAX_HEAD:b} without the end of a head",
        "were handed over {http.pipelined.client._MAX_FALLBACKS:w} times in a row is left",
        "is multiplied by {core.pipeline_depth.STEP} as long as the measured goodput grows, "
        "and is at most {core.pipeline_depth.DEEPEST}",
        "{core.pipeline_window._TIMES_DEPTH:w} times the depth, at least "
        "{core.pipeline_window._MIN_REQUESTS} and at "
        "most {http.pipelined.client._MAX_WINDOW} files per connection",
        "share {http.pipelined.client._HELD:,} files and {http.pipelined.client._HELD_BYTES:b}",
        "each may hold {http.pipelined.client._MIN_WINDOW} files "
        "and {http.pipelined.transport.BUFFER // 4:b}",
        f"{_AUTO} at {{core.limits.MOST_ADAPTIVE_CONNECTIONS:,}} connections, "
        f"{_MOST} at `--connections {{core.limits.MOST_CONNECTIONS}}`",
        "no more requests are sent in it once it would last {core.pipeline_window._LONG} s, "
        "and {core.pipeline_window._TIMES_REST:w} times the longest time between two responses",
        "given {core.pipeline_window._DRAINS:w} times as long as all else "
        "({core.pipeline_window._DRAINS * Config.drain_grace} s)",
        "one, and until {core.pipeline_order._ENOUGH} of an origin have agreed, "
        "up to {core.pipeline_order._FIRST} ({core.pipeline_order._NEXT} where responses take more than "
        "{core.pipeline_order._SLOW} s, or where {core.pipeline_order._ENOUGH} are asked for already)",
        "Where one differs, up to {core.pipeline_order.MANY} more follow",
        "up to {core.pipeline_order._SUSPECTS:w} files of each kind of suspicion are requested by "
        "themselves, {core.pipeline_order._TIMES:w} times",
        "nothing could be compared in {core.pipeline_order._VAIN} windows "
        "({core.pipeline_order._VAIN_LATER} once enough have agreed)",
        "many are compared again ({core.pipeline_order._DOUBTS:w} times at most for an origin",
        "(or several small ones, {http.pipelined.commit_queue.PORTION} files at least)",
        # The requests client
        "never reads their bodies beyond {http.requests_client._SMALL:b}",
        "At most {http.cookies._ROOM:b} a worker, {http.cookies._PER_DOMAIN} a domain",
        "At most {worker.retries._MAX_COOKIE_TRIES} times for a file at each of its URLs",
        "has {worker.retries._MAX_COOKIELESS_TRIES} such attempts",
        "in vain for {worker.retries._MAX_VAIN} files of an origin",
        "http.client takes up to {http.response._HEAD:b} of header fields",
        "each with a head start of {http.connecting._HEAD_START} s",
        # Many hosts
        "{http.dns._MIN_AGE} s after the look-up before, then twice as long each time that the answer "
        "is the same, up to {http.dns._MOST_PATIENCE} s",
        "the last {http.name_lookup._MAX_CACHED} names of each channel",
        "No more than {http.dns._MAX_UNUSED:,} names are looked up and not used yet",
        "{http.dns._MAX_NAMES:,} names are kept, the latest",
        "the system's function in {http.name_lookup._SystemLookup.most} threads",
        "c-ares has {http.name_lookup._CHANNELS:w} channels",
        "{http.name_lookup._CaresLookup.most} look-ups in progress get two each",
        "A request whose connection is not open after {http.connection_budget.SLOW_TO_OPEN} s is *parked*",
        "Up to {process.file_descriptors._MAX_AWAITED:,} requests may be parked",
        "has received less than {core.preemption.WORTH:b} in its allotment: "
        "{core.preemption._TIMES_USUAL:w} times what responses of the host or of all take that do end, "
        "at least {core.preemption._SHORTEST} s, and {core.preemption.GROWTH:w} times as much each time",
        "the allotment is then {core.preemption._SILENT} s at least",
        "one slot in {core.scheduler._RESERVE:w} stays free for files that come later",
        "With many hosts a step must gain {core.connection_limit._GAIN_OF_MANY * 100 - 100:.0f} %, "
        "else {core.connection_limit._GAIN * 100 - 100:.0f} %",
        "{core.connection_limit._FALLEN} of what it was",
        "down to {core.connection_limit._FEWEST_AS_FAST}, since an overloaded server",
        "for more than two mean latencies from before it, at least {core.connection_limit._SHORT} s; "
        "nor for more than {core.connection_limit._LONG:.0f} s where connections finish whole windows",
        "for no more than {core.goodput._PATIENCE[0]} mean latencies of the depth before "
        "({core.goodput._PATIENCE[1]} after a further step)",
        "vain have ended: for {core.connection_limit._DRAINING:.0f} s at most",
        "half of up to {http.pipelined.depth_trial.MOST} connections try the next depth",
        "so many that it is no chance ({core.host_trouble._IN_A_ROW}, more where many fail anyway)",
        "`--retries 0` means {core.host_trouble._UNREACHED_AT_FIRST:w} attempts at a host, too",
        "answered before must fail {core.host_trouble._UNREACHED_IN_A_ROW:w} times in a row",
        "in {core.reached_hosts._SLOTS * 2 * 8:b} of shared memory",
        "pauses it for {worker.host_failures._CROWDED} s at a time",
        "With more than {http.pipelined.client._MANY_ORIGINS} hosts a worker holds up to "
        "{http.pipelined.client._READY_OF_MANY:,} files of up to {core.read_ahead._MAX_HOSTS:,} hosts",
        "for {http.pipelined.client._STAY} s or four times what it took to open "
        "({http.pipelined.client._LONGEST_STAY} s at most)",
        "no more than {core.session_budget._FIRST_READS} and one in "
        "{core.session_budget._SECONDS_A_READ:w} seconds",
        "A robots.txt of more than {worker.robots._LONG:b} is parsed in a thread",
        "are kept, {worker.robots._MAX_KEPT:b} of them in a worker",
        # Shards
        "The content of more than {sinks.shards.batch._IN_MEMORY:b} is in a temporary file",
        "The part is read once, {sinks.shards.publisher.part._PIECE >> 10} kB at a time",
        "the metadata kept, of a large part at most {sinks.shards.publisher.part._IN_MEMORY:b}",
        "In a bucket each file is put whole, in parts of {sinks.shards.publisher.bucket._CHUNK:b}",
    ),
    "docs/usage.md": (
        "finished within {Config.drain_grace} s or given back",
        "may take {core.pipeline_window._DRAINS * Config.drain_grace} s.",
        "names the first {storage.verify._NAMED:,} that are missing or changed",
        "of one of more than {core.checksum.MOST_READ:b}, which is not read, only the size",
        "names, URLs and kept columns take more than {core.batch_size.MOST_OF_SHARD:b} together",
        "A server whose names take more than {core.frames.MAX_FRAME:b} in a shard",
        "more than {core.batch_size.MOST_OF_ITEM:b} in the columns to keep",
        "in the first {sources.lines._SAMPLE:b} of each file",
        "A line may have {sources.lines.LONGEST_LINE:b} in a `.txt`, in a bag and in a list for aria2, "
        "{sources.lists.rows_csv._LONGEST:b} in the other formats",
        "nested more than {sources.lists.rows_jsonl._DEEPEST} deep",
        "One of more than {core.naming._NAME_BYTES} bytes fails as `bad-name`",
        "Up to {core.column_types.MOST_COLUMNS:,}; values of several types",
        "Up to {core.column_types.MOST_COLUMNS:,} columns are kept",
        "a worker begins with {core.connection_limit.FIRST} requests in flight, "
        "with {core.connection_limit._FIRST_OF_MANY} if the source is a list over many hosts "
        "({core.connection_limit.MANY_HOSTS:w} or more), "
        "and goes on to up to {core.limits.MOST_ADAPTIVE_CONNECTIONS:,}",
        "One of many hosts gets {core.connection_limit._PER_HOST_OF_MANY} connections",
        "before that, {core.pipeline_order.REPEATS:w} files of each host",
        "fewer than {core.read_ahead._RESTING:,} files wait in all",
        "keep the rules of up to {worker.robots._MAX_ORIGINS:,} origins",
        "robots.txt is used up to {core.robots.MAX_SIZE:b}, "
        "after up to {core.robots.MAX_REDIRECTS:w} redirects",
        "for files up to {sinks.shards.publisher.bucket._CHUNK:b} at the very moment",
    ),
    "docs/report.md": (
        "(files of more than {sinks.files_writer._LONG_TO_READ >> 20} MB from before the job",
    ),
    "docs/cluster.md": (
        "slices** of `--slice-files` items [{Config.slice_files:,}]",
        "which its owner writes again every {cluster.driver.bucket_lock.BEAT} seconds",
        "it stays as it is for {cluster.driver.bucket_lock.STALE} seconds",
        "that could not write it for {cluster.driver.bucket_lock.LOST} seconds",
        "it is killed there after {2 * Config.stall_timeout} s without a sign; as above",
        "it is killed after {2 * Config.stall_timeout} s without a sign of life or work",
        "the slice runs again, up to {core.slices.MOST_CRASHES - 1:w} times",
        "the {('', '', 'second', 'third', 'fourth')[core.slices.MOST_TRIES]} time it is set aside",
        "another goes on behind the last slice, {cluster.driver.slicer_process._MOST_STARTS - 1:w} times",
        "a file that kills {core.leases.DEATHS_TO_POISON:w} is set aside as `poison`",
        "(above {sinks.shards.publisher.bucket_staging._LARGEST_COPY:b} they are read and put again)",
    ),
    "docs/diagnostics.md": (
        "no process loads gevent within {diagnostics.launch._UNLOADED} s after `--after`",
        "none uses it {diagnostics.launch._UNUSED} s after `--after`",
        "of a pipe up to {diagnostics.standard_input._KEPT:b} are kept",
        "have not reacted for {diagnostics.launch._DEAF} s and do nothing",
        "at most {('', 'once', 'twice')[diagnostics.launch._AGAIN]}, and only where no process with",
        "by a signal, every {diagnostics.set_up._INTERVAL} s",
        "has used {diagnostics.stuck._COMPUTES} s of CPU",
        "holds the hub for more than {diagnostics.verdict._HELD} delays in N requests",
        "one for each request (the first {diagnostics.agent.https_agent.timeline._REQUESTS})",
    ),
}
