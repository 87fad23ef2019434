"""The strategies of the talk "Downloading a Billion Files in Python", each briefly: list, fetch, write."""
