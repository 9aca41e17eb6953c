/* dro man: manual pages from the tables of commands. Not in the help: it is run when the program is
 * built, and the pages are installed. */
#define _GNU_SOURCE
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- roff ---- */

/* Escapes a text, so that no character of it is a command. */
static void escape(FILE *to, const char *text)
{
    bool begin = true;
    for (; *text; text++) {
        if (begin && (*text == '.' || *text == '\''))
            fputs("\\&", to);
        begin = *text == '\n';
        if (*text == '\\')
            fputs("\\e", to);
        else if (*text == '-')
            fputs("\\-", to);
        else
            fputc(*text, to);
    }
}

static void title(FILE *to, const char *page)
{
    fprintf(to, ".TH \"");
    for (const char *c = page; *c; c++)
        fputc(*c >= 'a' && *c <= 'z' ? *c - 32 : *c, to);
    fprintf(to, "\" 1 \"\" \"dro %d.%d.%d\" \"libdro\"\n", DRO_VERSION_MAJOR, DRO_VERSION_MINOR,
            DRO_VERSION_PATCH);
}

/* "bench rates" to "dro-bench-rates". */
static void page_name(const cli_command *c, char name[80])
{
    snprintf(name, 80, "dro-%s", c->name);
    for (char *at = name; *at; at++)
        *at = *at == ' ' ? '-' : *at;
}

static void print_options(FILE *to, const cli_command *c)
{
    const cli_option *o;
    fprintf(to, ".SH OPTIONS\n");
    for (int i = 0; (o = cli_option_at(c, i)); i++) {
        if (cli_option_rare(o))
            continue;
        fprintf(to, ".TP\n\\fB");
        escape(to, "--");
        escape(to, o->name);
        fprintf(to, "\\fR");
        if (o->value) {
            fprintf(to, " \\fI");
            escape(to, o->value);
            fprintf(to, "\\fR");
        }
        fputc('\n', to);
        escape(to, o->meaning);
        if (o->fallback) {
            fprintf(to, " (default ");
            escape(to, o->fallback);
            fputc(')', to);
        }
        fputc('\n', to);
    }
}

static void print_more(FILE *to, const cli_command *c)
{
    char *text = NULL;
    size_t size = 0;
    if (!c->more)
        return;
    FILE *memory = open_memstream(&text, &size);
    if (memory)
        c->more(memory);
    cli_close_text(memory, &text);
    fprintf(to, ".PP\n.nf\n");
    escape(to, text);
    fprintf(to, ".fi\n");
    free(text);
}

static void print_end(FILE *to, const char *others)
{
    fprintf(
        to,
        ".SH EXIT STATUS\n0 success, 2 wrong usage, 3 a sweep in which every setting diverged, 1 "
        "everything else, with one line on standard error.\n.SH SEE ALSO\n%s\n",
        others);
}

static void print_command(FILE *to, const cli_command *c)
{
    char name[80];
    page_name(c, name);
    title(to, name);
    fprintf(to, ".SH NAME\n");
    escape(to, name);
    fprintf(to, " \\- ");
    escape(to, c->summary);
    fprintf(to, "\n.SH SYNOPSIS\n\\fBdro %s\\fR ", c->name);
    escape(to, c->usage ? c->usage : "");
    fputc('\n', to);
    if (c->details) {
        fprintf(to, ".SH DESCRIPTION\n.nf\n");
        escape(to, c->details);
        fprintf(to, "\n.fi\n");
    }
    print_more(to, c);
    print_options(to, c);
    print_end(to, ".BR dro (1)");
}

static void list_commands(FILE *to, const cli_command *const *list)
{
    for (; *list; list++) {
        char name[80];
        if ((*list)->hidden)
            continue;
        page_name(*list, name);
        fprintf(to, ".TP\n.BR ");
        escape(to, name);
        fprintf(to, " (1)\n");
        escape(to, (*list)->summary);
        fputc('\n', to);
    }
}

static void print_program(FILE *to)
{
    title(to, "dro");
    fprintf(to, ".SH NAME\ndro \\- distributionally robust training, for rare classes and "
                "difficult examples\n"
                ".SH SYNOPSIS\n\\fBdro\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n"
                ".SH DESCRIPTION\n"
                "Minimises lambda log E exp(loss / lambda) + r(w), a distributionally robust "
                "objective, one small batch at a time.\n"
                ".SH COMMANDS\n");
    list_commands(to, cli_commands);
    fprintf(to, ".SH BENCHMARKS\n");
    list_commands(to, cli_benches);
    print_end(to, ".BR dro\\-train (1),\n.BR dro\\-compare (1)");
}

/* ---- files ---- */

static int write_page(const char *folder, const char *name, const cli_command *c)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s.1", folder, name);
    FILE *file = fopen(path, "w");
    if (!file)
        return cli_fail("man: cannot write %s: %s", path, strerror(errno));
    if (c)
        print_command(file, c);
    else
        print_program(file);
    bool broken = ferror(file) != 0;
    if (fclose(file) != 0 || broken)
        return cli_fail("man: cannot write %s: %s", path, strerror(errno));
    return 0;
}

static int write_list(const char *folder, const cli_command *const *list)
{
    int status = 0;
    for (; *list && status == 0; list++) {
        char name[80];
        page_name(*list, name);
        if (!(*list)->hidden)
            status = write_page(folder, name, *list);
    }
    return status;
}

static int write_all(const char *folder)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return cli_fail("man: cannot make the folder %s: %s", folder, strerror(errno));
    int status = write_page(folder, "dro", NULL);
    status = status ? status : write_list(folder, cli_commands);
    return status ? status : write_list(folder, cli_benches);
}

static int run(const cli_args *args)
{
    const char *folder = cli_text(args, "out"), *word = cli_word(args, 0);
    char wanted[80];
    if (folder)
        return write_all(folder);
    if (!word) {
        print_program(stdout);
        return 0;
    }
    snprintf(wanted, sizeof wanted, "%s%s%s", word, cli_word(args, 1) ? " " : "",
             cli_word(args, 1) ? cli_word(args, 1) : "");
    const cli_command *const *lists[] = {cli_commands, cli_benches};
    for (int k = 0; k < 2; k++)
        for (int i = 0; lists[k][i]; i++)
            if (strcmp(lists[k][i]->name, wanted) == 0) {
                print_command(stdout, lists[k][i]);
                return 0;
            }
    return cli_usage("man: no command '%s': 'dro --help' lists them", wanted);
}

static const cli_option options[] = {
    {"out", CLI_TEXT, "FOLDER", NULL, 0, 0, "write the pages of all commands to this folder"},
    CLI_OPTIONS_END,
};

const cli_command cmd_man = {
    .name = "man",
    .usage = "[COMMAND | --out FOLDER]",
    .summary = "manual pages",
    .details = "`dro man train | man -l -` reads one that is not installed.",
    .options = options,
    .most = 2,
    .run = run,
    .hidden = true,
};
