# Sourced by the tests of ranks with $dro = the program: skips where there is no mpirun, goes to a temporary folder.
command -v mpirun >/dev/null 2>&1 || { echo "skipped: there is no mpirun (openmpi-bin)"; exit 77; }
[ -e "$(dirname "$dro")/libdro_mpi.so" ] || { echo "skipped: libdro_mpi.so is not built (libopenmpi-dev)"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
export ASAN_OPTIONS=detect_leaks=0 # MPI's own
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

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

# until_file FILE: it is there and not empty; 30 s at most.
until_file() {
    tries=0
    until [ -s "$1" ] || [ $tries -gt 300 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
}

# children PID: its processes, in the order in which they were started.
children() {
    cat "/proc/$1/task/$1/children" 2>/dev/null | tr ' ' '\n'
}

# gone PID: it ends within 10 s; perhaps nobody has asked for its exit status yet.
gone() {
    tries=0
    while [ $tries -lt 100 ]; do
        case $(cut -d' ' -f3 "/proc/$1/stat" 2>/dev/null) in '' | Z) return 0 ;; esac
        sleep 0.1
        tries=$((tries + 1))
    done
    return 1
}

# ---- two machines: network namespaces of this one, joined by a cable ----

# machines: makes them, or skips the test; needs root.
machines() {
    space0=drom0-$$
    space1=drom1-$$
    if ! ip netns add $space0 2>/dev/null || ! ip netns add $space1 2>/dev/null; then
        ip netns del $space0 2>/dev/null
        echo "skipped: network namespaces need root and iproute2"
        exit 77
    fi
    trap 'ip netns del $space0; ip netns del $space1; rm -rf "$work"' EXIT
    ip link add dro0 netns $space0 type veth peer name dro1 netns $space1 || fail "no cable"
    for k in 0 1; do
        ip -n drom$k-$$ addr add 10.97.0.$((k + 1))/24 dev dro$k
        ip -n drom$k-$$ link set lo up
        ip -n drom$k-$$ link set dro$k up
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
    export OMPI_MCA_plm_rsh_agent="$PWD/agent.sh" OMPI_MCA_btl=tcp,self
    export OMPI_MCA_oob_tcp_if_include=10.97.0.0/24 OMPI_MCA_btl_tcp_if_include=10.97.0.0/24
}

# on_machines COMMAND...: on two ranks, one on each. To be run in the background, its process is mpirun's.
on_machines() {
    exec ip netns exec $space0 unshare -u sh -c 'hostname machine0; exec mpirun --host 10.97.0.1,10.97.0.2 -n 2 "$@"' \
        mpirun "$@"
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
