/* The format of data that is named without one, `people.csv,label=income` or a folder: by what is
 * there. A file is known by its ending, or by how it begins; a folder by the files that a format
 * has, or by folders of images. */
#include "data.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Files that only one format has in its folder. */
static const char *const marks[][2] = {
    {"data_batch_1.bin", "cifar10"},      {"cifar-10-batches-bin/data_batch_1.bin", "cifar10"},
    {"fine_label_names.txt", "cifar100"}, {"train_X.bin", "stl10"},
    {"train-images-idx3-ubyte", "idx"},   {"train-images-idx3-ubyte.gz", "idx"},
    {"train-images.idx3-ubyte", "idx"},   {"train-images.idx3-ubyte.gz", "idx"},
};

static bool has(const char *folder, const char *name)
{
    char path[DRO__SPEC_MAX + 64];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           dro__file_exists(path);
}

static bool has_folders(const char *folder)
{
    DIR *dir = opendir(folder);
    bool found = false;
    const struct dirent *entry;
    while (dir && !found && (entry = readdir(dir))) {
        struct stat about;
        char path[DRO__SPEC_MAX + 300];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        found = entry->d_name[0] != '.' && stat(path, &about) == 0 && S_ISDIR(about.st_mode);
    }
    if (dir)
        closedir(dir);
    return found;
}

static const char *of_folder(const char *path)
{
    for (size_t k = 0; k < sizeof marks / sizeof marks[0]; k++)
        if (has(path, marks[k][0]))
            return marks[k][1];
    return has_folders(path) ? "images" : NULL;
}

/* A label, and an index:value behind it. */
static bool is_libsvm(const char *line)
{
    double label;
    int at = 0;
    unsigned index;
    return sscanf(line, "%lf%n", &label, &at) == 1 && isspace((unsigned char)line[at]) &&
           sscanf(line + at, " %u:%lf", &index, &label) == 2;
}

static const char *of_content(dro_context *ctx, const char *path)
{
    dro__input *input;
    char bytes[4096];
    size_t size;
    if (dro__input_open(ctx, path, &input) != DRO_OK)
        return NULL;
    dro_status status = dro__input_read(input, bytes, sizeof bytes - 1, &size);
    dro__input_close(input);
    if (status != DRO_OK || size == 0)
        return NULL;
    bytes[size] = '\0';
    if (memcmp(bytes, "\x93NUMPY", 6) == 0 || memcmp(bytes, "PK\x03\x04", 4) == 0)
        return "npy";
    if (strlen(bytes) < size)
        return NULL; /* a zero byte: no text */
    bytes[strcspn(bytes, "\n")] = '\0';
    return is_libsvm(bytes) ? "libsvm" : strpbrk(bytes, ",;\t|") ? "csv" : NULL;
}

const char *dro__guess_format(dro_context *ctx, const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return dro__is_pattern(path) ? dro_format_likely(path) : NULL;
    if (S_ISDIR(about.st_mode))
        return of_folder(path);
    const char *likely = dro_format_likely(path);
    return likely ? likely : S_ISREG(about.st_mode) ? of_content(ctx, path) : NULL;
}
