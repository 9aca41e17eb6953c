/* Output: errors, progress, tables, JSON and the clock. The only file that knows about
 * terminals. */
#define _GNU_SOURCE
#include "cli.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* ---- stderr ---- */

static bool progress_shown, muted;
static char last_error[512];

void cli_mute(bool mute)
{
    if (mute && !muted && !freopen("/dev/null", "w", stdout))
        fclose(stdout);
    muted = mute;
}

bool cli_muted(void)
{
    return muted;
}

void cli_no_memory(void)
{
    fputs("dro: no memory for a text\n", stderr);
    exit(1);
}

void cli_close_text(FILE *memory, char *const *text)
{
    bool whole = memory && !ferror(memory);
    if (memory)
        whole = fclose(memory) == 0 && whole && *text;
    if (!whole)
        cli_no_memory();
}

/* The text of a format, escaped; the caller frees it. */
static char *escaped(const char *format, va_list list)
{
    char *text = NULL;
    if (vasprintf(&text, format, list) < 0)
        cli_no_memory();
    char *shown = cli_escape(text);
    free(text);
    return shown;
}

/* The last space before which a text fits, or NULL: all of it fits, or there is none. */
static const char *place_to_cut(const char *text, int width)
{
    const char *cut = NULL;
    int used = 0;
    for (const char *p = text; *p; p++) {
        used += ((unsigned char)*p & 0xc0) != 0x80; /* the first byte of a letter */
        if (used > width)
            return cut;
        cut = *p == ' ' && p > text ? p : cut;
    }
    return NULL;
}

void cli_wrapped(FILE *to, const char *line)
{
    enum { NARROW = 40, INDENT = 4 };
    struct winsize size = {0};
    char *shown = cli_escape(line);
    const char *text = shown;
    bool known = ioctl(fileno(to), TIOCGWINSZ, &size) == 0 && size.ws_col > NARROW;
    const char *cut;
    for (int indent = 0; known && (cut = place_to_cut(text, size.ws_col - indent));
         indent = INDENT) {
        fprintf(to, "%.*s\n%*s", (int)(cut - text), text, INDENT, "");
        text = cut + strspn(cut, " ");
    }
    fprintf(to, "%s\n", text);
    free(shown);
}

/* One line, whatever was typed: a very long text is cut in the middle. */
static void say(FILE *to, const char *format, va_list list)
{
    enum { MOST = 2000, HEAD = 500, TAIL = 300 };
    char *text = escaped(format, list);
    size_t size = strlen(text);
    if (to == stderr)
        cli_progress(NULL);
    char *line = NULL;
    int length = size > MOST ? asprintf(&line, "dro: %.*s ... %s", HEAD, text, text + size - TAIL)
                             : asprintf(&line, "dro: %s", text);
    if (length < 0)
        fprintf(to, "dro: %s\n", text);
    else
        cli_wrapped(to, line);
    free(length < 0 ? NULL : line);
    free(text);
}

void cli_note(FILE *to, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(to, format, list);
    va_end(list);
}

const char *cli_error(void)
{
    return *last_error ? last_error : "it has ended";
}

static void report(const char *format, va_list list)
{
    va_list again;
    va_copy(again, list);
    vsnprintf(last_error, sizeof last_error, format, again);
    va_end(again);
    if (!muted)
        say(stderr, format, list);
}

int(cli_fail)(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    report(format, list);
    va_end(list);
    return 1;
}

int(cli_usage)(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    report(format, list);
    va_end(list);
    return 2;
}

int cli_progress_width(void)
{
    struct winsize size;
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return known ? size.ws_col - 1 : 79;
}

void cli_progress(const char *format, ...)
{
    if (!isatty(STDERR_FILENO) || (!format && !progress_shown))
        return;
    fputs("\r\033[K", stderr);
    progress_shown = format != NULL;
    if (format) {
        va_list list;
        va_start(list, format);
        char *text = escaped(format, list);
        va_end(list);
        fprintf(stderr, "%.*s", cli_progress_width(), text); /* one line, never two */
        free(text);
    }
    fflush(stderr);
}

/* ---- stdout ---- */

void cli_print(const char *format, ...)
{
    va_list list;
    size_t size = strlen(format);
    bool ends = size > 0 && format[size - 1] == '\n';
    va_start(list, format);
    char *text = escaped(format, list);
    va_end(list);
    if (ends)
        strcpy(text + strlen(text) - strlen("\\x0a"), "\n");
    fputs(text, stdout);
    free(text);
}

/* The reader of the pipe has ended, as `head` does. The reason of an earlier failed write is lost,
 * but a pipe shows it. */
static bool is_closed(int reason)
{
    struct pollfd end = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return reason == EPIPE || (!reason && poll(&end, 1, 0) > 0 && (end.revents & POLLERR));
}

