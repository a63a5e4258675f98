#!/bin/bash
# Answer a folder of files on a cluster with Slurm: sbatch ray-slurm.sh RUN TEXTS ANSWERS
#
# tidybert[ray] is in VENV on a disk that every node sees, as are RUN, TEXTS and ANSWERS.
# Slurm may stop the job and begin it again: the same command goes on with what is not done.
#SBATCH --job-name=tidybert
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --time=08:00:00
#SBATCH --requeue
set -euo pipefail

run=$1 texts=$2 answers=$3
# shellcheck source=/dev/null
source "${VENV:-$HOME/venv}/bin/activate"

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
port=6379

srun --nodes=1 --ntasks=1 --nodelist="$head" \
    ray start --head --port="$port" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
sleep 20
if (( ${#nodes[@]} > 1 )); then
    srun --nodes=$(( ${#nodes[@]} - 1 )) --ntasks=$(( ${#nodes[@]} - 1 )) --exclude="$head" \
        ray start --address="$head:$port" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
    sleep 20
fi

tidybert predict "$run" "$texts" --cluster "$head:$port" --out "$answers" --on-error continue
