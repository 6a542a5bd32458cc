#!/bin/bash
# The two cluster scripts for real: an experiment in shards that are killed in the middle, submitted again and merged, to the
# bytes of one run in one process.
#
#   experiments/shards/trial.sh slurm        # a SLURM of one node on this machine; needs root and, on Debian or Ubuntu,
#                                            #   apt-get install slurm-wlm munge
#   experiments/shards/trial.sh kubernetes   # no Kubernetes: a stand-in that runs the manifest's command as its pods would
#
# DIFFTOOL is the binary, target/release/difftool unless it is set. Takes a minute or two.
set -euo pipefail
cd "$(dirname "$0")/../.."
DIFFTOOL=$(realpath "${DIFFTOOL:-target/release/difftool}")
export DIFFTOOL
here=$PWD shards=4 work=$(mktemp -d)
trap 'jobs -p | xargs -r kill 2>/dev/null; wait; rm -rf "$work"' EXIT

cat > "$work/trial.toml" <<'TOML'
show = "needle"
models = ["transformer", "diff"]
measures = ["answer", "outliers"]

[grid.needle]
ctx_tok = [1024]
settings = [[2, 2]]
depths_pct = [0.0, 50.0, 100.0]
samples = 8
heldout_samples = 0
seed = 7
TOML

# Cells that all shards have finished by now.
finished() { cat "$work"/runs/part-*/cells.csv 2>/dev/null | grep -vc '^cell,' || true; }

# Waits until so many cells are finished.
until_finished() { while [ "$(finished)" -lt "$1" ]; do sleep 0.2; done; }

merged_is_whole() {
    "$DIFFTOOL" merge -q --out "$work/merged" "$work"/runs/part-* > /dev/null
    for file in results.csv pooled.bin experiment.toml; do cmp "$work/whole/$file" "$work/merged/$file"; done
    echo "merged: $(wc -l < "$work/merged/results.csv") lines of results.csv, the bytes of one run"
}

# A controller and a daemon on loopback, with a munge of their own.
start_slurm() {
    local name cpus
    name=$(hostname -s) cpus=$(nproc)
    mkdir "$work"/{state,spool,munge}
    head -c 1024 /dev/urandom > "$work/munge/key"
    chmod 400 "$work/munge/key"
    chown -R munge "$work/munge"
    chmod 755 "$work" "$work/munge"
    setpriv --reuid munge --clear-groups munged --foreground --key-file="$work/munge/key" --socket="$work/munge/socket" \
        --pid-file="$work/munge/pid" --seed-file="$work/munge/seed" > "$work/munge.log" 2>&1 &
    export SLURM_CONF=$work/slurm.conf
    cat > "$SLURM_CONF" <<CONF
ClusterName=trial
SlurmctldHost=$name(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CredType=cred/munge
SlurmctldPort=26817
SlurmdPort=26818
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=10
SchedulerParameters=sched_interval=1,bf_interval=2,batch_sched_delay=0
NodeName=$name NodeAddr=127.0.0.1 CPUs=$cpus State=UNKNOWN
PartitionName=trial Nodes=ALL Default=YES State=UP
CONF
    touch "$work/cgroup.conf"
    slurmctld -D > "$work/slurmctld.log" 2>&1 &
    slurmd -D > "$work/slurmd.log" 2>&1 &
    for _ in $(seq 150); do
        if sinfo -h -o %t 2>/dev/null | grep -qx idle; then return; fi
        sleep 0.2
    done
    tail "$work"/*.log
    return 1
}

submit() {
    sbatch --parsable --array="1-$shards" --cpus-per-task=1 --mem=0 --output="$work/task-%A-%a.log" experiments/shards/slurm.sh "$work/trial.toml" "$work/runs"
}

# No task of the job is there any more.
until_gone() { while [ -n "$(squeue -h -j "$1" 2>/dev/null)" ]; do sleep 0.2; done; }

slurm() {
    start_slurm
    echo "slurm: $(sinfo --version), $(sinfo -h -o '%D node, %c processors')"
    local job signal
    for signal in KILL TERM; do
        job=$(submit)
        until_finished $(($(finished) + 3))
        scancel --state=PENDING "$job" # what has not begun
        scancel --signal="$signal" --full "$job"
        until_gone "$job"
        echo "job $job: SIG$signal after $(finished) of $cells cells"
        [ "$(finished)" -lt "$cells" ]
    done
    job=$(submit)
    until_gone "$job"
    echo "job $job: $(finished) of $cells cells"
    grep -H . "$work/task-$job"-*.log || true
}

# What the manifest has its pods run, with the volumes where they are here.
kubernetes() {
    awk '/- \|$/ { on = 1; next } /env:$/ { on = 0 } on' experiments/shards/kubernetes.yaml |
        sed "s|/runs/noise|$work/runs|g; s|/experiments/noise-4k.toml|$work/trial.toml|; s|difftool run|$DIFFTOOL run|" > "$work/pod.sh"
    local index signal pods
    for signal in KILL TERM none; do
        pods=()
        for index in $(seq 0 $((shards - 1))); do
            JOB_COMPLETION_INDEX=$index JOB_COMPLETIONS=$shards sh "$work/pod.sh" 2>> "$work/pods.log" &
            pods+=($!)
        done
        if [ "$signal" = none ]; then
            wait "${pods[@]}"
        else
            until_finished $(($(finished) + 3))
            kill -s "$signal" "${pods[@]}"
            wait "${pods[@]}" || true
        fi
        echo "pods, SIG$signal: $(finished) of $cells cells"
    done
}

mkdir "$work/runs"
"$DIFFTOOL" run "$work/trial.toml" --out "$work/whole" -q > /dev/null
cells=$(grep -vc '^cell,' "$work/whole/cells.csv")
case ${1:-} in
    slurm) slurm ;;
    kubernetes) kubernetes ;;
    *) sed -n '2,10s/^# \?//p' "$here/experiments/shards/trial.sh"; exit 2 ;;
esac
merged_is_whole
