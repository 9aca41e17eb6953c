/* dro completion: what a shell needs to complete the command line, from the tables of commands,
 * optimisers, models and formats. Not in the help: it is run when the program is built, and
 * installed. */
#include "cli.h"

#include <dro/data.h>
#include <dro/net.h>
#include <dro/report.h>
#include <dro/train.h>
#include <errno.h>
#include <string.h>

/* ---- values ---- */

static void print_names(const char *(*name)(int), const char *after)
{
    for (int i = 0; name(i); i++)
        printf("%s%s%s", i ? " " : "", name(i), after);
}

/* The words of a setting, with blanks between them. */
static void print_setting(const char *option)
{
    const dro_setting *s = cli_setting(option);
    for (const char *c = s && s->param.kind == DRO_PARAM_CHOICE ? s->param.choices : ""; *c; c++)
        putchar(*c == '|' ? ' ' : *c);
}

/* The words that an option's value may be; nothing when they are not known. */
static void print_values(const cli_option *o)
{
    if (strncmp(o->name, "optimizer", 9) == 0)
        print_names(dro_optimizer_name, "");
    else if (strcmp(o->name, "model") == 0)
        print_names(dro_model_name, "");
    else if (strcmp(o->name, "backend") == 0)
        fputs("auto ", stdout), print_names(dro_backend_name, "");
    else if (strcmp(o->name, "data") == 0)
        print_names(dro_format_name, ":");
    else if (strcmp(o->name, "by") == 0)
        for (int k = 0; k < DRO_MEASURE_SECONDS; k++)
            printf("%s%s", k ? " " : "", dro_measure_name((dro_measure)k));
    else
        print_setting(o->name);
}

typedef enum value_kind { VALUE_NONE, VALUE_FILE, VALUE_FOLDER, VALUE_WORDS } value_kind;

static value_kind kind_of(const cli_option *o)
{
    if (!o->value)
        return VALUE_NONE;
    if (strstr(o->value, "FILE") || strstr(o->value, "OUT"))
        return VALUE_FILE;
    if (strstr(o->value, "DIR") || strstr(o->value, "FOLDER"))
        return VALUE_FOLDER;
    return VALUE_WORDS;
}

/* ---- bash ---- */

static void bash_command(const cli_command *c)
{
    const cli_option *o;
    printf("    '%s')\n        case $previous in\n", c->name);
    for (int i = 0; (o = cli_option_at(c, i)); i++) {
        value_kind kind = kind_of(o);
        if (kind == VALUE_NONE)
            continue;
        printf("        --%s) ", o->name);
        if (kind == VALUE_FILE)
            printf("files=-f");
        else if (kind == VALUE_FOLDER)
            printf("files=-d");
        else
            printf("words='"), print_values(o), putchar('\'');
        printf("; known=1 ;;\n");
    }
    printf("        esac\n        options='");
    for (int i = 0; (o = cli_option_at(c, i)); i++)
        printf("%s--%s", i ? " " : "", o->name);
    printf("'\n        first='%s' ;;\n", c->words ? c->words : "");
}

static void bash(void)
{
    puts("# bash completion of dro, made by `dro completion bash`.\n"
         "_dro() {\n"
         "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
         "    local command=${COMP_WORDS[1]} place=2 words= files= options= first= known=\n"
         "    COMPREPLY=()\n"
         "    if [ \"$COMP_CWORD\" -eq 1 ]; then");
    printf("        COMPREPLY=($(compgen -W '");
    for (int i = 0; cli_commands[i]; i++)
        if (!cli_commands[i]->hidden)
            printf("%s ", cli_commands[i]->name);
    puts("--help --version' -- \"$current\"))\n        return\n    fi");
    printf("    if [ \"$command\" = bench ] && [ \"$COMP_CWORD\" -eq 2 ]; then\n"
           "        COMPREPLY=($(compgen -W '");
    for (int i = 0; cli_benches[i]; i++)
        printf("%s ", strchr(cli_benches[i]->name, ' ') + 1);
    puts("--help' -- \"$current\"))\n        return\n    fi\n"
         "    [ \"$command\" != bench ] || { command=\"bench ${COMP_WORDS[2]}\"; place=3; }\n"
         "    case $command in");
    for (int i = 0; cli_commands[i]; i++)
        bash_command(cli_commands[i]);
    for (int i = 0; cli_benches[i]; i++)
        bash_command(cli_benches[i]);
    puts("    esac\n"
         "    if [ -n \"$files\" ]; then\n"
         "        COMPREPLY=($(compgen $files -- \"$current\"))\n"
         "    elif [ -n \"$known\" ]; then\n"
         "        COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "    elif [[ $current == -* ]]; then\n"
         "        COMPREPLY=($(compgen -W \"$options\" -- \"$current\"))\n"
         "    elif [ -n \"$first\" ] && [ \"$COMP_CWORD\" -eq \"$place\" ]; then\n"
         "        COMPREPLY=($(compgen -W \"$first\" -- \"$current\"))\n"
         "    else\n"
         "        COMPREPLY=($(compgen -f -- \"$current\"))\n"
         "    fi\n"
         "    [[ ${COMPREPLY[0]} != *: ]] || compopt -o nospace 2>/dev/null\n"
         "}\n"
         "complete -o filenames -F _dro dro");
}

