#!/bin/sh
# Runs the demonstration of the program built in build/. Arguments go to `dro demo`.
set -eu
cd "$(dirname "$0")/.."
exec build/dro demo "$@"
