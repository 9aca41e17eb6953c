/* CSV text into cells, row by row: a line is copied behind the cells before it and cut in place,
 * where a cell and its zero are never longer than the cell and its separator.
 *
 * Cells are trimmed of blanks, unless quoted; a quoted cell may hold separators, newlines and
 * doubled quotes; lines end in LF or CRLF; a byte-order mark and blank lines are skipped. Where the
 * separator is a space, so is a run of spaces and tabs, and those at either end of a line separate
 * nothing.
 * Every row must have as many cells as the first, and no more than DRO__CSV_ROW_MAX bytes. */
#include "csv.h"

#include <stdio.h>
#include <string.h>

typedef struct cutter {
    dro__csv *csv;
    char *from, *to, *end; /* read here, write there; *end is zero */
    char separator;
    int64_t line;
} cutter;

void dro__csv_free(dro__csv *csv)
{
    dro__free(csv->text);
    dro__free(csv->lines);
    dro__free(csv->files);
    *csv = (dro__csv){0};
}

long long dro__csv_line(const dro__csv *csv, int64_t row)
{
    return csv->lines[csv->first + row];
}

/* The file of a row, or NULL. */
static const dro__csv_file *file_of(const dro__csv *csv, int64_t row)
{
    size_t k = csv->file_count;
    while (k > 0 && csv->files[k - 1].first > csv->first + row)
        k--;
    return k ? &csv->files[k - 1] : NULL;
}

const char *dro__csv_name(const dro__csv *csv, int64_t row)
{
    const dro__csv_file *file = file_of(csv, row);
    return file ? file->name : csv->name;
}

size_t dro__csv_file_of(const dro__csv *csv, int64_t row)
{
    const dro__csv_file *file = file_of(csv, row);
    return file ? file->number : 0;
}

void dro__csv_take_header(dro__csv *csv)
{
    csv->header = csv->cells;
    for (size_t k = 0; k < csv->columns; k++)
        csv->cells = dro__csv_next(csv->cells);
    csv->rows--;
    csv->first++;
}

static bool separates(char separator, char byte)
{
    return byte == separator || (separator == ' ' && byte == '\t');
}

static bool is_blank(const cutter *c, char byte)
{
    return (byte == ' ' || byte == '\t' || byte == '\r') && !separates(c->separator, byte);
}

/* Blanks, and spaces and tabs of which a run separates cells. */
static char *after_blanks(const cutter *c)
{
    char *p = c->from;
    while (p < c->end && (is_blank(c, *p) || (c->separator == ' ' && separates(' ', *p))))
        p++;
    return p;
}

/* At the end of a cell: true if another cell of the row follows. */
static bool step_over(cutter *c)
{
    if (c->separator == ' ')
        c->from = after_blanks(c);
    if (c->from == c->end)
        return false;
    if (c->separator == ' ' && *c->from != '\n')
        return true;
    if (*c->from++ == c->separator)
        return true;
    c->line++;
    return false;
}

static dro_status plain_cell(cutter *c, bool *more)
{
    char *start = c->to;
    while (c->from < c->end && !separates(c->separator, *c->from) && *c->from != '\n')
        *c->to++ = *c->from++;
    while (c->to > start && is_blank(c, c->to[-1]))
        c->to--;
    *more = step_over(c);
    *c->to++ = '\0';
    return DRO_OK;
}

static dro_status quoted_cell(cutter *c, bool *more)
{
    dro__csv *csv = c->csv;
    int64_t line = c->line;
    for (c->from++;; c->from++) {
        if (c->from == c->end)
            return dro__fail(csv->ctx, DRO_ERR_DATA,
                             "%s: line %lld: a quote begins here and never ends: expected \"",
                             csv->name, (long long)line);
        if (*c->from == '"' && *++c->from != '"')
            break;
        c->line += *c->from == '\n';
        *c->to++ = *c->from;
    }
    while (c->from < c->end && is_blank(c, *c->from))
        c->from++;
    if (c->from < c->end && !separates(c->separator, *c->from) && *c->from != '\n') {
        char shown[48];
        return dro__fail(csv->ctx, DRO_ERR_DATA,
                         "%s: line %lld: %s after a closing quote: expected '%s' or the end of the "
                         "line (a quote inside quotes is doubled)",
                         csv->name, (long long)c->line,
                         dro__text_show(c->from, shown, sizeof shown),
                         c->separator == '\t' ? "tab" : (char[2]){c->separator, '\0'});
    }
    *more = step_over(c);
    *c->to++ = '\0';
    return DRO_OK;
}

