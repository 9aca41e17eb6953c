/* Preloaded into a program: its k-th allocation fails.
 *
 * DRO_FAULT=K fails the K-th malloc, calloc, realloc, aligned_alloc, posix_memalign or memalign
 * after the program's libraries are loaded; DRO_FAULT_IN=onednn counts those of oneDNN (and of the
 * C++ and OpenMP libraries, which only oneDNN uses here), otherwise all others count.
 * DRO_FAULT_COUNT=FILE: how many there were is written there at the end. DRO_FAULT_TRACE=1: the
 * failing call's stack goes to stderr. A crash with oneDNN on the stack becomes exit status 123.
 * The call that marks the beginning is one that no kernel knows: tests/faults/faults.c sees it and
 * begins to count system calls. With DRO_COVERAGE the same call, with 1, marks the end of main():
 * the program then writes the branches that it has taken. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { RANGES = 16, MARK = 0x64726f, INSIDE = 123 }; /* MARK: "dro" */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *pointer, size_t size);
void *__libc_memalign(size_t unit, size_t size);

static struct range {
    uintptr_t begin, end;
} theirs[RANGES];
static int ranges;
static bool begun, want_theirs;
static long fails_at;
static atomic_long calls;

/* The code of oneDNN and of what it stands on. */
static int note_library(struct dl_phdr_info *info, size_t size, void *unused)
{
    static const char *const names[] = {"libdnnl", "libstdc++", "libgomp"};
    (void)size;
    for (int n = 0; n < 3; n++)
        for (int k = 0; strstr(info->dlpi_name, names[n]) && k < info->dlpi_phnum; k++) {
            const ElfW(Phdr) *part = &info->dlpi_phdr[k];
            uintptr_t begin = info->dlpi_addr + part->p_vaddr;
            if (part->p_type == PT_LOAD && (part->p_flags & PF_X) && ranges < RANGES)
                theirs[ranges++] = (struct range){begin, begin + part->p_memsz};
        }
    (void)unused;
    return 0;
}

static bool is_theirs(uintptr_t from)
{
    bool inside = false;
    for (int k = 0; k < ranges; k++)
        inside = inside || (from >= theirs[k].begin && from < theirs[k].end);
    return inside;
}

/* A crash: INSIDE says that it came out of oneDNN, or of code that it has made, which belongs to no
 * file. */
static void crashed(int number, siginfo_t *info, void *context)
{
    void *frames[64];
    Dl_info about;
    int count = backtrace(frames, 64);
    for (int k = 1; k < count; k++)
        if (is_theirs((uintptr_t)frames[k]) || (k < 3 && !dladdr(frames[k], &about)))
            _exit(INSIDE);
    (void)info, (void)context;
    backtrace_symbols_fd(frames, count, STDERR_FILENO);
    signal(number, SIG_DFL);
    raise(number);
}

__attribute__((constructor)) static void begin(void)
{
    void *frame;
    backtrace(&frame, 1); /* loads what it needs */
    static char stack[1 << 16];
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    struct sigaction action = {.sa_sigaction = crashed, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGABRT, &action, NULL);
    const char *at = getenv("DRO_FAULT"), *in = getenv("DRO_FAULT_IN");
    dl_iterate_phdr(note_library, NULL);
    fails_at = at ? atol(at) : 0;
    want_theirs = in && strcmp(in, "onednn") == 0;
    prctl(MARK, 0, 0, 0, 0);
    begun = true;
}

#ifdef DRO_COVERAGE
typedef int main_function(int argc, char **argv, char **environment);
typedef int start_function(main_function *main, int argc, char **argv, void (*init)(void),
                           void (*fini)(void), void (*rtld_fini)(void), void *stack_end);

start_function __libc_start_main;
static main_function *program;

static int counted_main(int argc, char **argv, char **environment)
{
    int status = program(argc, argv, environment);
    begun = false;
    prctl(MARK, 1, 0, 0, 0);
    return status;
}

int __libc_start_main(main_function *main, int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
    start_function *start = (start_function *)dlsym(RTLD_NEXT, "__libc_start_main");
    program = main;
    return start(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}
#endif

__attribute__((destructor)) static void finish(void)
{
    const char *path = getenv("DRO_FAULT_COUNT");
    char text[32];
    begun = false;
    if (!path)
        return;
    int size = snprintf(text, sizeof text, "%ld\n", atomic_load(&calls));
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd >= 0 && write(fd, text, (size_t)size) != size)
        _exit(99);
    if (fd >= 0)
        close(fd);
}

static bool failing(const void *caller)
{
    if (!begun || is_theirs((uintptr_t)caller) != want_theirs ||
        atomic_fetch_add(&calls, 1) + 1 != fails_at)
        return false;
    if (getenv("DRO_FAULT_TRACE")) {
        void *frames[32];
        backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
    }
    errno = ENOMEM;
    return true;
}

/* The library blocks signals while oneDNN has the stack pointer (onednn.c). Our handler has a stack
 * of its own and must see what crashes there. */
int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    sigset_t less;
    if (set) {
        less = *set;
        sigdelset(&less, SIGSEGV);
        sigdelset(&less, SIGABRT);
    }
    return sigprocmask(how, set && how != SIG_UNBLOCK ? &less : set, before) == 0 ? 0 : errno;
}

#define CALLER __builtin_return_address(0)

void *malloc(size_t size)
{
    return failing(CALLER) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return failing(CALLER) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *pointer, size_t size)
{
    return failing(CALLER) ? NULL : __libc_realloc(pointer, size);
}

void *aligned_alloc(size_t unit, size_t size)
{
    return failing(CALLER) ? NULL : __libc_memalign(unit, size);
}

void *memalign(size_t unit, size_t size)
{
    return failing(CALLER) ? NULL : __libc_memalign(unit, size);
}

int posix_memalign(void **pointer, size_t unit, size_t size)
{
    void *made = failing(CALLER) ? NULL : __libc_memalign(unit, size);
    if (!made)
        return ENOMEM;
    *pointer = made;
    return 0;
}
