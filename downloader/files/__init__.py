"""The files of the tool's own: opened below a descriptor, never through a link, regular ones only, bounded.

What lies in ``DEST/.downloader``, in a scratch directory or beside published shards may have been put there
by somebody else: in a group directory, on a cluster's scratch, by an archive that was unpacked. So
everything that is opened there is opened here. What the files mean belongs to the rooms above; the files of
items are stored by ``sinks.directory``, and those that a user names on the command line are opened where
they are read. The one file that is executed, Python, is found here.
"""
