#!/usr/bin/env bash
# Pretrain ELECTRA-base with HP-Dist on A100 nodes of 8 GPUs.
#
#     DATA=/path/to/shards OUTPUT=/path/to/run sbatch -p PARTITION -A ACCOUNT slurm/base_hp_dist.sh [key=value ...]
#
# Submit it from the root of the repository. What a site decides (partition, account, nodes, time) is given to sbatch,
# what a run decides by the variables below, and key=value overrides the recipe. Before the time limit Slurm sends
# USR1; the run saves and leaves with 75, the job is put back into the queue, and its next start resumes.
# README.md beside this file has the variables and what has been tried.
#SBATCH --job-name=base_hp_dist
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -euo pipefail

EXIT_STOPPED=75 # stopped by a signal after saving

refuse() {
    echo "base_hp_dist.sh: $1" >&2
    exit 2
}

[ -n "${SLURM_JOB_ID:-}" ] || refuse "not inside a Slurm job; submit it with sbatch"
REPO=${REPO:-$SLURM_SUBMIT_DIR} # Slurm runs a copy of this script, so its own place says nothing
[ -f "$REPO/electra_ds/train.py" ] || refuse "no electra_ds/train.py in $REPO; submit from the repository or set REPO"
cd "$REPO"

[ -n "${DATA:-}" ] || refuse "set DATA to the folder of shards"
[ -n "${OUTPUT:-}" ] || refuse "set OUTPUT to the folder of the run, on a file system that all nodes see"
EVAL_DATA=${EVAL_DATA:-}
RECIPE=${RECIPE:-base_hp_dist}
DS_CONFIG=${DS_CONFIG:-ds_configs/base_a100.json}
PYTHON=${PYTHON:-$REPO/.venv/bin/python}
[ -x "$PYTHON" ] || refuse "$PYTHON is not there; run make setup or set PYTHON"

first_host=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

# An address of the first host that every node can reach. Names of nodes need not resolve, and some systems resolve a
# node's own name to loopback, which no other node could use.
find_master_address() {
    local name address
    for name in "$first_host" "$(scontrol show node "$first_host" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')"; do
        address=$(getent ahostsv4 "$name" | awk 'NR == 1 { print $1 }') || true
        case $address in
        "" | 127.*) ;;
        *) echo "$address" && return ;;
        esac
    done
    hostname -I | awk '{ print $1 }' # the batch script runs on the first host
}
MASTER_ADDR=${MASTER_ADDR:-$(find_master_address)}
MASTER_PORT=${MASTER_PORT:-$((15000 + SLURM_JOB_ID % 10000))} # below the ports that systems hand out themselves
export MASTER_ADDR MASTER_PORT
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

step=""
asked_to_stop=no
interrupted=no
# on_signal NAME: hand it to all ranks through srun; the traps below call it
# shellcheck disable=SC2329
on_signal() {
    interrupted=yes
    [ "$1" = USR1 ] && asked_to_stop=yes
    echo "base_hp_dist.sh: $1 received at $(date +%FT%T), handed on to the ranks"
    [ -z "$step" ] || kill -s "$1" "$step" 2>/dev/null || true
}
trap 'on_signal USR1' USR1
trap 'on_signal TERM' TERM

echo "base_hp_dist.sh: job $SLURM_JOB_ID start ${SLURM_RESTART_COUNT:-0} on $SLURM_JOB_NODELIST," \
    "$SLURM_NTASKS ranks, rendezvous $MASTER_ADDR:$MASTER_PORT, at $(date +%FT%T)"

# A rank that ends before the others (each leaves with 75 after a save) must not take them down at once; one that is
# gone for a minute does. srun does not inherit --cpus-per-task by itself.
srun --kill-on-bad-exit=0 --wait=60 ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} \
    "$PYTHON" electra_ds/train.py --deepspeed_config "$DS_CONFIG" --recipe "$RECIPE" \
    --data "$DATA" ${EVAL_DATA:+--eval-data "$EVAL_DATA"} --output "$OUTPUT" --resume auto "$@" &
step=$!

# A signal ends `wait` early, so wait until it returns undisturbed. 127 means that the code was already collected.
code=127
while :; do
    interrupted=no
    status=0
    wait "$step" || status=$?
    [ "$status" = 127 ] || code=$status
    [ "$interrupted" = yes ] || break
done

echo "base_hp_dist.sh: the ranks ended with $code at $(date +%FT%T)"
# Only the warning before the time limit puts the job back: after scancel (the state is RUNNING no more) or
# train.stop_after it is meant to end, and a preempted job is put back by Slurm.
if [ "$code" = "$EXIT_STOPPED" ] && [ "$asked_to_stop" = yes ] &&
    [ "$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T)" = RUNNING ]; then
    if scontrol requeue "$SLURM_JOB_ID"; then
        echo "base_hp_dist.sh: saved and put back into the queue"
        exit 0
    fi
    echo "base_hp_dist.sh: saved, but this site does not allow requeueing; submit the same command again to resume" >&2
fi
exit "$code"