/* What may mend rows of different widths. */
static const char *advice(const cutter *c)
{
    if (c->csv->columns == 1)
        return " (remove lines before the table; sep= names another separator)";
    return c->separator == '\t' ? " (sep=space takes runs of spaces and tabs as one separator)"
                                : "";
}

static dro_status cut_row(cutter *c)
{
    dro__csv *csv = c->csv;
    int64_t line = c->line;
    size_t count = 0;
    bool more;
    DRO_TRY(dro__grow(csv->ctx, (void **)&csv->lines, &csv->line_capacity, (size_t)csv->rows + 1,
                      sizeof *csv->lines));
    do {
        c->from = after_blanks(c);
        bool quoted = c->from < c->end && *c->from == '"';
        DRO_TRY(quoted ? quoted_cell(c, &more) : plain_cell(c, &more));
        if (++count > DRO__CSV_COLUMNS_MAX)
            return dro__fail(csv->ctx, DRO_ERR_DATA, "%s: line %lld: expected at most %d cells",
                             csv->name, (long long)line, DRO__CSV_COLUMNS_MAX);
    } while (more);
    if (csv->columns == 0) {
        csv->columns = count;
        csv->columns_line = line;
    }
    if (count != csv->columns)
        return dro__fail(csv->ctx, DRO_ERR_DATA,
                         "%s: line %lld: %zu cells: expected %zu, as in line %lld%s", csv->name,
                         (long long)line, count, csv->columns, (long long)csv->columns_line,
                         advice(c));
    csv->lines[csv->rows++] = line;
    return DRO_OK;
}

/* Skips a line of blanks, if it is one. */
static bool blank_line(cutter *c)
{
    char *p = after_blanks(c);
    if (p < c->end && *p != '\n')
        return false;
    c->line += p < c->end;
    c->from = p < c->end ? p + 1 : p;
    return true;
}

static const char known[] = {',', ';', '\t', '|'};

/* The cells of a line between runs of spaces; 0 if it has another separator. */
static size_t count_spaced(const char *text, const char *end)
{
    size_t count = 0;
    bool quoted = false, inside = false;
    for (; text < end && *text != '\n'; text++) {
        quoted = *text == '"' ? !quoted : quoted;
        if (!quoted && memchr(known, *text, sizeof known))
            return 0;
        bool blank = !quoted && (*text == ' ' || *text == '\r');
        count += !blank && !inside;
        inside = !blank;
    }
    return count;
}

/* Whether all lines have the same number of cells between spaces, two or more. */
static bool are_spaced(const char *text, const char *end)
{
    size_t first = 0;
    while (text < end) {
        const char *next = memchr(text, '\n', (size_t)(end - text));
        const char *stop = next ? next : end, *p = text;
        while (p < stop && (*p == ' ' || *p == '\r'))
            p++;
        size_t count = count_spaced(text, stop);
        first = first ? first : count;
        if (p < stop && (count < 2 || count != first))
            return false;
        text = next ? next + 1 : end;
    }
    return first > 0;
}

static char guess_separator(const char *text, const char *end)
{
    const char *line = text;
    size_t counts[sizeof known] = {0}, best = 0;
    bool quoted = false;
    for (; text < end && *text != '\n'; text++) {
        quoted = *text == '"' ? !quoted : quoted;
        for (size_t k = 0; k < sizeof known; k++)
            counts[k] += !quoted && *text == known[k];
    }
    for (size_t k = 1; k < sizeof known; k++)
        best = counts[k] > counts[best] ? k : best;
    return counts[best] == 0 && are_spaced(line, end) ? ' ' : known[best];
}

