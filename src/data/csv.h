/* CSV in steps: csv_parse.c cuts the text into cells, csv_cell.c says what a cell holds, csv_form.c
 * reads the options and finds the header, the label and the group column, csv_encode.c turns cells
 * into features, csv_keep.c saves and restores the encoding of a model, csv_remarks.c reports
 * surprising cells; csv_again.c reads some rows once more; format_csv.c makes a data set of the
 * rows, stream_csv.c a stream. */
#ifndef DRO_DATA_CSV_H
#define DRO_DATA_CSV_H

#include "scale.h"
#include "text.h"

enum {
    DRO__CSV_COLUMNS_MAX = 1 << 20,
    DRO__CSV_CATEGORIES_MAX = 65536,
    DRO__CSV_MANY = 50,        /* categories: those of one row are merged */
    DRO__CSV_MISSING = 10,     /* missing numbers of a column: from here on it has an indicator */
    DRO__CSV_TAIL = 10,        /* outliers of a column: from here on they have a feature */
    DRO__CSV_ROW_MAX = 1 << 26 /* bytes */
};

enum { DRO__CSV_NAME_SIZE = 208 };

/* One of several files whose rows follow each other. */
typedef struct dro__csv_file {
    int64_t first; /* row, the header counted */
    size_t number; /* of dro__input_file() */
    char name[DRO__CSV_NAME_SIZE];
} dro__csv_file;

/* A file, or several, cut: all cells one after another, row by row, each ended by a zero. */
typedef struct dro__csv {
    dro_context *ctx;
    char name[DRO__CSV_NAME_SIZE]; /* of the file, for errors: of the one that is read now */
    char *text;                    /* owned */
    size_t used, capacity;
    char separator;
    size_t columns; /* as the first row has, from line columns_line on */
    int64_t columns_line;
    const char *header; /* the cells of the header, or NULL */
    const char *cells;  /* the first cell of the first row */
    int64_t rows;
    int64_t first;  /* rows before the first: 1 with a header */
    int64_t *lines; /* (first + rows) where each begins */
    size_t line_capacity;
    dro__csv_file *files; /* (file_count), of a pattern of files */
    size_t file_count, file_capacity;
    size_t repeats; /* files whose first row was left out, as it is that of the first file */
} dro__csv;

void dro__csv_free(dro__csv *csv);

/* The same, row by row, from an input that may be endless. Zero it, set input and separator. */
typedef struct dro__csv_source {
    dro__input *input;
    char separator;
    char *line, *end; /* what is left of the window */
    int64_t lines;    /* before it */
    size_t longest;   /* line */
    bool begun;
    /* Several files: a file that begins with the first row of the first one repeats its header. */
    int header;  /* as in dro__csv_form; 0 keeps that row */
    size_t file; /* that the last row is of */
    char *first; /* (first_size) the first row of the first file */
    size_t first_size;
    bool starts; /* the next row is the first of its file */
} dro__csv_source;

void dro__csv_source_free(dro__csv_source *source);

/* All rows. separator 0: the one of , ; tab | that occurs most often in the first line; runs of
 * spaces where no line has any of these and all lines have the same number of cells between
 * spaces. */
dro_status dro__csv_parse(dro__csv *csv, dro__csv_source *source);
/* One more row at the end of csv; *got is false at the end of the input. Zero csv, set ctx and
 * name. */
dro_status dro__csv_append(dro__csv_source *source, dro__csv *csv, bool *got);
/* Takes all rows out, and the header; the width that rows must have stays. */
void dro__csv_clear(dro__csv *csv);
/* The first row becomes the header. */
void dro__csv_take_header(dro__csv *csv);
/* The line in its file where a row begins, and that file: its name, and its number if there are
 * several. */
long long dro__csv_line(const dro__csv *csv, int64_t row);
const char *dro__csv_name(const dro__csv *csv, int64_t row);
size_t dro__csv_file_of(const dro__csv *csv, int64_t row);
static inline const char *dro__csv_next(const char *cell)
{
    while (*cell)
        cell++;
    return cell + 1;
}

/* Texts that stand for a missing value: "", ?, NA, nan, +nan and -nan in any case, and one more if
 * not NULL. */
typedef struct dro__missing {
    const char *also;
    bool refuse; /* missing values are an error */
} dro__missing;
bool dro__csv_missing(const dro__missing *missing, const char *cell);
/* Takes the rows out in which the cell of a column is missing; how many. */
int64_t dro__csv_leave_out(dro__csv *csv, size_t column, const dro__missing *missing);
/* Texts that are a missing value among numbers, and a category among texts: NULL, None, n/a, #N/A,
 * <NA> in any case, - and . */
bool dro__csv_blank(const char *cell);
/* A cell that is a number and nothing else; comma: it may have a decimal comma. */
bool dro__csv_number(const char *cell, bool comma, double *value);
bool dro__csv_infinite(const char *cell);
/* What a cell should be instead, whose number is not finite as a float. */
const char *dro__csv_expected(const char *cell, bool number);
/* A number as people write it: thousands in groups of three ("1,234", "1 234", "1'234"; "1.234"
 * where commas are decimal), and %, $ or the sign of the euro, the pound or the yen before or
 * behind it. *unit is 0, or the unit that it must have if it has one (1 to DRO__CSV_UNITS), and
 * becomes the one that it has: numbers of two units cannot be compared. */
