/* What the files of the fault campaign share. */
#ifndef DRO_FAULTS_H
#define DRO_FAULTS_H

#include <stdbool.h>

typedef enum fault_kind {
    FAULT_MALLOC, /* by the shim */
    FAULT_ONEDNN, /* the same of oneDNN's own */
    FAULT_OPEN,   /* and the rest: system calls */
    FAULT_READ,
    FAULT_WRITE,
    FAULT_FSYNC,
    FAULT_RENAME,
    FAULT_CLOSE,
    FAULT_FTRUNCATE,
    FAULT_MMAP,
    FAULT_KINDS
} fault_kind;

extern const char *const fault_names[FAULT_KINDS];

typedef struct fault_run {
    const char *const *words; /* of the command, NULL terminated */
    const char *folder;       /* where it runs; its output goes to ../out and ../err */
    const char *shim;         /* to preload */
    fault_kind kind;
    long at; /* the call that fails, 0: none; then calls says how many there were */
    long calls;
    int status;  /* of waitpid(); -1: it did not end in time */
    bool inside; /* a crash that was traced was in oneDNN */
} fault_run;

/* trace.c: runs a command whose k-th call fails. False: system calls cannot be traced here. */
bool fault_try(fault_run *run);

/* folders.c */
void folder_remove(const char *path);
void folder_copy(const char *from, const char *to);
/* Whether all files of one are in the other and the same, but for times; what: the first that is
 * not. killed: a has been in the hands of a program that did not end by itself, so that it may hold
 * a temporary file more. */
bool folder_same(const char *a, const char *b, bool killed, char *what, int size);
/* Whether a has all files of b; what: the first that it has not. */
bool folder_complete(const char *a, const char *b, char *what, int size);
/* Every file of `now` is one of `old` or of `right`, unless it is a file of a run that goes on. */
bool folder_fine(const char *now, const char *old, const char *right, char *what, int size);
bool file_same(const char *a, const char *b, bool text);

#endif
