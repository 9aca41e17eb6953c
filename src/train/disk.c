/* Files that are written completely or not at all. */
#define _GNU_SOURCE
#include "train.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int real_open(const char *path, int flags, mode_t mode)
{
    return open(path, flags, mode);
}

dro__disk_calls dro__disk = {
    .open = real_open, .write = write, .fsync = fsync, .close = close, .rename = rename};

static dro_status cannot(dro_context *ctx, const char *what, const char *path)
{
    const char *cure = errno == ENOSPC || errno == EDQUOT  ? ": free some space, then resume"
                       : errno == EFBIG                    ? ": raise `ulimit -f`, then resume"
                       : errno == EACCES || errno == EROFS ? ": choose another folder"
                                                           : "";
    return dro__fail(ctx, DRO_ERR_FILE, "cannot %s %s: %s%s", what, path, strerror(errno), cure);
}

static dro_status join(dro_context *ctx, const char *folder, const char *name, char *path)
{
    if (snprintf(path, DRO__PATH_SIZE, "%s/%s", folder, name) >= DRO__PATH_SIZE)
        return dro__fail(ctx, DRO_ERR_FILE, "the path of the folder %.80s... is too long", folder);
    return DRO_OK;
}

dro_status dro__folder_make(dro_context *ctx, const char *folder, bool *made)
{
    char path[DRO__PATH_SIZE];
    struct stat about;
    if (!*folder || strlen(folder) >= sizeof path)
        return dro__fail(ctx, DRO_ERR_FILE, "the path of the folder is empty or too long");
    strcpy(path, folder);
    for (char *at = path + 1;; at++) {
        if (*at && *at != '/')
            continue;
        char end = *at;
        *at = '\0';
        *made = mkdir(path, 0777) == 0;
        if (!*made && errno != EEXIST)
            return cannot(ctx, "make the folder", path);
        *at = end;
        if (!end)
            break;
    }
    if (stat(folder, &about) != 0 || !S_ISDIR(about.st_mode))
        return dro__fail(ctx, DRO_ERR_FILE, "%s is not a folder", folder);
    return DRO_OK;
}

/* A file that was being written when a process was killed: NAME.tmp or, with numbers,
 * NAME.12-3.tmp. */
static bool is_left_over(const char *file)
{
    static const char *const ours[] = {"last.ckpt.", "weights.safetensors.", "last.safetensors.",
                                       "config.json.", "result.json."};
    for (size_t k = 0; k < sizeof ours / sizeof ours[0]; k++) {
        size_t n = strlen(ours[k]);
        if (strncmp(file, ours[k], n) != 0)
            continue;
        size_t numbers = strspn(file + n, "0123456789-");
        return strcmp(file + n + numbers, numbers ? ".tmp" : "tmp") == 0;
    }
    return false;
}

dro_status dro__folder_lock(dro_context *ctx, const char *folder, int *lock)
{
    *lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0)
        return cannot(ctx, "open the folder", folder);
    if (flock(*lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(*lock);
        *lock = -1;
        return dro__fail(ctx, DRO_ERR_FILE, "%s: another process is training there", folder);
    }
    DIR *list = opendir(folder);
    for (struct dirent *file; list && (file = readdir(list));)
        if (is_left_over(file->d_name))
            unlinkat(*lock, file->d_name, 0);
    if (list)
        closedir(list);
    return DRO_OK;
}

