/* images:DIR: a folder of images for each class; or DIR/train and DIR/test with a folder for each
 * class in both, also called training and testing, in upper or lower case. DIR/val (or valid, or
 * validation) is the holdout, or the test set where there is no other; with holdout=SHARE it is
 * left out.
 *
 * Classes are the folders in the order of their names, images the files in them in the order of
 * theirs, so that records do not depend on the file system. The images in folders inside a class
 * belong to it too and come after its own. Links are followed. Hidden files and folders, and
 * __MACOSX, are passed over; so are other files, images beside the folders of the classes, and
 * folders beside train and test, which a remark counts. DIR/train counts as a split only if there
 * are folders in it, and so does DIR/test: a class may be called train, and ImageNet's test has no
 * classes. */
#include "image_files.h"
#include "image.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* The names in a folder that are folders, or image files; sorted. Also other files that the user
 * may miss: next to folders the images, next to images all files. */
typedef struct listing {
    char **names;
    size_t count, capacity;
    int64_t missed;
    char first[256]; /* of the missed, in the order of names */
} listing;

/* Of all folders of classes, for the remarks; the data's state while it is opened. */
typedef struct tally {
    int64_t inside, beside;
    char first_inside[512], first_beside[512];
} tally;

static void listing_free(listing *l)
{
    for (size_t k = 0; k < l->count; k++)
        dro__free(l->names[k]);
    dro__free(l->names);
    *l = (listing){0};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_image(const char *name)
{
    static const char *const ends[] = {".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".pnm"};
    const char *dot = strrchr(name, '.');
    for (size_t k = 0; dot && k < sizeof ends / sizeof ends[0]; k++)
        if (strcasecmp(dot, ends[k]) == 0)
            return true;
    return false;
}

/* Asks the file system only if the folder entry has no type. A link that leads nowhere, or in a
 * circle, is an error: otherwise examples would be missing silently. */
static dro_status is_kind(dro_context *ctx, const char *path, DIR *dir, const struct dirent *entry,
                          bool folder, bool *is)
{
    struct stat about;
    *is = (entry->d_type == DT_DIR) == folder;
    if (entry->d_type == DT_DIR || entry->d_type == DT_REG)
        return DRO_OK;
    if (fstatat(dirfd(dir), entry->d_name, &about, 0) != 0)
        return dro__fail(ctx, DRO_ERR_FILE, "%s/%s: %s", dro__path_tail(path), entry->d_name,
                         strerror(errno));
    *is = folder ? S_ISDIR(about.st_mode) : S_ISREG(about.st_mode);
    return DRO_OK;
}

static dro_status add_name(dro_context *ctx, listing *l, const char *name)
{
    size_t length = strlen(name) + 1;
    DRO_TRY(dro__grow(ctx, (void **)&l->names, &l->capacity, l->count + 1, sizeof *l->names));
    char *copy = dro__alloc(length, 1);
    if (!copy)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the names of files");
    memcpy(copy, name, length);
    l->names[l->count++] = copy;
    return DRO_OK;
}

/* Whether a name that was not listed is a file that the user may miss. */
static dro_status miss(dro_context *ctx, const char *path, DIR *dir, const struct dirent *entry,
                       bool folders, listing *l)
{
    bool folder = false;
    if (folders && !is_image(entry->d_name))
        return DRO_OK;
    DRO_TRY(is_kind(ctx, path, dir, entry, true, &folder));
    if (folder)
        return DRO_OK;
    if (l->missed++ == 0 || strcmp(entry->d_name, l->first) < 0)
        snprintf(l->first, sizeof l->first, "%s", entry->d_name);
    return DRO_OK;
}

static dro_status list_entries(dro_context *ctx, const char *path, DIR *dir, bool folders,
                               listing *l)
{
    const struct dirent *entry;
    while (errno = 0, (entry = readdir(dir))) {
        bool is = folders || is_image(entry->d_name);
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "__MACOSX") == 0)
            continue;
        if (is)
            DRO_TRY(is_kind(ctx, path, dir, entry, folders, &is));
        DRO_TRY(is ? add_name(ctx, l, entry->d_name) : miss(ctx, path, dir, entry, folders, l));
    }
    if (errno)
        return dro__fail(ctx, DRO_ERR_FILE, "%s: cannot read the folder: %s", dro__path_tail(path),
                         strerror(errno));
    return DRO_OK;
}

