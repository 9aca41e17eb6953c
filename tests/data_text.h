/* What the tests of the text formats share: SPECs from literal text, rows and names compared. */
#ifndef DRO_DATA_TEXT_CHECK_H
#define DRO_DATA_TEXT_CHECK_H

#include "data_dir.h"

#include "csv.h"

#include <inttypes.h>

#define TEXTS  DRO_TEST_DIR "/refs/text/"
#define TABLES DRO_SHARED_DATA "/tabular/"

/* A file with this text, as a SPEC with these options. %T in the options is the folder. */
static inline const char *spec_for(const char *format, const char *text, const char *options)
{
    static char spec[1024];
    write_file("data", text, strlen(text));
    int used = snprintf(spec, sizeof spec, "%s:%s/data", format, dir);
    for (const char *p = options; *p; p++)
        if (p[0] == '%' && p[1] == 'T')
            used += snprintf(spec + used, sizeof spec - (size_t)used, "%s", dir), p++;
        else
            spec[used++] = *p;
    spec[used] = '\0';
    return spec;
}

typedef struct refusal {
    const char *text, *options, *line, *expected;
} refusal;

static inline void refuses_all(const char *format, const refusal *cases, size_t count)
{
    for (size_t k = 0; k < count; k++)
        refuses(spec_for(format, cases[k].text, cases[k].options), DRO_ERR_DATA, cases[k].line,
                cases[k].expected);
}

/* The rows of a file of refs/text: rows, columns, then label and values of each. */
static inline void same_rows(const dro_data *data, const dro_examples *e, const char *path)
{
    FILE *f = fopen(path, "r");
    int64_t rows;
    size_t columns, wrong = 0;
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%" SCNd64 " %zu", &rows, &columns), 2);
    assert_int_equal(rows, e->count);
    assert_int_equal(columns, info_of(data).features);
    float *row = malloc(columns * sizeof *row);
    for (int64_t i = 0; i < rows; i++) {
        int label;
        assert_int_equal(fscanf(f, "%d", &label), 1);
        assert_int_equal(e->labels[i], label);
        memset(row, 0, columns * sizeof *row);
        if (e->x)
            memcpy(row, e->x + (size_t)i * columns, columns * sizeof *row);
        for (int64_t k = e->starts ? e->starts[i] : 0; e->starts && k < e->starts[i + 1]; k++)
            row[e->columns[k]] = e->values[k];
        for (size_t k = 0; k < columns; k++) {
            float value;
            assert_int_equal(fscanf(f, "%f", &value), 1);
            if (!(fabsf(row[k] - value) <= 1e-6f * fabsf(value) + (e->x ? 1e-6f : 0)))
                wrong++, print_message("row %d column %zu: %.9g, expected %.9g\n", (int)i, k,
                                       (double)row[k], (double)value);
        }
    }
    assert_int_equal(wrong, 0);
    free(row);
    fclose(f);
}

/* "a b c" */
static inline void names_are(const char *const *names, int32_t count, const char *expected)
{
    char all[512] = "";
    for (int32_t k = 0; k < count; k++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", k ? " " : "", names[k]);
    assert_string_equal(all, expected);
}

static inline void classes_are(const dro_data *data, const char *expected)
{
    names_are(info_of(data).class_names, info_of(data).classes, expected);
}

static inline void skip_without_tables(void)
{
    if (!dro__file_exists(TABLES "a9a")) {
        print_message("skipped: no %s\n", TABLES);
        skip();
    }
}

static inline void counts_are(const dro_data *data, int64_t train0, int64_t train1, int64_t test0,
                              int64_t test1)
{
    dro_data_info info = info_of(data);
    assert_int_equal(info.classes, 2);
    assert_int_equal(info.counts[DRO_TRAIN][0], train0);
    assert_int_equal(info.counts[DRO_TRAIN][1], train1);
    assert_int_equal(info.counts[DRO_TEST][0], test0);
    assert_int_equal(info.counts[DRO_TEST][1], test1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