int cli_finish(int status)
{
    static bool reported;
    errno = 0;
    bool broken = ferror(stdout) != 0;
    if (fflush(stdout) == 0 && !broken)
        return status;
    int reason = errno;
    if (reported || is_closed(reason))
        return 1;
    reported = true;
    return cli_fail("cannot write to standard output: %s",
                    reason ? strerror(reason) : "an earlier write failed");
}

double cli_percent(double share)
{
    return fabs(share) < 1e3 ? round(1e11 * share) / 1e9 : 100 * share;
}

static void *grow(void *memory, size_t size)
{
    memory = realloc(memory, size);
    if (!memory) {
        cli_fail("no memory for a table");
        exit(1);
    }
    return memory;
}

json_t *cli_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *cli_text_json(const char *text)
{
    json_t *made = text ? json_string(text) : json_null();
    if (made)
        return made;
    char *shown = cli_escape(text);
    made = json_string(shown);
    free(shown);
    return made;
}

void cli_begin(const cli_args *args)
{
    if (cli_json(args)) {
        cli_busy("%s on %s", cli_name(args), cli_cpu());
        return;
    }
    printf("%s on %s\n", cli_name(args), cli_cpu());
    fflush(stdout);
}

int cli_emit(json_t *document)
{
    if (!document)
        return cli_fail("no memory for the JSON document");
    cli_ready();
    size_t flags = isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0;
    int failed = json_dumpf(document, stdout, flags | JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    json_decref(document);
    fputc('\n', stdout);
    return cli_finish(failed ? 1 : 0);
}

/* ---- tables ---- */

struct cli_table {
    int columns;
    size_t count, capacity;
    char **cells; /* (count), headers first */
    bool *right;  /* (columns) */
};

static void add_cell(cli_table *table, const char *format, va_list list)
{
    if (table->count == table->capacity) {
        table->capacity = table->capacity ? 2 * table->capacity : 64;
        table->cells = grow(table->cells, table->capacity * sizeof *table->cells);
    }
    table->cells[table->count++] = escaped(format, list);
}

void cli_table_cell(cli_table *table, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    add_cell(table, format, list);
    va_end(list);
}

cli_table *cli_table_create(int columns, const char *const *headers)
{
    cli_table *table = grow(NULL, sizeof *table);
    *table = (cli_table){.columns = columns};
    table->right = grow(NULL, (size_t)columns * sizeof *table->right);
    for (int c = 0; c < columns; c++) {
        table->right[c] = headers[c][0] == '>';
        cli_table_cell(table, "%s", headers[c] + table->right[c]);
    }
    return table;
}

static int terminal_width(void)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        return 0;
    return size.ws_col;
}

void cli_wrap(FILE *to, const char *text, int indent, int width)
{
    int most = width - indent;
    while ((int)strlen(text) > most) {
        int cut = most;
        while (cut > 0 && text[cut] != ' ')
            cut--;
        if (cut == 0)
            break;
        fprintf(to, "%.*s\n%*s", cut, text, indent, "");
        text += cut + 1;
    }
    fprintf(to, "%s\n", text);
}

void cli_table_print(cli_table *table)
{
    enum { NARROWEST = 20 };
    int columns = table->columns, indent = 0, total = terminal_width();
    int *width = grow(NULL, (size_t)columns * sizeof *width);
    for (int c = 0; c < columns; c++) {
        width[c] = 0;
        for (size_t i = (size_t)c; i < table->count; i += (size_t)columns)
            width[c] =
                cli_width(table->cells[i]) > width[c] ? cli_width(table->cells[i]) : width[c];
        indent += c + 1 < columns ? width[c] + 2 : 0;
    }
    for (size_t i = 0; i < table->count; i++) {
        int c = (int)(i % (size_t)columns);
        const char *cell = table->cells[i];
        int pad = width[c] - cli_width(cell);
        if (table->right[c])
            printf("%*s%s%s", pad, "", cell, c + 1 < columns ? "  " : "\n");
        else if (c + 1 < columns)
            printf("%s%*s  ", cell, pad, "");
        else
            cli_wrap(stdout, cell, indent, total >= indent + NARROWEST ? total : INT_MAX);
        free(table->cells[i]);
    }
    free(width);
    free(table->cells);
    free(table->right);
    free(table);
}

/* ---- measuring ---- */

double cli_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double cli_median(double *values, int count)
{
    if (count <= 0)
        return NAN;
    qsort(values, (size_t)count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

const char *cli_cpu(void)
{
    static char name[128];
    char line[256];
    FILE *file = *name ? NULL : fopen("/proc/cpuinfo", "r");
    while (file && !*name && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(name, sizeof name, "%s, %ld cores", colon + 2 - (colon[1] == '\0'),
                 sysconf(_SC_NPROCESSORS_ONLN));
    }
    if (file)
        fclose(file);
    if (!*name)
        snprintf(name, sizeof name, "unknown processor, %ld cores", sysconf(_SC_NPROCESSORS_ONLN));
    return name;
}