/* The folders, or the images, in a folder. */
static dro_status list(dro_context *ctx, const char *path, bool folders, listing *l)
{
    DIR *dir = opendir(path);
    if (!dir)
        return dro__fail(ctx, DRO_ERR_FILE, "%s: cannot open the folder: %s", dro__path_tail(path),
                         strerror(errno));
    dro_status status = list_entries(ctx, path, dir, folders, l);
    closedir(dir);
    if (status != DRO_OK)
        listing_free(l);
    else if (l->count)
        qsort(l->names, l->count, sizeof *l->names, by_name);
    return status;
}

static void count_missed(const listing *l, const char *path, int64_t *count, char first[512])
{
    if (l->missed && *count == 0)
        snprintf(first, 512, "%s/%s", dro__path_tail(path), l->first);
    *count += l->missed;
}

/* ---- classes ---- */

static int32_t class_of(const dro_data *d, const char *name)
{
    for (int32_t low = 0, high = d->classes - 1; low <= high;) {
        int32_t middle = low + (high - low) / 2, order = strcmp(d->class_names[middle], name);
        if (order == 0)
            return middle;
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle - 1;
    }
    return -1;
}

/* A folder and its parents. */
typedef struct folder {
    const struct folder *above;
    const char *path;
    dev_t device;
    ino_t inode;
} folder;

static dro_status enter(dro_context *ctx, folder *f)
{
    struct stat about;
    if (stat(f->path, &about) != 0)
        return dro__fail(ctx, DRO_ERR_FILE, "%s: %s", dro__path_tail(f->path), strerror(errno));
    f->device = about.st_dev;
    f->inode = about.st_ino;
    for (const folder *a = f->above; a; a = a->above)
        if (a->device == f->device && a->inode == f->inode)
            return dro__fail(ctx, DRO_ERR_FILE,
                             "%s: a symbolic link to a folder above it: expected no cycles",
                             dro__path_tail(f->path));
    return DRO_OK;
}

static dro_status add_folder(dro_data *d, folder *f, dro__files *files, int32_t label)
{
    listing images = {0}, folders = {0};
    DRO_TRY(enter(d->ctx, f));
    dro_status status = list(d->ctx, f->path, false, &images);
    files->dir = f->path;
    for (size_t k = 0; k < images.count && status == DRO_OK; k++)
        status = dro__files_add(d->ctx, files, images.names[k], strlen(images.names[k]),
                                files->table->n, label);
    tally *seen = d->state;
    count_missed(&images, f->path, &seen->inside, seen->first_inside);
    listing_free(&images);
    if (status == DRO_OK)
        status = list(d->ctx, f->path, true, &folders);
    for (size_t k = 0; k < folders.count && status == DRO_OK; k++) {
        char *path;
        status = dro__path_join(d->ctx, f->path, folders.names[k], &path);
        if (status != DRO_OK)
            break;
        folder inner = {.above = f, .path = path};
        status = add_folder(d, &inner, files, label);
        dro__free(path);
    }
    listing_free(&folders);
    return status;
}

/* other: the first of the other files is in it. */
static dro_status no_images(const dro_data *d, const char *path, bool other)
{
    const tally *seen = d->state;
    return dro__fail(d->ctx, DRO_ERR_DATA,
                     "%s: no images in the folder of a class%s%.200s: expected .jpg, .jpeg, .png, "
                     ".ppm, .pgm or .pnm files (%s)",
                     dro__path_tail(path), other ? ", only others such as " : "",
                     other ? seen->first_inside : "",
                     other ? "ImageMagick converts images: mogrify -format png FILES"
                           : "remove the folder if it is no class");
}