static dro_status write_all(dro_context *ctx, int fd, const char *path, const void *bytes,
                            size_t size)
{
    const char *at = bytes;
    while (size > 0) {
        ssize_t count = dro__disk.write(fd, at, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return cannot(ctx, "write", path);
        at += count;
        size -= (size_t)count;
    }
    return DRO_OK;
}

static dro_status sync_file(dro_context *ctx, int fd, const char *path)
{
    return dro__disk.fsync(fd) == 0 ? DRO_OK : cannot(ctx, "write", path);
}

static dro_status sync_folder(dro_context *ctx, const char *folder)
{
    int fd = dro__disk.open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return cannot(ctx, "open the folder", folder);
    bool fine = dro__disk.fsync(fd) == 0 || errno == EINVAL; /* EINVAL: not on this system */
    dro_status status = fine ? DRO_OK : cannot(ctx, "write the folder", folder);
    dro__disk.close(fd);
    return status;
}

dro_status dro__file_begin(dro_context *ctx, const char *folder, const char *name, const char *keep,
                           dro__new_file *f)
{
    *f = (dro__new_file){.ctx = ctx, .folder = folder, .keep = keep != NULL};
    DRO_TRY(join(ctx, folder, name, f->path));
    DRO_TRY(join(ctx, folder, keep ? keep : name, f->kept));
    snprintf(f->temporary, sizeof f->temporary, "%s.tmp", f->path);
    f->fd = dro__disk.open(f->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return f->fd < 0 ? cannot(ctx, "create", f->temporary) : DRO_OK;
}

dro_status dro__file_write(dro__new_file *f, const void *bytes, size_t size)
{
    return write_all(f->ctx, f->fd, f->temporary, bytes, size);
}

dro_status dro__file_end(dro__new_file *f, dro_status status)
{
    if (status == DRO_OK)
        status = sync_file(f->ctx, f->fd, f->temporary);
    if (dro__disk.close(f->fd) != 0 && status == DRO_OK)
        status = cannot(f->ctx, "write", f->temporary);
    if (status == DRO_OK && f->keep && dro__disk.rename(f->path, f->kept) != 0 && errno != ENOENT)
        status = cannot(f->ctx, "rename", f->path);
    if (status == DRO_OK && dro__disk.rename(f->temporary, f->path) != 0)
        status = cannot(f->ctx, "replace", f->path);
    if (status != DRO_OK) {
        unlink(f->temporary);
        return status;
    }
    return sync_folder(f->ctx, f->folder);
}

dro_status dro__file_replace(dro_context *ctx, const char *folder, const char *name,
                             const void *bytes, size_t size)
{
    dro__new_file f;
    DRO_TRY(dro__file_begin(ctx, folder, name, NULL, &f));
    return dro__file_end(&f, dro__file_write(&f, bytes, size));
}

dro_status dro__file_append(dro_context *ctx, const char *folder, const char *name, uint64_t offset,
                            const void *bytes, size_t size)
{
    char path[DRO__PATH_SIZE];
    struct stat about;
    DRO_TRY(join(ctx, folder, name, path));
    int fd = dro__disk.open(path, O_WRONLY | (offset ? 0 : O_CREAT) | O_CLOEXEC, 0666);
    if (fd < 0 && offset && errno == ENOENT)
        return dro__fail(ctx, DRO_ERR_FORMAT, "%s is gone", path);
    if (fd < 0)
        return cannot(ctx, "open", path);
    dro_status status = DRO_OK;
    if (fstat(fd, &about) != 0 || (uint64_t)about.st_size < offset)
        status =
            dro__fail(ctx, DRO_ERR_FORMAT,
                      "%s is shorter than recorded in the checkpoint (%llu bytes): it was changed",
                      path, (unsigned long long)offset);
    else if (ftruncate(fd, (off_t)offset) != 0 || lseek(fd, (off_t)offset, SEEK_SET) < 0)
        status = cannot(ctx, "write", path);
    else if (size)
        status = write_all(ctx, fd, path, bytes, size);
    if (size && status == DRO_OK)
        status = sync_file(ctx, fd, path);
    if (dro__disk.close(fd) != 0 && status == DRO_OK)
        status = cannot(ctx, "write", path);
    return status;
}

bool dro__file_at(const char *folder, const char *name, bool *plain)
{
    char path[DRO__PATH_SIZE];
    struct stat about;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= DRO__PATH_SIZE ||
        lstat(path, &about) != 0)
        return false;
    if (plain)
        *plain = S_ISREG(about.st_mode);
    return true;
}

dro_status dro__file_read(dro_context *ctx, const char *folder, const char *name, char **bytes,
                          size_t *size)
{
    char path[DRO__PATH_SIZE];
    struct stat about;
    *bytes = NULL;
    *size = 0;
    DRO_TRY(join(ctx, folder, name, path));
    int fd =
        open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* do not wait for the writer of a pipe */
    if (fd < 0 && errno == ENOTDIR)
        return dro__fail(ctx, DRO_ERR_FILE, "%s is not a folder: choose another one", folder);
    if (fd < 0)
        return errno == ENOENT ? DRO_OK : cannot(ctx, "open", path);
    dro_status status = fstat(fd, &about) == 0 ? DRO_OK : cannot(ctx, "read", path);
    if (status == DRO_OK && !S_ISREG(about.st_mode))
        status = dro__fail(ctx, DRO_ERR_FORMAT, "%s is not a regular file: expected one", path);
    size_t all = status == DRO_OK ? (size_t)about.st_size : 0, done = 0;
    char *memory = dro__alloc(all + 1, 1);
    if (!memory)
        status = dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the %zu bytes of %s", all, path);
    while (status == DRO_OK && done < all) {
        ssize_t count = read(fd, memory + done, all - done);
        if (count < 0 && errno != EINTR)
            status = cannot(ctx, "read", path);
        else if (count == 0)
            break;
        done += count > 0 ? (size_t)count : 0;
    }
    close(fd);
    if (status != DRO_OK) {
        dro__free(memory);
        return status;
    }
    *bytes = memory;
    *size = done;
    return DRO_OK;
}
