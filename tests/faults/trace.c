/* A command under ptrace, with a filter that stops it at the system calls in question only: the
 * k-th of them does not take place and returns an error. (A close does take place: Linux closes the
 * descriptor of a close that fails.) Threads and processes that it starts are followed. */
#define _GNU_SOURCE
#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

const char *const fault_names[FAULT_KINDS] = {"malloc", "onednn", "open",  "read",      "write",
                                              "fsync",  "rename", "close", "ftruncate", "mmap"};

enum { MARK = 0x64726f, SECONDS = 60, PROCESSES = 256 };

#if defined(__x86_64__)

static const struct {
    int number;
    fault_kind kind;
    int error;
} traced[] = {
    {SYS_open, FAULT_OPEN, EMFILE},        {SYS_openat, FAULT_OPEN, EMFILE},
    {SYS_read, FAULT_READ, EIO},           {SYS_pread64, FAULT_READ, EIO},
    {SYS_write, FAULT_WRITE, ENOSPC},      {SYS_pwrite64, FAULT_WRITE, ENOSPC},
    {SYS_writev, FAULT_WRITE, ENOSPC},     {SYS_fsync, FAULT_FSYNC, EIO},
    {SYS_rename, FAULT_RENAME, EIO},       {SYS_renameat, FAULT_RENAME, EIO},
    {SYS_renameat2, FAULT_RENAME, EIO},    {SYS_close, FAULT_CLOSE, EIO},
    {SYS_ftruncate, FAULT_FTRUNCATE, EIO}, {SYS_mmap, FAULT_MMAP, ENOMEM},
};
enum { TRACED = sizeof traced / sizeof traced[0] };

