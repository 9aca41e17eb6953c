/* Folders of files: copied, removed, compared. Measured times are not compared, nor are files that
 * hold them in bytes. */
#define _GNU_SOURCE
#include "faults.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 1024 };

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *walk)
{
    (void)about, (void)type, (void)walk;
    return remove(path);
}

void folder_remove(const char *path)
{
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static char *slurp(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    size_t room = 1 << 16, got;
    char *bytes = file ? malloc(room + 1) : NULL;
    *size = 0;
    while (bytes && (got = fread(bytes + *size, 1, room - *size, file)) > 0)
        if ((*size += got) == room)
            bytes = realloc(bytes, (room *= 2) + 1);
    if (file)
        fclose(file);
    if (bytes)
        bytes[*size] = '\0';
    return bytes;
}

void folder_copy(const char *from, const char *to)
{
    char a[PATH], b[PATH];
    struct stat about;
    DIR *list = opendir(from);
    mkdir(to, 0777);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(a, sizeof a, "%s/%s", from, entry->d_name);
        snprintf(b, sizeof b, "%s/%s", to, entry->d_name);
        if (stat(a, &about) == 0 && S_ISDIR(about.st_mode)) {
            folder_copy(a, b);
            continue;
        }
        size_t size;
        char *bytes = slurp(a, &size);
        FILE *file = fopen(b, "wb");
        if (!bytes || !file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0)
            fprintf(stderr, "faults: cannot copy %s\n", a), exit(2);
        free(bytes);
    }
    if (list)
        closedir(list);
}

/* Times of a text become nothing. */
static void without_times(char *text)
{
    static const char *const keys[] = {"\"seconds\":", "\"wall\":", "\"examples_per_s\":"};
    for (int k = 0; k < 3; k++)
        for (char *at = text; (at = strstr(at, keys[k]));) {
            at += strlen(keys[k]);
            size_t skip = strcspn(at, ",}\n");
            memmove(at, at + skip, strlen(at + skip) + 1);
        }
}

bool file_same(const char *a, const char *b, bool text)
{
    size_t na, nb;
    char *x = slurp(a, &na), *y = slurp(b, &nb);
    if (x && y && text) {
        without_times(x);
        without_times(y);
        na = strlen(x);
        nb = strlen(y);
    }
    bool same = x && y && na == nb && memcmp(x, y, na) == 0;
    free(x);
    free(y);
    return same;
}

static bool ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* Checkpoints and event files have times in their bytes; a page of runs that were just made,
 * too. */
static bool has_times(const char *name)
{
    return ends(name, ".ckpt") || strstr(name, "tfevents") || strcmp(name, "report.html") == 0;
}

static bool same(const char *a, const char *b, const char *name)
{
    return has_times(name) || file_same(a, b, strstr(name, ".json") != NULL);
}

/* visit(path below top, name) of every file; stops when it is false. */
static bool walk(const char *top, const char *below,
                 bool (*visit)(void *, const char *, const char *), void *user)
{
    char path[PATH], inner[PATH];
    struct stat about;
    snprintf(path, sizeof path, "%s/%s", top, below);
    DIR *list = opendir(path);
    bool fine = true;
    for (struct dirent *entry; fine && list && (entry = readdir(list));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(inner, sizeof inner, "%.500s%s%.300s", below, *below ? "/" : "", entry->d_name);
        snprintf(path, sizeof path, "%.200s/%.800s", top, inner);
        if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
            fine = walk(top, inner, visit, user);
        else
            fine = visit(user, inner, entry->d_name);
    }
    if (list)
        closedir(list);
    return fine;
}

typedef struct comparison {
    const char *now, *old, *right;
    char *what;
    int size;
} comparison;

static void paths(const comparison *c, const char *below, char now[PATH], char old[PATH],
                  char right[PATH])
{
    snprintf(now, PATH, "%.200s/%.800s", c->now, below);
    snprintf(old, PATH, "%.200s/%.800s", c->old ? c->old : "/nowhere", below);
    snprintf(right, PATH, "%.200s/%.800s", c->right, below);
}

static bool is_right(void *user, const char *below, const char *name)
{
    comparison *c = user;
    char now[PATH], old[PATH], right[PATH];
    paths(c, below, now, old, right);
    if (access(right, F_OK) == 0 && same(now, right, name))
        return true;
    if (c->old && ends(name, ".tmp")) /* of a program that was killed, or crashed */
        return true;
    snprintf(c->what, (size_t)c->size, "%s", below);
    return false;
}

bool folder_same(const char *a, const char *b, bool killed, char *what, int size)
{
    comparison one = {.now = a, .old = killed ? b : NULL, .right = b, .what = what, .size = size};
    comparison other = {.now = b, .right = a, .what = what, .size = size};
    return walk(a, "", is_right, &one) && walk(b, "", is_right, &other);
}

static bool is_there(void *user, const char *below, const char *name)
{
    comparison *c = user;
    char now[PATH], old[PATH], right[PATH];
    struct stat a, b;
    (void)name;
    paths(c, below, now, old, right);
    if (stat(now, &a) == 0 && stat(right, &b) == 0 && (a.st_size > 0) == (b.st_size > 0))
        return true;
    snprintf(c->what, (size_t)c->size, "%s", below);
    return false;
}

bool folder_complete(const char *a, const char *b, char *what, int size)
{
    comparison c = {.now = b, .right = a, .what = what, .size = size};
    return walk(b, "", is_there, &c);
}

/* Files of a run are looked at once it has gone on: these grow, and are cut where they must be. */
static bool is_fine(void *user, const char *below, const char *name)
{
    comparison *c = user;
    char now[PATH], old[PATH], right[PATH];
    paths(c, below, now, old, right);
    if (has_times(name) || strcmp(name, "metrics.jsonl") == 0 || ends(name, ".tmp"))
        return true;
    if ((access(old, F_OK) == 0 && same(now, old, name)) ||
        (access(right, F_OK) == 0 && same(now, right, name)))
        return true;
    char last[PATH + 32];
    snprintf(last, sizeof last, "%.*s/last.safetensors", (int)(strlen(right) - strlen(name)),
             right);
    if (strcmp(name, "weights.safetensors") == 0 && access(last, F_OK) == 0)
        return true; /* best so far */
    snprintf(c->what, (size_t)c->size, "%s", below);
    return false;
}

bool folder_fine(const char *now, const char *old, const char *right, char *what, int size)
{
    comparison c = {now, old, right, what, size};
    return walk(now, "", is_fine, &c);
}
