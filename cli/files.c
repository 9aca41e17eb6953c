/* Files that commands write, completely or not at all; cells of tables; whether a file is one of
 * the inputs. */
#define _GNU_SOURCE /* realpath, asprintf */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A spreadsheet takes such a cell for a formula; -1 and +1 are numbers. */
static bool is_formula(const char *text)
{
    char *end;
    text += strspn(text, "'"); /* so that '=1 and =1 stay different */
    if (!*text || !strchr("=+-@", *text))
        return false;
    strtod(text, &end);
    return end == text || *end;
}

void cli_csv_text(FILE *to, char separator, const char *text)
{
    const char special[] = {separator, '"', '\n', '\r', '\0'};
    const char *quote = strpbrk(text, special) ? "\"" : "";
    bool hidden = isatty(fileno(to));
    fprintf(to, "%s%s", quote, is_formula(text) ? "'" : "");
    for (int size; *text; text += size) {
        char escape[CLI_ESCAPE_SIZE];
        size = cli_escape_exact(text, escape, hidden);
        if (*text == '"')
            fputc('"', to);
        if (*escape)
            fputs(escape, to);
        else
            fwrite(text, 1, (size_t)size, to);
    }
    fputs(quote, to);
}

/* ---- whole or not at all ---- */

static int cannot_write(const char *name)
{
    return cli_fail("cannot write to %s: %s", name, strerror(errno));
}

/* The file that is being written, which is removed if the program exits before it is complete. */
static const char *unfinished;

static void remove_unfinished(void)
{
    if (unfinished)
        unlink(unfinished);
}

int cli_file_open(cli_file *file, const char *path)
{
    enum { LONGEST = 200 }; /* bytes of a name to which a process number and .tmp are added */
    static bool watched;
    struct stat about;
    if (stat(path, &about) != 0 && lstat(path, &about) == 0)
        return cli_fail("cannot write to %s: it is a link to a file that does not exist", path);
    *file = (cli_file){.name = path, .target = realpath(path, NULL)}; /* what a link points to */
    if (!file->target)
        file->target = strdup(path);
    bool beside = stat(path, &about) != 0 || S_ISREG(about.st_mode);
    const char *slash = file->target ? strrchr(file->target, '/') : NULL;
    int start = slash ? (int)(slash + 1 - file->target) : 0;
    if (!file->target || (beside && asprintf(&file->part, "%.*s%.*s.%ld.tmp", start, file->target,
                                             LONGEST, file->target + start, (long)getpid()) < 0)) {
        free(file->target);
        return cli_fail("no memory for the name of %s", path);
    }
    file->to = fopen(beside ? file->part : path, "wb");
    watched = watched || atexit(remove_unfinished) == 0;
    unfinished = file->to ? file->part : NULL;
    return file->to ? 0 : cannot_write(path);
}

int cli_file_close(cli_file *file, int status)
{
    bool fine = status == 0 && fflush(file->to) == 0 && !ferror(file->to) &&
                (!file->part || fsync(fileno(file->to)) == 0);
    int wrong = errno;
    fine = fclose(file->to) == 0 && fine;
    if (fine && file->part && rename(file->part, file->target) != 0)
        fine = false, wrong = errno;
    if (!fine && file->part)
        unlink(file->part);
    unfinished = NULL;
    free(file->target);
    free(file->part);
    errno = wrong;
    return fine || status ? status : cannot_write(file->name);
}

json_t *cli_file_json(const char *path)
{
    struct stat about;
    bool regular = stat(path, &about) == 0 && S_ISREG(about.st_mode);
    return regular ? json_load_file(path, 0, NULL) : NULL;
}

bool cli_same_file(const char *a, const char *b)
{
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && S_ISREG(one.st_mode) &&
           one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

bool cli_spec_reads(const char *spec, const char *path)
{
    char part[4096];
    size_t used = 0;
    for (const char *c = spec ? spec : "";; c++) {
        bool start = (*c == ':' && c == strchr(spec, ':')) || *c == '=';
        if (!*c || *c == ',' || start) {
            part[used] = '\0';
            if (cli_same_file(part, path))
                return true;
            used = 0;
        } else if (used + 1 < sizeof part) {
            c += *c == '\\' && c[1] == ',';
            part[used++] = *c;
        }
        if (!*c)
            return false;
    }
}
