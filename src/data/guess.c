/* The format of data that is named without one, `people.csv,label=income` or a folder: by what is
 * there. A file is known by its ending, or by how it begins; a folder by the files that a format
 * has. Any other folder is one of images. */
#include "data.h"

#include <ctype.h>
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

static const char *of_folder(const char *path)
{
    for (size_t k = 0; k < sizeof marks / sizeof marks[0]; k++)
        if (has(path, marks[k][0]))
            return marks[k][1];
    return "images";
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

/* A zip file whose first entry is an array; a spreadsheet is a zip file, too. */
static bool is_npz(const char *bytes, size_t size)
{
    enum { LENGTH_AT = 26, NAME_AT = 30 };
    if (size < NAME_AT || memcmp(bytes, "PK\x03\x04", 4) != 0)
        return false;
    size_t length = (unsigned char)bytes[LENGTH_AT] + 256u * (unsigned char)bytes[LENGTH_AT + 1];
    return length > 4 && NAME_AT + length <= size &&
           memcmp(bytes + NAME_AT + length - 4, ".npy", 4) == 0;
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
    if (memcmp(bytes, "\x93NUMPY", 6) == 0 || is_npz(bytes, size))
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
