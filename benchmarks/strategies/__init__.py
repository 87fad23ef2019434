"""The strategies of the talk "Downloading a Billion Files in Python", each in brief: list, fetch, write."""
