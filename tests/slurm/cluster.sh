#!/usr/bin/env bash
# A real SLURM cluster on this machine, made for one use: nodes that are slurmd's on loopback, GPUs
# that are counted and not there. Neither cgroups nor systemd nor root; memory is accounted, not
# confined; no accounting database. Needs the Debian packages slurm-wlm and munge.
#
#   cluster.sh run DIR COMMAND...   start it, run COMMAND against it, stop it
#   cluster.sh start DIR            start it and leave it running
#   cluster.sh stop DIR             cancel its jobs and end what was started
#
# All of it lies in DIR. Its clients are those in DIR/bin, put first in PATH: they know the cluster even
# where SLURM_CONF is taken out of the environment, as Snakemake does before srun. Its size:
set -euo pipefail
NODES=${NODES:-2} CPUS=${CPUS:-2} MEM=${MEM:-24000} GPUS=${GPUS:-1}   # CPUs, MB and GPUs per node

export PATH="$PATH:/usr/sbin:/sbin"
say() { printf 'cluster.sh: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

# One file for each process: its id and when it was born, so that an id that was given to another
# process since is never taken for ours.
birth() { sed -n 's/.*) \([^Z]\)/\1/p' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
alive() { # alive NAME: print its process id, if it runs
    local id born
    read -r id born 2>/dev/null <"$DIR/run/$1.started" || return 1
    [ -n "$born" ] && [ "$(birth "$id")" = "$born" ] && echo "$id"
}
spawn() { # spawn NAME COMMAND...: run it in the background and note its id
    local name=$1
    shift
    setsid "$@" >>"$DIR/log/$name.out" 2>&1 </dev/null &
    echo "$! $(birth $!)" >"$DIR/run/$name.started"
}
await() { # await NAME COMMAND...: until COMMAND succeeds
    local name=$1 end=$((SECONDS + 20))
    shift
    until "$@" >/dev/null 2>&1; do
        alive "$name" >/dev/null || die "$name ended: $(tail -n 5 "$DIR/log/$name.out")"
        [ "$SECONDS" -lt "$end" ] || die "$name does not answer: $(tail -n 5 "$DIR/log/$name.out")"
        sleep 0.1
    done
}
free_ports() { # free_ports COUNT: the first of so many ports that nothing listens on
    local base i
    while :; do
        base=$((10000 + RANDOM % 20000)) # below those that the system gives to connections
        for ((i = 0; i < $1; i++)); do
            (exec 3<>"/dev/tcp/127.0.0.1/$((base + i))") 2>/dev/null && continue 2
        done
        echo "$base"
        return
    done
}

configure() {
    local user host port i g gres="" devices=(null zero full random urandom tty) # that all machines have
    user=$(id -un) host=$(hostname -s) port=$(free_ports $((NODES + 1)))
    [ "$GPUS" -le "${#devices[@]}" ] || die "GPUS: at most ${#devices[@]} per node"
    [ "$GPUS" = 0 ] || gres="Gres=gpu:$GPUS"
    cat >"$DIR/etc/slurm.conf" <<CONF
ClusterName=disposable
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$DIR/run/munge.sock
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation=$DIR/state
SlurmdSpoolDir=$DIR/spool/%n
SlurmctldPidFile=$DIR/run/slurmctld.pid
SlurmdPidFile=$DIR/run/slurmd-%n.pid
SlurmctldLogFile=$DIR/log/slurmctld.log
SlurmdLogFile=$DIR/log/slurmd-%n.log
AccountingStorageType=accounting_storage/none
# no cgroups
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
MpiDefault=none
SwitchType=switch/none
PropagateResourceLimits=NONE
# nodes are as large as written here, whatever the machine is
SlurmdParameters=config_overrides
ReturnToService=2
# CPUs, memory and GPUs are taken and given back
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
# jobs start at once, and are remembered for as long as the cluster lives
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=2
MinJobAge=60000
CONF
    echo "AutoDetect=off" >"$DIR/etc/gres.conf"
    for ((i = 1; i <= NODES; i++)); do
        echo "NodeName=node$i NodeAddr=127.0.0.1 NodeHostname=$host Port=$((port + i)) CPUs=$CPUS RealMemory=$MEM $gres" >>"$DIR/etc/slurm.conf"
        for ((g = 0; g < GPUS; g++)); do
            echo "NodeName=node$i Name=gpu File=/dev/${devices[g]}" >>"$DIR/etc/gres.conf"
        done
    done
    cat >>"$DIR/etc/slurm.conf" <<CONF
PartitionName=cpu Nodes=ALL Default=YES
PartitionName=gpu Nodes=ALL
CONF
    printf 'CgroupPlugin=autodetect\nConstrainCores=no\nConstrainRAMSpace=no\n' >"$DIR/etc/cgroup.conf"
}
wrap() { # the clients of DIR/bin
    local client
    for client in srun sbatch squeue scancel sinfo scontrol sacct; do
        printf '#!/bin/sh\nSLURM_CONF=%q exec %q "$@"\n' "$SLURM_CONF" "$(type -P $client)" >"$DIR/bin/$client"
        chmod 755 "$DIR/bin/$client"
    done
}
ready() { # every node answers
    local states
    states=$(sinfo -h -N -o %t) && [ -n "$states" ] && ! grep -qv idle <<<"$states"
}

start() {
    local program i munge=$DIR/run/munge.sock
    for program in munged slurmctld slurmd sbatch; do
        command -v "$program" >/dev/null || die "no $program here: install slurm-wlm and munge"
    done
    case $DIR in *[[:space:]]*) die "SLURM's configuration takes no blanks in a path: $DIR" ;; esac
    [ "${#DIR}" -le 80 ] || die "too long a path for a socket (80 characters at most): $DIR"
    [ ! -e "$DIR/etc" ] || die "there was a cluster here: $DIR"
    mkdir -p "$DIR"/{bin,etc,run,log,spool,state}
    chmod 755 "$DIR" "$DIR"/{etc,run,log}
    configure
    wrap
    (umask 077 && head -c 1024 /dev/urandom >"$DIR/etc/munge.key")
    trap halt EXIT # what does not come up whole leaves nothing running
    spawn munged munged --foreground --force --key-file="$DIR/etc/munge.key" --socket="$munge" \
        --pid-file="$DIR/run/munged.pid" --log-file="$DIR/log/munged.log" --seed-file="$DIR/run/munged.seed"
    await munged munge -n --socket="$munge"
    spawn slurmctld slurmctld -D -f "$SLURM_CONF"
    for ((i = 1; i <= NODES; i++)); do spawn "slurmd-node$i" slurmd -D -N "node$i" -f "$SLURM_CONF"; done
    await slurmctld ready
    trap - EXIT
    say "$NODES nodes are up. To use them: export PATH=$DIR/bin:\$PATH"
}

end() { # end NAME...: ask, wait, insist
    local name id until=$((SECONDS + 10))
    for name in "$@"; do if id=$(alive "$name"); then kill "$id" || true; fi; done
    for name in "$@"; do
        while alive "$name" >/dev/null && [ "$SECONDS" -lt "$until" ]; do sleep 0.05; done
        if id=$(alive "$name"); then kill -KILL "$id" || true; fi
    done
}
halt() { # the nodes and the controller, then what they talk through
    local daemons
    daemons=$(cd "$DIR/run" && ls | sed -n 's/^\(slurm.*\)\.started$/\1/p')
    # shellcheck disable=SC2086
    end $daemons
    end munged
}
stop() {
    local i
    timeout 5 scancel --user "$(id -un)" 2>/dev/null || true
    for ((i = 0; i < 400; i++)); do
        [ -n "$(timeout 5 squeue -h -t running,completing 2>/dev/null)" ] || break
        sleep 0.1
    done
    halt
    say "stopped"
}

[ $# -ge 2 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
action=$1 DIR=$(realpath -m -- "$2")
shift 2
export SLURM_CONF="$DIR/etc/slurm.conf"
case $action in
    start) start ;;
    stop) stop ;;
    run)
        start
        trap stop EXIT
        PATH="$DIR/bin:$PATH" "$@"
        ;;
    *) die "start, stop or run, not $action" ;;
esac
