/* Files that commands write: cells of tables, and whether a file is one of those that are read. */
#include "cli.h"

#include <string.h>
#include <sys/stat.h>

void cli_csv_text(FILE *to, char separator, const char *text)
{
    const char special[] = {separator, '"', '\n', '\r', '\0'};
    if (!strpbrk(text, special)) {
        fputs(text, to);
        return;
    }
    fputc('"', to);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', to);
        fputc(*text, to);
    }
    fputc('"', to);
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