static dro_status refuse_zero(const dro__csv *csv, const char *text, const char *zero, int64_t line)
{
    for (const char *p = text; p < zero; p++)
        line += *p == '\n';
    return dro__fail(csv->ctx, DRO_ERR_DATA,
                     "%s: line %lld: byte 0x00: expected text (in UTF-8, if it is UTF-16 now)",
                     csv->name, (long long)line);
}

static dro_status refuse_bytes(const dro__csv *csv, const char *wrong, int64_t line)
{
    return dro__fail(csv->ctx, DRO_ERR_DATA,
                     "%s: line %lld: byte 0x%02x is not UTF-8: add encoding=latin1 if the file is "
                     "in Latin-1, or save it as UTF-8",
                     csv->name, (long long)line, (unsigned char)*wrong);
}

/* ---- row by row ---- */

void dro__csv_clear(dro__csv *csv)
{
    csv->used = 0;
    csv->rows = csv->first = 0;
    if (csv->file_count > 0) {
        csv->files[0] = csv->files[csv->file_count - 1];
        csv->files[0].first = 0;
        csv->file_count = 1;
    }
    csv->header = csv->cells = NULL;
}

/* Whether the row continues after this line, which ends inside quotes. *quoted: it began there. */
static void follow_quotes(const char *p, const char *end, char separator, bool *quoted)
{
    bool fresh = !*quoted; /* at the beginning of a cell */
    if (!*quoted && !memchr(p, '"', (size_t)(end - p)))
        return;
    for (; p < end; p++) {
        if (*quoted) {
            bool twice = *p == '"' && p + 1 < end && p[1] == '"';
            *quoted = *p != '"' || twice;
            p += twice;
        } else if (fresh && *p == '"') {
            *quoted = true;
            fresh = false;
        } else {
            bool blank = *p == ' ' || *p == '\t' || *p == '\r';
            fresh = separates(separator, *p) || (fresh && blank);
        }
    }
}

/* Appends one line to the csv's text, which has *size bytes of the row already. */
static dro_status take_line(dro__csv_source *s, dro__csv *csv, size_t *size)
{
    char *next = (char *)memchr(s->line, '\n', (size_t)(s->end - s->line)) + 1;
    size_t length = (size_t)(next - s->line), header = 0, cells = 0;
    const char *zero = memchr(s->line, '\0', length);
    if (zero)
        return refuse_zero(csv, zero, zero, s->lines + 1);
    const char *wrong = dro__utf8_wrong(s->line, length);
    if (wrong)
        return refuse_bytes(csv, wrong, s->lines + 1);
    if (*size + length > DRO__CSV_ROW_MAX)
        return dro__fail(csv->ctx, DRO_ERR_DATA,
                         "%s: line %lld: a row of more than %d MiB (a quote that never ends?)",
                         csv->name, (long long)s->lines + 1, DRO__CSV_ROW_MAX >> 20);
    if (csv->header)
        header = (size_t)(csv->header - csv->text);
    if (csv->cells)
        cells = (size_t)(csv->cells - csv->text);
    DRO_TRY(dro__grow(csv->ctx, (void **)&csv->text, &csv->capacity, csv->used + *size + length + 1,
                      1));
    csv->header = csv->header ? csv->text + header : NULL;
    csv->cells = csv->text + cells;
    memcpy(csv->text + csv->used + *size, s->line, length);
    *size += length;
    s->longest = length > s->longest ? length : s->longest;
    s->line = next;
    s->lines++;
    return DRO_OK;
}

/* The next window; the lines of a new file are counted from 1 again. */
static dro_status next_window(dro__csv_source *s)
{
    DRO_TRY(dro__input_lines(s->input, &s->line, &s->end));
    if (s->line == s->end || s->file == dro__input_file(s->input))
        return DRO_OK;
    s->file = dro__input_file(s->input);
    s->starts = true;
    s->lines = 0;
    return DRO_OK;
}

