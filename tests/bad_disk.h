/* A disk whose k-th call fails. */
#ifndef DRO_BAD_DISK_H
#define DRO_BAD_DISK_H

#include "train_runs.h"

#include <errno.h>

static int calls, fails_at; /* the call that fails, counted over all kinds; 0: none */
static int how;             /* errno of it */
static char made[64];       /* the first calls: Open Write Sync Close Rename, D: sync of a folder */
static dro__disk_calls real;

static inline bool failing(char kind)
{
    if (calls < (int)sizeof made - 1)
        made[calls] = kind;
    if (++calls != fails_at)
        return false;
    errno = how;
    return true;
}

static inline int bad_open(const char *path, int flags, mode_t mode)
{
    return failing('O') ? -1 : real.open(path, flags, mode);
}

/* A disk that is full takes half of what it is given before it refuses. */
static inline ssize_t bad_write(int fd, const void *bytes, size_t size)
{
    if (!failing('W'))
        return real.write(fd, bytes, size);
    if (size > 1 && real.write(fd, bytes, size / 2) < 0)
        return -1;
    errno = how;
    return -1;
}

static inline int bad_fsync(int fd)
{
    struct stat about;
    bool folder = fstat(fd, &about) == 0 && S_ISDIR(about.st_mode);
    return failing(folder ? 'D' : 'S') ? -1 : real.fsync(fd);
}

static inline int bad_close(int fd)
{
    int status = real.close(fd);
    return failing('C') ? -1 : status;
}

static inline int bad_rename(const char *from, const char *to)
{
    return failing('R') ? -1 : real.rename(from, to);
}

static inline void break_disk(int at, int error)
{
    real = dro__disk;
    calls = 0;
    memset(made, 0, sizeof made);
    fails_at = at;
    how = error;
    dro__disk = (dro__disk_calls){bad_open, bad_write, bad_fsync, bad_close, bad_rename};
}

static inline void mend_disk(void)
{
    dro__disk = real;
}

#endif