/* Stops at the calls of a kind, and at the shim's mark. */
static int install_filter(fault_kind kind)
{
    struct sock_filter code[2 * TRACED + 8];
    unsigned short size = 0;
    code[size++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int k = -1; k < TRACED; k++) {
        if (k >= 0 && traced[k].kind != kind)
            continue;
        unsigned number = k < 0 ? SYS_prctl : (unsigned)traced[k].number;
        code[size++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
        code[size++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    }
    code[size++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {size, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* ---- who has begun: a process does with the shim's mark, its threads with it ---- */

static pid_t begun[PROCESSES];

static bool has_begun(pid_t pid)
{
    for (int k = 0; k < PROCESSES; k++)
        if (begun[k] == pid)
            return true;
    return false;
}

static void set_begun(pid_t pid, bool yes)
{
    for (int k = 0; k < PROCESSES; k++)
        if (begun[k] == (yes ? 0 : pid)) {
            begun[k] = yes ? pid : 0;
            return;
        }
}

static pid_t closing; /* whose close is to fail once it has taken place */

static void fail_close(pid_t pid)
{
    struct user_regs_struct regs;
    closing = 0;
    if (ptrace(PTRACE_GETREGS, pid, 0, &regs) != 0)
        return;
    regs.rax = (unsigned long long)-(long long)EIO;
    ptrace(PTRACE_SETREGS, pid, 0, &regs);
}

/* Stopped before a call: lets it fail if it is the one. */
static void at_call(fault_run *run, pid_t pid)
{
    struct user_regs_struct regs;
    if (ptrace(PTRACE_GETREGS, pid, 0, &regs) != 0)
        return;
    long number = (long)regs.orig_rax;
    if (number == SYS_prctl) {
        if (regs.rdi == MARK)
            set_begun(pid, regs.rsi == 0);
        return;
    }
    if (!has_begun(pid) || (run->kind == FAULT_WRITE && regs.rdi == STDERR_FILENO))
        return;
    if (++run->calls != run->at)
        return;
    if (number == SYS_close) {
        closing = pid;
        return;
    }
    for (int k = 0; k < TRACED; k++)
        if (traced[k].number == number)
            regs.rax = (unsigned long long)-(long long)traced[k].error;
    regs.orig_rax = (unsigned long long)-1; /* none */
    ptrace(PTRACE_SETREGS, pid, 0, &regs);
}

/* Whether a crash is in oneDNN's code, or in code that it has made, which belongs to no file. */
static bool is_inside(pid_t pid)
{
    struct user_regs_struct regs;
    char path[64], line[600];
    bool inside = true;
    snprintf(path, sizeof path, "/proc/%ld/maps", (long)pid);
    FILE *maps = ptrace(PTRACE_GETREGS, pid, 0, &regs) == 0 ? fopen(path, "r") : NULL;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long long begin, end;
        if (sscanf(line, "%llx-%llx", &begin, &end) == 2 && regs.rip >= begin && regs.rip < end)
            inside = strstr(line, "libdnnl") || strstr(line, "libstdc++") || !strchr(line, '/');
    }
    if (maps)
        fclose(maps);
    return inside;
}

static void follow(fault_run *run, pid_t child)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR) {
        if (pid < 0)
            continue;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            set_begun(pid, false);
            if (pid == child && run->status != -1)
                run->status = status;
            continue;
        }
        int event = status >> 16, signal = WSTOPSIG(status);
        unsigned long other = 0;
        if (event == PTRACE_EVENT_SECCOMP)
            at_call(run, pid);
        else if (pid == closing && signal == (SIGTRAP | 0x80)) /* after the call */
            fail_close(pid);
        if (event == PTRACE_EVENT_CLONE && has_begun(pid) &&
            ptrace(PTRACE_GETEVENTMSG, pid, 0, &other) == 0)
            set_begun((pid_t)other, true);
        if (event == PTRACE_EVENT_EXEC)
            set_begun(pid, false);
        if (!event && signal == SIGSEGV)
            run->inside = is_inside(pid);
        bool pass = !event && signal != SIGSTOP && (signal & 0x7f) != SIGTRAP;
        ptrace(pid == closing ? PTRACE_SYSCALL : PTRACE_CONT, pid, 0, pass ? signal : 0);
    }
}

#else
static int install_filter(fault_kind kind)
{
    (void)kind;
    return -1;
}
static void follow(fault_run *run, pid_t child)
{
    (void)run, (void)child;
}
#endif

/* ---- one run ---- */

static void child_process(const fault_run *run, const char *count_path)
{
    char number[32];
    snprintf(number, sizeof number, "%ld", run->at);
    setenv("LD_PRELOAD", run->shim, 1);
    if (run->kind <= FAULT_ONEDNN) {
        setenv("DRO_FAULT", number, 1);
        setenv("DRO_FAULT_IN", run->kind == FAULT_ONEDNN ? "onednn" : "ours", 1);
        if (run->at == 0)
            setenv("DRO_FAULT_COUNT", count_path, 1);
    }
    int out = chdir(run->folder) == 0 ? open("../out", O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    int err = open("../err", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int in = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    if (out < 0 || err < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        _exit(120);
    close(in), close(out), close(err);
    if (run->kind > FAULT_ONEDNN &&
        (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0 || raise(SIGSTOP) != 0 || install_filter(run->kind)))
        _exit(121);
    execv(run->words[0], (char *const *)run->words);
    _exit(122);
}

static pid_t watched;
static volatile sig_atomic_t late;

static void too_late(int signal)
{
    (void)signal;
    late = 1;
    kill(-watched, SIGKILL);
}

static void set_alarm(int seconds)
{
    struct itimerval timer = {.it_value = {.tv_sec = seconds}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static long read_count(const char *path)
{
    long count = 0;
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%ld", &count) != 1)
        count = 0;
    if (file)
        fclose(file);
    remove(path);
    return count;
}

bool fault_try(fault_run *run)
{
    char count_path[64];
    struct sigaction action = {.sa_handler = too_late};
    sigaction(SIGALRM, &action, NULL);
    snprintf(count_path, sizeof count_path, "/tmp/dro-faults-%ld.count", (long)getpid());
    run->calls = 0;
    run->status = 0;
    run->inside = false;
    late = 0;
    pid_t child = watched = fork();
    if (child == 0)
        child_process(run, count_path);
    setpgid(child, child);
    set_alarm(SECONDS);
    if (run->kind > FAULT_ONEDNN) {
        long options = PTRACE_O_EXITKILL | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE |
                       PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |
                       PTRACE_O_TRACESYSGOOD;
        int status;
        if (waitpid(child, &status, 0) == child && WIFSTOPPED(status) &&
            ptrace(PTRACE_SETOPTIONS, child, 0, options) == 0) {
            ptrace(PTRACE_CONT, child, 0, 0);
            follow(run, child);
        } else {
            run->status = status;
        }
    } else {
        while (waitpid(child, &run->status, 0) < 0 && errno == EINTR)
            ;
        kill(-child, SIGKILL); /* of compare, whoever is left */
        if (run->at == 0)
            run->calls = read_count(count_path);
    }
    set_alarm(0);
    if (late)
        run->status = -1;
    return !(WIFEXITED(run->status) && WEXITSTATUS(run->status) == 121);
}