static dro_status add_class(dro_data *d, const char *dir, const char *path, dro__files *files,
                            int32_t label, bool may_be_empty)
{
    int64_t before = files->table->n;
    const tally *seen = d->state;
    bool first = seen->inside == 0;
    folder top = {.path = dir}, own = {.path = path, .above = &top};
    DRO_TRY(enter(d->ctx, &top));
    DRO_TRY(add_folder(d, &own, files, label));
    if (files->table->n == before && !may_be_empty)
        return no_images(d, path, first && seen->inside > 0);
    return DRO_OK;
}

static dro_status add_classes(dro_data *d, const char *dir, const listing *folders, dro_split split)
{
    dro__files files = {.table = &d->split[split]};
    tally *seen = d->state;
    count_missed(folders, dir, &seen->beside, seen->first_beside);
    for (size_t k = 0; k < folders->count; k++) {
        int32_t label = class_of(d, folders->names[k]);
        char *path;
        if (label < 0)
            return dro__fail(d->ctx, DRO_ERR_DATA,
                             "%s/%s: a class that the training set does not have",
                             dro__path_tail(dir), folders->names[k]);
        DRO_TRY(dro__path_join(d->ctx, dir, folders->names[k], &path));
        dro_status status = add_class(d, dir, path, &files, label, split != DRO_TRAIN);
        dro__free(path);
        if (status != DRO_OK)
            return status;
    }
    return DRO_OK;
}

/* The training set: its folders are the classes. */
static dro_status add_train(dro_data *d, const char *dir, listing *folders)
{
    if (folders->count == 0)
        return dro__fail(d->ctx, DRO_ERR_DATA,
                         "%s: no folders in it: expected a folder of images for each class, or "
                         "train and test with such folders",
                         dro__path_tail(dir));
    if (folders->count > INT32_MAX)
        return dro__fail(d->ctx, DRO_ERR_DATA, "%s: too many folders", dro__path_tail(dir));
    d->classes = (int32_t)folders->count;
    d->class_names = dro__alloc(folders->count, sizeof *d->class_names);
    if (!d->class_names)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %d classes", d->classes);
    for (int32_t k = 0; k < d->classes; k++) {
        size_t size = strlen(folders->names[k]) + 1;
        if (dro__utf8_wrong(folders->names[k], size))
            return dro__fail(d->ctx, DRO_ERR_DATA,
                             "%s/%s: the name of this class is not UTF-8: rename the folder",
                             dro__path_tail(dir), folders->names[k]);
        d->class_names[k] = dro__alloc(size, 1);
        if (!d->class_names[k])
            return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %d classes", d->classes);
        memcpy(d->class_names[k], folders->names[k], size);
    }
    return add_classes(d, dir, folders, DRO_TRAIN);
}

/* ---- layouts ---- */

/* A folder with the folders of classes. */
typedef struct split_folder {
    const char *name; /* in the list of names, NULL: there is none */
    char *path;
    listing folders;
} split_folder;

static void split_free(split_folder *f)
{
    dro__free(f->path);
    listing_free(&f->folders);
    *f = (split_folder){0};
}

/* The first of these names, in upper or lower case, that is a folder with folders in it. */
static dro_status find_split(const dro_data *d, const listing *top, const char *const *names,
                             split_folder *f)
{
    dro_status status = DRO_OK;
    for (; *names && !f->name; names++)
        for (size_t k = 0; k < top->count && !f->name && status == DRO_OK; k++) {
            if (strcasecmp(top->names[k], *names) != 0)
                continue;
            status = dro__path_join(d->ctx, d->spec.path, top->names[k], &f->path);
            if (status == DRO_OK)
                status = list(d->ctx, f->path, true, &f->folders);
            f->name = f->folders.count ? top->names[k] : NULL;
            if (!f->name)
                split_free(f);
        }
    return status;
}

