#!/bin/sh
# Epilog= of slurm.conf, which SLURM runs as root on each node when a job has ended, however that was: the verdict goes to the
# system log, also of a job whose script was killed with it. Must exit 0: SLURM drains a node whose epilog fails.
runs=${SLURM_JOB_WORK_DIR:-/nonexistent}/stormlog-runs/job-$SLURM_JOB_ID
[ -d "$runs" ] || exit 0
# As the job's user: that user owns the runs and may finish them, and root must not follow what is in them.
setpriv --reuid="$SLURM_JOB_UID" --regid="${SLURM_JOB_GID:-$SLURM_JOB_UID}" --clear-groups \
    stormlog oom show --last "$runs" 2>&1 | logger -t "stormlog[job $SLURM_JOB_ID]" 2>/dev/null
exit 0