/* ---- zsh ---- */

/* A text inside '...' where [, ], : and \ have a meaning. */
static void zsh_text(const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else if (strchr("[]:\\", *text))
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

static void zsh_command(const cli_command *c)
{
    const cli_option *o;
    printf("    '%s') _arguments", c->name);
    for (int i = 0; (o = cli_option_at(c, i)); i++) {
        value_kind kind = kind_of(o);
        printf(" \\\n        '%s--%s%s[", kind == VALUE_NONE ? "" : "*", o->name,
               kind == VALUE_NONE ? "" : "=");
        zsh_text(o->meaning);
        putchar(']');
        if (kind != VALUE_NONE) {
            putchar(':');
            zsh_text(o->value);
            putchar(':');
        }
        if (kind == VALUE_FILE)
            printf("_files");
        else if (kind == VALUE_FOLDER)
            printf("_files -/");
        else if (kind == VALUE_WORDS && strcmp(o->name, "data") == 0)
            printf("_dro_formats");
        else if (kind == VALUE_WORDS)
            putchar('('), print_values(o), putchar(')');
        putchar('\'');
    }
    if (c->words)
        printf(" \\\n        '1:what:(%s)'", c->words);
    printf(" \\\n        '*:file:_files' ;;\n");
}

static void zsh_list(const char *name, const cli_command *const *list)
{
    printf("    %s=(", name);
    for (; *list; list++) {
        const char *space = strchr((*list)->name, ' ');
        if ((*list)->hidden)
            continue;
        printf("\n        '%s:", space ? space + 1 : (*list)->name);
        zsh_text((*list)->summary);
        putchar('\'');
    }
    puts(")");
}

static void zsh(void)
{
    printf("#compdef dro\n# zsh completion of dro, made by `dro completion zsh`.\n\n"
           "_dro_formats() { compadd -S '' -- ");
    print_names(dro_format_name, ":");
    puts("; }\n\n_dro() {\n    local -a commands benches\n    local command");
    zsh_list("commands", cli_commands);
    zsh_list("benches", cli_benches);
    puts("    if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
         "    command=$words[2]\n"
         "    if [[ $command == bench ]]; then\n"
         "        if (( CURRENT == 3 )); then _describe benchmark benches; return; fi\n"
         "        command=\"bench $words[3]\"\n"
         "        shift words; (( CURRENT-- ))\n"
         "    fi\n"
         "    shift words; (( CURRENT-- ))\n"
         "    case $command in");
    for (int i = 0; cli_commands[i]; i++)
        zsh_command(cli_commands[i]);
    for (int i = 0; cli_benches[i]; i++)
        zsh_command(cli_benches[i]);
    puts("    esac\n}\n\n_dro \"$@\"");
}

static int run(const cli_args *args)
{
    const char *shell = cli_word(args, 0), *out = cli_text(args, "out");
    bool for_bash = strcmp(shell, "bash") == 0;
    if (!for_bash && strcmp(shell, "zsh") != 0)
        return cli_usage("completion: no shell '%s': expected bash or zsh", shell);
    if (out && strcmp(out, "-") != 0 && !freopen(out, "w", stdout))
        return cli_fail("completion: cannot write %s: %s", out, strerror(errno));
    for_bash ? bash() : zsh();
    return 0;
}

static const cli_option options[] = {
    {"out", CLI_TEXT, "FILE", NULL, 0, 0, "write to this file"},
    CLI_OPTIONS_END,
};

const cli_command cmd_completion = {
    .name = "completion",
    .usage = "bash | zsh [--out FILE]",
    .summary = "print the completion script of a shell",
    .details = "In bash: `source <(dro completion bash)`. An installed dro needs no such line.",
    .options = options,
    .words = "bash zsh",
    .least = 1,
    .most = 1,
    .run = run,
    .hidden = true,
};
