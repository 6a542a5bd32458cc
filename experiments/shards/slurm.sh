#!/bin/sh
# One experiment as a SLURM array, one shard per task, then merged:
#
#   job=$(sbatch --parsable --array=1-8 experiments/shards/slurm.sh)
#   sbatch --dependency=afterok:"$job" --wrap 'difftool merge runs/noise/part-* --out runs/noise/merged'
#
# A task that was killed and requeued resumes its shard.
#SBATCH --job-name=difftool
#SBATCH --cpus-per-task=4
#SBATCH --mem=4G
#SBATCH --requeue
set -eu
part=runs/noise/part-$SLURM_ARRAY_TASK_ID
if [ -e "$part/cells.csv" ]; then where=--resume; else where=--out; fi
difftool run experiments/noise-4k.toml --shard auto "$where" "$part" --threads "$SLURM_CPUS_PER_TASK" -q