/* The folders next to those that are read. */
static dro_status remark_folders(dro_data *d, const listing *top, const split_folder *all)
{
    const char *first = NULL;
    int64_t count = 0;
    for (size_t k = 0; k < top->count; k++) {
        bool used = false;
        for (int s = 0; s < DRO_SPLITS; s++)
            used = used || top->names[k] == all[s].name;
        if (used)
            continue;
        first = count++ ? first : top->names[k];
    }
    if (count == 0)
        return DRO_OK;
    const char *test = all[DRO_TEST].name;
    return dro__remark(d, "%lld folder%s beside %s%s%s %s not read (%.200s)", (long long)count,
                       count == 1 ? "" : "s", all[DRO_TRAIN].name, test ? " and " : "",
                       test ? test : "", count == 1 ? "is" : "are", first);
}

static dro_status find_splits(const dro_data *d, const listing *top, split_folder *all)
{
    static const char *const train[] = {"train", "training", NULL};
    static const char *const test[] = {"test", "testing", NULL};
    static const char *const validation[] = {"val", "valid", "validation", NULL};
    DRO_TRY(find_split(d, top, train, &all[DRO_TRAIN]));
    if (!all[DRO_TRAIN].name)
        return DRO_OK;
    DRO_TRY(find_split(d, top, test, &all[DRO_TEST]));
    if (!all[DRO_TEST].name)
        return find_split(d, top, validation, &all[DRO_TEST]);
    return dro__option(d, "holdout") ? DRO_OK : find_split(d, top, validation, &all[DRO_HOLDOUT]);
}

static dro_status open_splits(dro_data *d, const listing *top, split_folder *all)
{
    static const dro_split others[] = {DRO_TEST, DRO_HOLDOUT};
    DRO_TRY(add_train(d, all[DRO_TRAIN].path, &all[DRO_TRAIN].folders));
    for (int k = 0; k < 2; k++)
        if (all[others[k]].name)
            DRO_TRY(add_classes(d, all[others[k]].path, &all[others[k]].folders, others[k]));
    return remark_folders(d, top, all);
}

static dro_status remark_missed(dro_data *d, const tally *seen)
{
    if (seen->inside)
        DRO_TRY(
            dro__remark(d,
                        "%lld file%s in the folders of classes %s not read (%s): expected .jpg, "
                        ".jpeg, .png, .ppm, .pgm or .pnm",
                        (long long)seen->inside, seen->inside == 1 ? "" : "s",
                        seen->inside == 1 ? "is" : "are", seen->first_inside));
    if (seen->beside)
        DRO_TRY(dro__remark(d,
                            "%lld image%s beside the folders of classes %s not read (%s): expected "
                            "each in the folder of its class",
                            (long long)seen->beside, seen->beside == 1 ? "" : "s",
                            seen->beside == 1 ? "is" : "are", seen->first_beside));
    return DRO_OK;
}

static dro_status open_images(dro_data *d)
{
    listing top = {0};
    split_folder all[DRO_SPLITS] = {0};
    tally seen = {0};
    DRO_TRY(list(d->ctx, d->spec.path, true, &top));
    d->state = &seen;
    dro_status status = find_splits(d, &top, all);
    if (status == DRO_OK)
        status = all[DRO_TRAIN].name ? open_splits(d, &top, all) : add_train(d, d->spec.path, &top);
    for (int s = 0; s < DRO_SPLITS; s++)
        split_free(&all[s]);
    listing_free(&top);
    if (status == DRO_OK)
        status = remark_missed(d, &seen);
    d->state = NULL;
    return status == DRO_OK ? dro__files_open(d) : status;
}

static const char *const options[] = {DRO__FILES_OPTIONS, NULL};

const dro__format dro__format_images = {
    .name = "images",
    .usage = "DIR[,channels=1|3][,size=N]",
    .summary =
        "a folder of images (JPEG, PNG, PNM) per class; or folders train, test, val of these",
    .options = options,
    .files = true,
    .folder = true,
    .open = open_images};