/* Excel's first line, "sep=;": it names the separator and is no row. */
static bool take_separator(dro__csv_source *s)
{
    const char *end = memchr(s->line, '\n', (size_t)(s->end - s->line));
    size_t length = (size_t)(end - s->line);
    length -= length > 0 && end[-1] == '\r';
    if (s->lines != 0 || length != 5 || memcmp(s->line, "sep=", 4) != 0)
        return false;
    s->separator = s->separator ? s->separator : s->line[4];
    s->line += end - s->line + 1;
    s->lines++;
    return true;
}

/* Skips blank lines; *over at the end. */
static dro_status find_row(dro__csv_source *s, bool *over)
{
    cutter c = {.separator = s->begun ? s->separator : ','};
    for (;;) {
        if (s->line == s->end)
            DRO_TRY(next_window(s));
        *over = s->line == s->end;
        if (*over)
            return DRO_OK;
        if (s->lines == 0 && s->end - s->line >= 3 && memcmp(s->line, "\xef\xbb\xbf", 3) == 0)
            s->line += 3;
        if (take_separator(s))
            continue;
        c.from = s->line;
        c.end = s->end;
        if (!blank_line(&c))
            break;
        s->line = c.from;
        s->lines++;
    }
    if (!s->begun && !s->separator)
        s->separator = guess_separator(s->line, s->end);
    s->begun = true;
    return DRO_OK;
}

/* One of several files: the following rows belong to it. */
static dro_status note_file(const dro__csv_source *s, dro__csv *csv)
{
    size_t k = csv->file_count;
    if (!dro__input_path(s->input, 0) || (k > 0 && csv->files[k - 1].number == s->file))
        return DRO_OK;
    DRO_TRY(
        dro__grow(csv->ctx, (void **)&csv->files, &csv->file_capacity, k + 1, sizeof *csv->files));
    csv->files[k] = (dro__csv_file){.first = csv->first + csv->rows, .number = s->file};
    snprintf(csv->files[k].name, sizeof csv->files[k].name, "%s", dro__input_name(s->input));
    memcpy(csv->name, csv->files[k].name, sizeof csv->name);
    csv->file_count++;
    return DRO_OK;
}

/* Handles the row that begins at `start`: keeps the very first one, and leaves out one that repeats
 * it. */
static dro_status check_first(dro__csv_source *s, dro__csv *csv, size_t start, bool *left_out)
{
    const char *row = csv->text + start;
    size_t size = csv->used - start;
    *left_out = false;
    if (!dro__input_path(s->input, 1) || s->header == 0)
        return DRO_OK;
    if (!s->first) {
        s->first = dro__alloc(size, 1);
        if (!s->first)
            return dro__fail(csv->ctx, DRO_ERR_MEMORY, "no memory for a row");
        memcpy(s->first, row, size);
        s->first_size = size;
        return DRO_OK;
    }
    *left_out = s->starts && size == s->first_size && memcmp(row, s->first, size) == 0;
    if (*left_out) {
        csv->used = start;
        csv->rows--;
        csv->repeats++;
    }
    return DRO_OK;
}

/* The first line: JSON, or all lines of an old Macintosh. */
static dro_status check_line(const dro__csv_source *s, const dro__csv *csv)
{
    const char *end = memchr(s->line, '\n', (size_t)(s->end - s->line));
    const char *cr = memchr(s->line, '\r', (size_t)(end - s->line));
    if (memcmp(s->line, "{\"", 2) == 0 || memcmp(s->line, "[{", 2) == 0)
        return dro__fail(csv->ctx, DRO_ERR_DATA,
                         "%s: line 1: it is JSON: expected rows of cells (as pandas writes them "
                         "with to_csv)",
                         csv->name);
    if (cr && !strchr("\r\n", cr[1]) && !memchr(s->line, '"', (size_t)(cr - s->line)))
        return dro__fail(csv->ctx, DRO_ERR_DATA,
                         "%s: line 1: a carriage return inside: expected lines that end with "
                         "newlines (tr '\\r' '\\n' <FILE makes them)",
                         csv->name);
    return DRO_OK;
}