enum { DRO__CSV_UNITS = 5 };
bool dro__csv_formatted(const char *cell, bool comma, int *unit, double *value);

/* The orders of a date's year, month and day, between - / or . (MDY: / only), a time of day behind
 * it or not. Where several fit all cells of a column the first one is taken. */
enum { DRO__DATE_YMD = 1, DRO__DATE_MDY = 2, DRO__DATE_DMY = 4, DRO__DATE_ALL = 7 };
/* Those in which a cell is a date. */
int dro__csv_dates(const char *cell);

/* ---- csv_form.c ---- */

#define DRO__CSV_NO_COLUMN SIZE_MAX

/* What the options say of a file, and what its first rows show. */
typedef struct dro__csv_form {
    const struct dro__kept *kept; /* the encoding of a model, or NULL: then a label is needed */
    dro__scaling scaling;
    int decimal;          /* DRO__DECIMAL_... */
    unsigned char *marks; /* (columns) DRO__MARK_..., or NULL: none */
    dro__missing missing;
    char separator; /* 0: guess */
    int header;     /* 1, 0, or -1: guess */
    bool stated;    /* header=yes */
    bool real;      /* target=real */
    bool grouped;
    size_t label, group; /* columns; label DRO__CSV_NO_COLUMN: there is none */
    size_t weight;       /* column of the example weights, or DRO__CSV_NO_COLUMN */
} dro__csv_form;

enum { DRO__DECIMAL_AUTO, DRO__DECIMAL_POINT, DRO__DECIMAL_COMMA };
enum { DRO__MARK_DROP = 1, DRO__MARK_CATEGORICAL };

/* Whether the labels of a table are real-valued targets, and not the names of classes. Numbers with
 * fractions: more than ten of them, or most rows have their own; whole numbers: more than twenty,
 * of which half have few rows, or that begin elsewhere than class numbers do, 0 or 1, and fill at
 * least half of their range. */
dro_status dro__csv_find_real(const dro__csv *csv, const dro__csv_form *form,
                              const dro__names *names, bool *real);
void dro__csv_form_free(dro__csv_form *form);
/* Whether a number of this file may have a decimal comma: decimal=comma, or cells that are not
 * separated by commas. */
bool dro__csv_commas(const dro__csv_form *form, const dro__csv *csv);
/* encoding=latin1, for an input that was just opened. */
dro_status dro__csv_encoding(const dro_data *data, dro__input *input);
dro_status dro__csv_form_read(const dro_data *data, dro__csv_form *form);
/* Takes the header off and finds the columns. */
dro_status dro__csv_form_fit(const dro_data *data, dro__csv_form *form, dro__csv *csv);
/* The first columns that have no name, or that of an index, and count the rows are marked as
 * dropped, with a remark. */
dro_status dro__csv_form_index(dro_data *data, dro__csv_form *form, const dro__csv *csv);
/* A second file: its columns are brought into the order of the first, by name if it has a header
 * (letters of any case, columns that the first does not have are left out). */
dro_status dro__csv_form_match(const dro__csv_form *form, const dro__csv *first, dro__csv *csv);

/* ---- csv_encode.c ---- */

/* What the rows of training show of a column. A column is numeric if every cell of the file is a
 * number or missing, or if all are formatted numbers, or dates of which more than DRO__CSV_MANY
 * differ, and it is not named in categorical=. Then it is one feature, (x - centre) * factor and
 * the limit of scale.h, 0 where missing; with scale=none it is x, the mean where missing. If
 * training has DRO__CSV_MISSING such rows, an indicator of that follows; if it has DRO__CSV_TAIL
 * outliers, how far beyond the limit the value is; if it has any and the target is real-valued, the
 * excess: what the limit takes off, divided by its root mean square where there is any, or by more
 * so that no training row has more than twice the limit, which later rows are cut to. Any other is
 * one indicator per category, in the order of their bytes, one for "missing" if training has that,
 * and one for a category that training did not have. Of more than DRO__CSV_MANY categories those of
 * one row have that last one, too; a column of more than DRO__CSV_CATEGORIES_MAX is left out. */
typedef struct dro__column {
    bool numeric;
    bool missing; /* it has an indicator of missing values: text with one, numbers with many */
    bool left_out, dropped; /* the label, or a column of drop=; dropped: the latter */
    bool plain, limited;    /* plain: not scaled */
    bool tail;              /* limited, with a feature for how far beyond the limit */
    bool excess;            /* limited, with a feature for what the limit takes off */
    bool commas;            /* numbers may have a decimal comma */
    bool formatted;         /* dro__csv_formatted(): all cells, and not all are plain numbers */
    bool may_count;         /* not named in categorical= */
    bool blanks;            /* dro__csv_blank() is a missing value: among numbers */
    int unit;               /* of formatted numbers, or 0 */
    int dates, date;        /* orders in which all cells are dates; date: a number of days, in that
                               order, or 0 */
    dro__column_spread spread;
    double centre, factor;
    double excess_unit, excess_most; /* what the excess is divided by, and cut to before */
    double *sample, low, high;       /* values that the fences come from; the fences */
    size_t sampled;
    int64_t outliers;                 /* values of training beyond the fences */
    int64_t odd_row;                  /* the first row with a number that is not finite, or -1 */
    int64_t numbers, texts, text_row; /* of the whole file; the first row with a text, or -1 */
    dro__names categories;
    int32_t *rank;    /* (categories) */
    int64_t *tally;   /* (different) rows of each, while they are learned */
    size_t different; /* categories of training, merged ones too */
    size_t tally_room;
    int64_t gone; /* missing values of training */
    size_t feature, features;
} dro__column;

