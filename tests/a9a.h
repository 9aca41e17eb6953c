/* Reads a9a (LIBSVM text) for the tests; where the file is not there, the test says so and
 * skips. */
#ifndef DRO_TESTS_A9A_H
#define DRO_TESTS_A9A_H

#include <dro/linear.h>
#include <stdio.h>
#include <stdlib.h>

enum { A9A_ROWS = 32561, A9A_FEATURES = 123 };

typedef struct a9a {
    int64_t starts[A9A_ROWS + 1];
    int32_t columns[A9A_ROWS * 16];
    float values[A9A_ROWS * 16], y[A9A_ROWS];
} a9a;

/* NULL when the file is missing or is not a9a. */
static inline a9a *a9a_read(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return NULL;
    a9a *data = malloc(sizeof *data);
    char line[1024];
    int64_t row = 0, at = 0;
    while (data && row < A9A_ROWS && fgets(line, sizeof line, file)) {
        char *p = line;
        data->y[row] = strtol(p, &p, 10) > 0 ? 1 : -1;
        data->starts[row] = at;
        long column;
        while ((column = strtol(p, &p, 10)) > 0 && *p == ':' && at < A9A_ROWS * 16) {
            data->columns[at] = (int32_t)column - 1;
            data->values[at++] = strtof(p + 1, &p);
        }
        data->starts[++row] = at;
    }
    fclose(file);
    if (row == A9A_ROWS)
        return data;
    free(data);
    return NULL;
}

static inline dro_linear_data a9a_data(const a9a *data)
{
    dro_linear_data d = dro_linear_data_default();
    d.n = A9A_ROWS;
    d.features = A9A_FEATURES;
    d.starts = data->starts;
    d.columns = data->columns;
    d.values = data->values;
    d.y = data->y;
    return d;
}

#endif