/* Appends the lines of one row, from *line on, to the csv's text: *size bytes; 0 at the end. */
static dro_status take_row(dro__csv_source *s, dro__csv *csv, int64_t *line, size_t *size)
{
    bool over, quoted = false;
    *size = 0;
    DRO_TRY(find_row(s, &over));
    if (over)
        return DRO_OK;
    DRO_TRY(note_file(s, csv));
    if (s->lines == 0)
        DRO_TRY(check_line(s, csv));
    *line = s->lines + 1;
    size_t file = s->file;
    while (!over && (*size == 0 || quoted)) {
        size_t before = *size;
        DRO_TRY(take_line(s, csv, size));
        const char *text = csv->text + csv->used;
        follow_quotes(text + before, text + *size, s->separator, &quoted);
        if (quoted && s->line == s->end)
            DRO_TRY(next_window(s));
        over = quoted && (s->line == s->end || s->file != file);
    }
    return DRO_OK;
}

static dro_status append_one(dro__csv_source *s, dro__csv *csv, bool *got, bool *left_out)
{
    size_t size, start = csv->used;
    int64_t line;
    *left_out = false;
    DRO_TRY(take_row(s, csv, &line, &size));
    *got = size > 0;
    if (!*got)
        return DRO_OK;
    cutter c = {.csv = csv,
                .from = csv->text + start,
                .to = csv->text + start,
                .end = csv->text + start + size,
                .separator = s->separator,
                .line = line};
    *c.end = '\0';
    DRO_TRY(cut_row(&c));
    csv->used = (size_t)(c.to - csv->text);
    csv->separator = s->separator;
    DRO_TRY(check_first(s, csv, start, left_out));
    s->starts = false;
    return DRO_OK;
}

dro_status dro__csv_append(dro__csv_source *s, dro__csv *csv, bool *got)
{
    bool left_out;
    do
        DRO_TRY(append_one(s, csv, got, &left_out));
    while (*got && left_out);
    return DRO_OK;
}

void dro__csv_source_free(dro__csv_source *s)
{
    dro__free(s->first);
    s->first = NULL;
}

dro_status dro__csv_parse(dro__csv *csv, dro__csv_source *source)
{
    bool got = true;
    snprintf(csv->name, sizeof csv->name, "%s", dro__input_name(source->input));
    while (got) {
        size_t capacity = csv->capacity, lines = csv->line_capacity;
        dro_status status = dro__csv_append(source, csv, &got);
        if (status == DRO_ERR_MEMORY)
            dro__fail(csv->ctx, status,
                      "%s: no memory after line %lld: expected a file that fits (a stream reads "
                      "larger ones)",
                      csv->name, (long long)source->lines);
        DRO_TRY(status);
        if (csv->capacity != capacity || csv->line_capacity != lines)
            DRO_TRY(dro__fits(csv->ctx, csv->name,
                              csv->capacity + csv->line_capacity * sizeof *csv->lines));
    }
    if (csv->rows == 0)
        return dro__fail(csv->ctx, DRO_ERR_DATA, "%s: is empty: expected rows of cells", csv->name);
    return DRO_OK;
}

int64_t dro__csv_leave_out(dro__csv *csv, size_t column, const dro__missing *missing)
{
    const char *cell = csv->cells;
    char *to = csv->text + (csv->cells - csv->text);
    int64_t kept = 0, rows = csv->rows;
    size_t file = 0;
    for (int64_t i = 0; i < rows; i++) {
        const char *row = cell;
        bool gone = false;
        for (size_t k = 0; k < csv->columns; k++, cell = dro__csv_next(cell))
            gone = gone || (k == column && dro__csv_missing(missing, cell));
        for (; file < csv->file_count && csv->files[file].first <= csv->first + i; file++)
            csv->files[file].first -= i - kept;
        if (gone)
            continue;
        memmove(to, row, (size_t)(cell - row));
        to += cell - row;
        csv->lines[csv->first + kept++] = csv->lines[csv->first + i];
    }
    csv->rows = kept;
    return rows - kept;
}
