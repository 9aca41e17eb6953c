/* The files that a pattern names, as part-*.gz: sorted by their names' bytes, whatever the locale
 * says, so that every process has the same list. */
#include "data.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

bool dro__is_pattern(const char *path)
{
    return strpbrk(path, "*?[") && !dro__file_exists(path);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void dro__shards_free(char **paths, size_t count)
{
    for (size_t k = 0; paths && k < count; k++)
        dro__free(paths[k]);
    dro__free(paths);
}

static dro_status copy_paths(dro_context *ctx, const glob_t *found, char ***paths)
{
    char **list = dro__alloc(found->gl_pathc, sizeof *list);
    for (size_t k = 0; list && k < found->gl_pathc; k++) {
        list[k] = dro__alloc(strlen(found->gl_pathv[k]) + 1, 1);
        if (!list[k]) {
            dro__shards_free(list, k);
            list = NULL;
            break;
        }
        strcpy(list[k], found->gl_pathv[k]);
    }
    if (!list)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %zu paths", found->gl_pathc);
    qsort(list, found->gl_pathc, sizeof *list, by_name);
    *paths = list;
    return DRO_OK;
}

dro_status dro__shards_find(dro_context *ctx, const char *pattern, char ***paths, size_t *count)
{
    glob_t found = {0};
    int code = glob(pattern, GLOB_NOSORT, NULL, &found);
    dro_status status = DRO_OK;
    if (code == GLOB_NOSPACE)
        status = dro__fail(ctx, DRO_ERR_MEMORY, "%.200s: no memory for the files' names", pattern);
    else if (code != 0)
        status = dro__fail(ctx, DRO_ERR_FILE,
                           "%.200s: no file has such a name: expected a file, or a pattern as in "
                           "part-*.gz",
                           pattern);
    if (status == DRO_OK)
        status = copy_paths(ctx, &found, paths);
    *count = status == DRO_OK ? found.gl_pathc : 0;
    globfree(&found);
    return status;
}
