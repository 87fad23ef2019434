"""The programs that this project is compared with: each is short and does the job well with one library."""