/* The number in a cell of a numeric column: as it is written, without its format, or the days from
 * 1970-01-01 to a date. */
bool dro__csv_value(const dro__column *column, const char *cell, double *value);

typedef struct dro__columns {
    size_t count, features;
    dro__column *at;
    bool mixed; /* features do not rise from column to column */
    int64_t
        *unseen; /* (count) cells of a category that training did not have, or NULL: not counted */
    const char *number; /* what is expected of a numeric column, for errors */
} dro__columns;

/* Learns the columns from the given rows (rising) of the training file, whether a column is numeric
 * from all of them; the label and what drop= names are no features. */
dro_status dro__csv_learn(const dro__csv *csv, const dro__csv_form *form, const int64_t *rows,
                          int64_t count, dro__columns *columns);
/* A cell; slow. */
const char *dro__csv_cell(const dro__csv *csv, int64_t row, size_t column);
/* Features of a row that may differ from 0, at most. */
size_t dro__columns_entries(const dro__columns *columns);
void dro__columns_free(dro__columns *columns);
uint64_t dro__columns_bytes(const dro__columns *columns);
/* What is encoded, and how. */
typedef struct dro__csv_encoder {
    const dro__csv *csv;
    const dro__missing *missing;
    const dro__columns *columns;
} dro__csv_encoder;

/* Fills x, or starts, columns and values, of a table whose records (rising) are rows of the
 * file. */
dro_status dro__csv_encode(const dro__csv_encoder *e, bool dense, dro__table *table);

/* One row into sparse columns (as they come, rising unless the columns are mixed) and values, of
 * which *count are written already, or into x if that is not NULL. *cell is its first cell, then
 * that of the next row. */
dro_status dro__csv_encode_row(const dro__csv_encoder *e, int64_t row, const char **cell, float *x,
                               dro__table *table, size_t *count);

/* ---- csv_keep.c ---- */

/* How a model's training file was encoded. */
typedef struct dro__kept {
    dro__columns columns;
    char **names; /* (columns.count) of the header */
    size_t label;
    bool header, real, dense;
    char *missing; /* of missing=, or "" */
} dro__kept;

/* The encoding as a text; *text is NULL when it is too large to be kept. */
dro_status dro__csv_keep(const dro__csv *csv, const dro__csv_form *form,
                         const dro__columns *columns, bool dense, char **text);
dro_status dro__csv_kept_read(dro_context *ctx, const char *text, dro__kept *kept);
void dro__csv_kept_free(dro__kept *kept);
/* Where another file has the label, or DRO__CSV_NO_COLUMN. */
size_t dro__csv_kept_label(const dro__kept *kept, const dro__csv *csv);
/* The columns of another file, encoded as those of the same name or place; they move out of
 * kept. */
dro_status dro__csv_kept_fit(dro__kept *kept, const dro__csv *csv, size_t label,
                             dro__columns *columns);

/* ---- csv_again.c ---- */

/* Notes the rows that dro__csv_leave_out() would take out. */
dro_status dro__csv_note_gone(const dro__csv *csv, size_t column, const dro__missing *missing,
                              dro__again *again);
/* dro__format.cells */
dro_status dro__csv_cells(const dro_data *d, bool test, const struct dro__wanted *wanted,
                          struct dro__cells *cells);

/* ---- csv_remarks.c ---- */

/* The columns that were learned from a file, or from the first rows of a stream. */
typedef struct dro__csv_learned {
    const dro__csv *csv;
    const dro__csv_form *form;
    const dro__columns *columns;
    size_t rows; /* that they were learned from */
    bool first;  /* more follow */
} dro__csv_learned;

/* Remarks on columns that may not be meant as they are read. */
dro_status dro__csv_remark(dro_data *data, const dro__csv_learned *learned);

/* ---- shared ---- */

/* "FILE: line 3: column 'age': 'x': expected ..." */
dro_status dro__csv_bad_cell(const dro__csv *csv, int64_t row, size_t column, const char *cell,
                             const char *expected);
/* "column 'age'" or "column 3". */
const char *dro__csv_column_name(const dro__csv *csv, size_t column, char *out, size_t size);
/* rank[k]: the place of name k when sorted by bytes, or by value if by_value and all are
 * numbers. */
dro_status dro__names_rank(dro_context *ctx, const dro__names *names, bool by_value,
                           int32_t **rank);

#endif
