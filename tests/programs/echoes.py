"""Standard streams and arguments are the program's own."""

import sys

sys.stdout.write(sys.stdin.read().upper())
sys.stderr.write("complaint\n")
sys.exit(len(sys.argv) - 1)
