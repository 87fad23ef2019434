"""What this project is compared with: each a short program that does the job well with one library."""
