#!/bin/sh
# One experiment as a SLURM array, one shard per task, then merged:
#
#   job=$(sbatch --parsable --array=1-8 experiments/shards/slurm.sh)
#   sbatch --dependency=afterok:"$job" --wrap 'difftool merge runs/noise/part-* --out runs/noise/merged'
#
# A task that was killed and requeued, or submitted again, resumes its shard; one that is finished stays as it is. Arguments of
# the script are another experiment and another folder. `trial.sh slurm` tries it on a SLURM of one node.
#SBATCH --job-name=difftool
#SBATCH --cpus-per-task=4
#SBATCH --mem=4G
#SBATCH --requeue
set -eu
experiment=${1:-experiments/noise-4k.toml}
part=${2:-runs/noise}/part-$SLURM_ARRAY_TASK_ID
if [ -e "$part/cells.csv" ]; then where=--resume; else where=--out; fi
"${DIFFTOOL:-difftool}" run "$experiment" --shard auto "$where" "$part" --threads "$SLURM_CPUS_PER_TASK" -q
