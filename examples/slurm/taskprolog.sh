#!/bin/sh
# TaskProlog= of slurm.conf: each task of each step records into a directory of its job. SLURM takes the lines
# that begin with `export` into the task's environment. A directory that the user chose stays.
if [ -z "${STORMLOG_DIR:-}" ]; then
    echo "export STORMLOG_DIR=${SLURM_SUBMIT_DIR:-$PWD}/stormlog-runs/job-$SLURM_JOB_ID"
fi
