# Sourced by the tests of ranks with $dro = the program: skips where there is no mpirun, goes to a temporary folder.
command -v mpirun >/dev/null 2>&1 || { echo "skipped: there is no mpirun (openmpi-bin)"; exit 77; }
[ -e "$(dirname "$dro")/libdro_mpi.so" ] || { echo "skipped: libdro_mpi.so is not built (libopenmpi-dev)"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
export ASAN_OPTIONS=detect_leaks=0 # MPI's own
export DRO_BUSY_DELAY=1000           # a busy machine is not what is tested
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1
# What a killed mpirun leaves behind goes with the folder, and is not another one's.
export TMPDIR="$work" OMPI_MCA_btl_vader_backing_directory="$work"

fail() {
    echo "FAILED: $*" >&2
    [ -f log ] && tail -30 log >&2
    exit 1
}

# ranks N COMMAND...: on so many ranks.
ranks() {
    n=$1
    shift
    mpirun --oversubscribe -n "$n" "$@"
}

# until_file FILE: it is there and not empty; 120 s at most.
until_file() {
    tries=0
    until [ -s "$1" ]; do
        tries=$((tries + 1))
        [ $tries -lt 1200 ] || return 1
        sleep 0.1
    done
}

# ends_within PID SECONDS: it ends so soon, with the exit status $status. A busy machine gets more time: ten times
# what mpirun needs to start nothing, which is 0.3 s on a free one.
ends_within() {
    began=$(date +%s%N)
    wait "$1"
    status=$?
    took=$((($(date +%s%N) - began) / 1000000))
    began=$(date +%s%N)
    env -i PATH="$PATH" TMPDIR="$work" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        mpirun --oversubscribe -n 2 true
    allowed=$((1000 * $2 + ($(date +%s%N) - began) / 100000))
    [ $took -le $allowed ] || fail "it ended after $took ms; expected $allowed ms at most"
}

# children PID: its processes, in the order in which they were started.
children() {
    cat "/proc/$1/task/$1/children" 2>/dev/null | tr ' ' '\n'
}

# has_ended PID: perhaps nobody has asked for its exit status yet.
has_ended() {
    [ -n "$1" ] || return 0
    case $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -c 1) in '' | Z) return 0 ;; esac
    return 1
}

# gone PID: it ends within 30 s.
gone() {
    tries=0
    until has_ended "$1"; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || return 1
        sleep 0.1
    done
}

# ---- two machines: network namespaces of this one, joined by a cable ----

# remove_machine NAME: with all that runs on it.
remove_machine() {
    for process in $(ip netns pids "$1" 2>/dev/null); do
        kill -KILL "$process" 2>/dev/null
    done
    ip netns del "$1" 2>/dev/null
}

skip() {
    echo "skipped: $*"
    exit 77
}

# machines: makes them, or skips the test; needs root. Removes those of a test that was killed.
machines() {
    for tool in ip unshare hostname bash; do
        command -v $tool >/dev/null 2>&1 || skip "two machines need the program $tool"
    done
    for name in $(ip netns list 2>/dev/null | sed -n 's/^\(drom[01]-[0-9]*\).*/\1/p'); do
        [ -e "/proc/${name#*-}" ] || remove_machine "$name"
    done
    space0=drom0-$$
    space1=drom1-$$
    trap 'remove_machine $space0; remove_machine $space1; rm -rf "$work"' EXIT
    for k in 0 1; do
        why=$(ip netns add drom$k-$$ 2>&1) || skip "a network namespace cannot be made (as root?): $why"
        why=$(ip netns exec drom$k-$$ unshare -u hostname machine$k 2>&1) ||
            skip "a network namespace cannot be entered (as root?): $why"
    done
    why=$(ip link add dro0 netns $space0 type veth peer name dro1 netns $space1 2>&1) ||
        skip "network namespaces cannot be joined (veth): $why"
    for k in 0 1; do
        ip -n drom$k-$$ addr add 10.97.0.$((k + 1))/24 dev dro$k &&
            ip -n drom$k-$$ link set lo up &&
            ip -n drom$k-$$ link set dro$k up || fail "machine $k has no address"
    done
    seen
    cat >agent.sh <<END
#!/bin/sh
shift
exec ip netns exec $space1 unshare -u sh -c "hostname machine1; \$*"
END
    chmod +x agent.sh
    # mpirun must notice by itself that a machine is gone: docs/scaling.md
    export OMPI_MCA_oob_tcp_keepalive_time=1 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3
    export OMPI_MCA_oob_tcp_retry_delay=1 # its daemon tries ten times to connect, not once
    export OMPI_MCA_plm_rsh_agent="$PWD/agent.sh" OMPI_MCA_btl=tcp,self
    export OMPI_MCA_oob_tcp_if_include=10.97.0.0/24 OMPI_MCA_btl_tcp_if_include=10.97.0.0/24
}

# on_machines COMMAND...: on two ranks, one on each. To be run in the background, its process is mpirun's.
on_machines() {
    exec ip netns exec $space0 unshare -u sh -c 'hostname machine0; exec mpirun --host 10.97.0.1,10.97.0.2 -n 2 "$@"' \
        mpirun "$@"
}

# on_machines_until FILE COMMAND...: on machines in the background, as process $starter, until FILE is there or it ends.
# Where Open MPI does not start the program, which then has printed nothing, it is asked again, twice.
on_machines_until() {
    file=$1
    shift
    for try in 1 2 3; do
        on_machines "$@" >log 2>&1 &
        starter=$!
        until [ -s "$file" ] || has_ended $starter; do sleep 0.02; done
        if [ -s "$file" ] || grep -q '^dro: \|^training on' log; then return; fi
        echo "mpirun has not started the program:"
        cat log
    done
}

# machine_processes NAME: those of $dro that run on it.
machine_processes() {
    for process in $(ip netns pids "$1"); do
        [ "$(readlink "/proc/$process/exe")" != "$dro" ] || echo "$process"
    done
}

# cable up or down
cable() {
    ip -n $space0 link set dro0 "$1"
    [ "$1" = down ] || seen
}

# seen: waits until the machines see each other; a refused connection is an answer.
seen() {
    tries=0
    until LC_ALL=C timeout 1 ip netns exec $space1 bash -c 'exec 3<>/dev/tcp/10.97.0.1/9' 2>&1 | grep -q refused; do
        tries=$((tries + 1))
        [ $tries -lt 50 ] || fail "the machines do not see each other"
        sleep 0.2
    done
}
