/* Arguments: one parser and one help printer for all commands, from their tables of options. */
#include "cli.h"

#include <dro/comm.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPTIONS = 256, MAX_SETTINGS = 200, MAX_GIVEN = 256 };

struct cli_args {
    const cli_command *command;
    const char *values[MAX_OPTIONS]; /* as given, "" for a flag, NULL: not given */
    char **words;                    /* (word_count) the beginning of argv */
    int word_count;
    struct { /* every option as it came, for those that may come again */
        int index;
        const char *value;
    } given[MAX_GIVEN];
    int given_count;
    bool help;
};

static const cli_option common[] = {
    {"backend", CLI_TEXT, "NAME", "auto", 0, 0,
     "a backend of `dro list backends`, or auto: the fastest"},
    {"threads", CLI_INTEGER, "N", NULL, 1, 4096, "number of threads; if not given, all processors"},
    {"json", CLI_FLAG, NULL, NULL, 0, 0, "print one JSON document instead of text"},
    {"help", CLI_FLAG, NULL, NULL, 0, 0, "print this help"},
    CLI_OPTIONS_END,
};

/* How help names the value of a setting; NULL: it is a switch, on or off. */
static const char *value_name(const dro_param *p)
{
    static const char *const names[] = {
        [DRO_PARAM_REAL] = "X",       [DRO_PARAM_INTEGER] = "N", [DRO_PARAM_CHOICE] = "WORD",
        [DRO_PARAM_LIST] = "X,X,...", [DRO_PARAM_TIME] = "T",
    };
    if (p->kind == DRO_PARAM_TEXT)
        return p->choices;
    return p->kind == DRO_PARAM_CHOICE && strcmp(p->choices, "no|yes") == 0 ? NULL : names[p->kind];
}

/* The settings of a run as options: the library's list as a table, built at first use. */
static struct {
    cli_option list[MAX_SETTINGS];
    char names[MAX_SETTINGS][40], meanings[MAX_SETTINGS][200];
    dro_setting about[MAX_SETTINGS];
    int count;
} settings;

/* Its meaning, and its choices if they are short. */
static void describe(const dro_param *p, char *text, size_t size)
{
    enum { WIDTH = 92 };
    bool words = p->kind == DRO_PARAM_CHOICE && value_name(p) &&
                 strlen(p->meaning) + strlen(p->choices) < WIDTH;
    snprintf(text, size, "%s%s%s", p->meaning, words ? "; " : "", words ? p->choices : "");
}

static const cli_option *setting_option(int index)
{
    dro_setting s;
    int k = settings.count;
    for (; k <= index && k < MAX_SETTINGS && dro_setting_at(k, &s) == DRO_OK; k++) {
        const char *value = value_name(&s.param), *usual = s.param.fallback;
        bool shown = *usual && value && s.owner == DRO_SETTING_RUN;
        snprintf(settings.names[k], sizeof settings.names[k], "%s", s.param.name);
        for (char *c = settings.names[k]; *c; c++)
            *c = *c == '_' ? '-' : *c;
        settings.list[k] = (cli_option){.name = settings.names[k],
                                        .kind = value ? CLI_TEXT : CLI_SWITCH,
                                        .value = value,
                                        .fallback = shown ? usual : NULL,
                                        .meaning = settings.meanings[k]};
        describe(&s.param, settings.meanings[k], sizeof settings.meanings[k]);
        settings.about[k] = s;
    }
    settings.count = k;
    return index < k ? &settings.list[index] : NULL;
}

bool cli_option_rare(const cli_option *option)
{
    for (int k = 0; k < settings.count; k++)
        if (option == &settings.list[k])
            return !settings.about[k].common;
    return false;
}

const dro_setting *cli_setting(const char *name)
{
    const char *usual = dro_setting_name(name);
    for (int k = 0; usual && setting_option(k); k++)
        if (strcmp(settings.about[k].param.name, usual) == 0)
            return &settings.about[k];
    return NULL;
}

/* Whether the command uses the name for an option of its own, or does not have it. */
static bool is_hidden(const cli_command *command, const char *name)
{
    if (command->without && strcmp(command->without, name) == 0)
        return true;
    for (const cli_option *own = command->options; own && own->name; own++)
        if (strcmp(own->name, name) == 0)
            return true;
    return false;
}

const cli_option *cli_option_at(const cli_command *command, int index)
{
    const cli_option *option = command->options;
    for (; option && option->name; option++)
        if (index-- == 0)
            return option;
    for (int k = 0; command->settings && (option = setting_option(k)); k++)
        if (!is_hidden(command, option->name) && index-- == 0)
            return option;
    return common[index].name ? &common[index] : NULL;
}

static int option_find(const cli_command *command, const char *name, size_t length)
{
    const cli_option *option;
    for (int i = 0; i < MAX_OPTIONS && (option = cli_option_at(command, i)); i++)
        if (strlen(option->name) == length && memcmp(option->name, name, length) == 0)
            return i;
    return -1;
}

/* Also finds another name of a setting: --lr is --eta. */
static int option_given(const cli_command *command, const char *name, size_t length)
{
    char word[64];
    int index = option_find(command, name, length);
    snprintf(word, sizeof word, "%.*s", (int)length, name);
    const char *setting = command->settings ? dro_setting_name(word) : NULL;
    if (index >= 0 || !setting)
        return index;
    snprintf(word, sizeof word, "%s", setting);
    for (char *c = word; *c; c++)
        *c = *c == '_' ? '-' : *c;
    return option_find(command, word, strlen(word));
}

/* ---- help ---- */

void cli_help_list(FILE *to, const cli_command *const *list, size_t skip)
{
    size_t width = 0;
    for (int i = 0; list[i]; i++)
        if (!list[i]->hidden && strlen(list[i]->name) > width)
            width = strlen(list[i]->name);
    for (; *list; list++)
        if (!(*list)->hidden)
            fprintf(to, "  %-*s  %s\n", (int)(width - skip), (*list)->name + skip,
                    (*list)->summary);
}

void cli_help(FILE *to, const cli_command *command)
{
    const cli_option *option;
    fprintf(to, "dro %s: %s\n\nusage: dro %s%s%s\n", command->name, command->summary, command->name,
            command->usage && *command->usage ? " " : "", command->usage ? command->usage : "");
    if (command->details)
        fprintf(to, "\n%s%s", command->details,
                command->details[strlen(command->details) - 1] == '\n' ? "" : "\n");
    if (command->more)
        command->more(to);
    fprintf(to, "\noptions:\n");
    for (int i = 0; i < MAX_OPTIONS && (option = cli_option_at(command, i)); i++) {
        char left[64], right[400];
        if (cli_option_rare(option))
            continue;
        snprintf(left, sizeof left, "--%s%s%s", option->name, option->value ? " " : "",
                 option->value ? option->value : "");
        snprintf(right, sizeof right, "%s%s%s%s", option->meaning,
                 option->fallback ? " (default " : "", option->fallback ? option->fallback : "",
                 option->fallback ? ")" : "");
        int width = command->settings ? 20 : 18;
        if ((int)strlen(left) > width)
            fprintf(to, "  %s\n%*s", left, width + 3, "");
        else
            fprintf(to, "  %-*s ", width, left);
        cli_wrap(to, right, width + 3, CLI_PAGE_WIDTH);
    }
    if (command->settings)
        fputs("Every other setting is an option too: `dro list settings` shows them all.\n", to);
}

/* ---- numbers and names ---- */

static bool parse_real(const char *text, double *value)
{
    char *end;
    errno = 0;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value);
}

int cli_optimizers(const char *names[CLI_NAMES])
{
    int count = 0;
    while (count < CLI_NAMES && (names[count] = dro_optimizer_name(count)))
        count++;
    return count;
}

/* ---- the parser: every function returns 0 or the exit status after its line ---- */

static int unknown_option(const cli_command *command, const char *given, size_t length)
{
    const cli_option *option;
    const char *names[MAX_OPTIONS];
    char word[48];
    int count = 0;
    for (; count < MAX_OPTIONS && (option = cli_option_at(command, count)); count++)
        names[count] = option->name;
    snprintf(word, sizeof word, "%.*s", (int)(length > 40 ? 40 : length), given);
    const char *nearest = *word ? dro_nearest(word, names, count) : NULL;
    if (nearest)
        return cli_usage("%s: no option --%s: did you mean --%s?", command->name, word, nearest);
    return cli_usage("%s: no option --%s: 'dro %s --help' lists them", command->name, word,
                     command->name);
}

static int check_backend(const cli_command *command, const char *value)
{
    char all[256] = "";
    const char *name;
    if (strcmp(value, "auto") == 0)
        return 0;
    for (int i = 0; (name = dro_backend_name(i)); i++) {
        if (strcmp(value, name) == 0)
            return 0;
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "", name);
    }
    return cli_usage("%s: --backend %s: expected auto or what this build has, %s%s", command->name,
                     value, all, strcmp(value, "cuda") ? "" : " (`make cuda` builds it with cuda)");
}

/* What an option names that is written and cannot be standard output, or NULL. */
static const char *written(const cli_option *option)
{
    if (strcmp(option->value, "DIR") == 0 || strcmp(option->value, "FOLDER") == 0)
        return "folder";
    return strncmp(option->value, "OUT", 3) == 0 ? "file" : NULL;
}

static int check_value(const cli_command *command, const cli_option *option, const char *value)
{
    double real;
    switch (option->kind) {
    case CLI_FLAG:
    case CLI_SWITCH:
        return 0;
    case CLI_TEXT:
        if (strcmp(value, "-") == 0 && written(option))
            return cli_usage("%s: --%s -: expected a %s, not standard output", command->name,
                             option->name, written(option));
        return strcmp(option->name, "backend") == 0 ? check_backend(command, value) : 0;
    case CLI_INTEGER:
        if (!parse_real(value, &real) || real != floor(real) || real < option->low ||
            real > option->high)
            return cli_usage("%s: --%s %s: expected a whole number from %.15g to %.15g",
                             command->name, option->name, value, option->low, option->high);
        return 0;
    case CLI_REAL:
        break;
    }
    if (!parse_real(value, &real) || real < option->low || real > option->high)
        return cli_usage("%s: --%s %s: expected a number from %g to %g", command->name,
                         option->name, value, option->low, option->high);
    return 0;
}

static int needs_value(const cli_command *command, const cli_option *option)
{
    const dro_setting *s = cli_setting(option->name);
    bool choice = s && option->value && strcmp(option->value, "WORD") == 0;
    return cli_usage("%s: --%s needs a value: --%s %s", command->name, option->name, option->name,
                     choice ? s->param.choices : option->value);
}

/* argv[*at] begins with a dash. */
static int parse_option(cli_args *args, int argc, char **argv, int *at)
{
    const cli_command *command = args->command;
    const char *given = argv[*at] + (argv[*at][1] == '-' ? 2 : 1);
    if (strcmp(argv[*at], "-h") == 0)
        given = "help";
    else if (argv[*at][1] != '-')
        return cli_usage("%s: no option %s: options begin with two dashes", command->name,
                         argv[*at]);
    size_t length = strcspn(given, "=");
    const char *value = given[length] == '=' ? given + length + 1 : NULL;
    int index = option_given(command, given, length);
    if (index < 0)
        return unknown_option(command, given, length);
    const cli_option *option = cli_option_at(command, index);
    if (option->kind == CLI_FLAG && value)
        return cli_usage("%s: --%s takes no value", command->name, option->name);
    if (option->kind == CLI_FLAG) {
        value = "";
    } else if (option->kind == CLI_SWITCH) {
        value = value ? value : "yes";
    } else if (!value) {
        if (*at + 1 >= argc || strncmp(argv[*at + 1], "--", 2) == 0)
            return needs_value(command, option);
        value = argv[++*at];
    }
    args->values[index] = value;
    if (args->given_count == MAX_GIVEN)
        return cli_usage("%s: more than %d options", command->name, MAX_GIVEN);
    args->given[args->given_count].index = index;
    args->given[args->given_count++].value = value;
    args->help = args->help || strcmp(option->name, "help") == 0;
    return check_value(command, option, value);
}

/* Whether the word may be meant for --data, which the command has and the line has not. */
static bool is_data(const cli_args *args, const char *word)
{
    const cli_option *option;
    for (int k = 0; (option = cli_option_at(args->command, k)); k++)
        if (strcmp(option->name, "data") == 0)
            return !args->values[k] && strpbrk(word, ".:/");
    return false;
}

static int check_words(const cli_args *args)
{
    const cli_command *c = args->command;
    if (args->word_count > c->most && c->most == 0 && is_data(args, args->words[0]))
        return cli_usage("%s: unexpected word '%s': did you mean --data %s?", c->name,
                         args->words[0], args->words[0]);
    if (args->word_count > c->most)
        return cli_usage("%s: unexpected word '%s': usage: dro %s %s", c->name,
                         args->words[c->most], c->name, c->usage);
    if (args->word_count < c->least)
        return cli_usage("%s: an argument is missing: usage: dro %s %s", c->name, c->name,
                         c->usage);
    return 0;
}

static int parse(cli_args *args, int argc, char **argv)
{
    bool words_only = false;
    for (int i = 0; i < argc && !args->help; i++) {
        if (!words_only && strcmp(argv[i], "--") == 0) {
            words_only = true;
        } else if (!words_only && argv[i][0] == '-' && argv[i][1]) {
            int status = parse_option(args, argc, argv, &i);
            if (status)
                return status;
        } else {
            args->words[args->word_count++] = argv[i]; /* never beyond i */
        }
    }
    return args->help ? 0 : check_words(args);
}

/* A command that does not divide its work among ranks would do all of it on each. */
static int refuse_ranks(const cli_command *command)
{
    if (command->ranks || dro_comm_started(NULL, NULL) == 1)
        return 0;
    return cli_usage("dro %s runs in one process: leave out mpirun (with DRO_ALONE=1 in the "
                     "environment each rank runs its own)",
                     command->name);
}

/* An unknown DRO_CPU, except by `dro doctor`, which reports it. */
static int refuse_instructions(const cli_command *command)
{
    const char *wrong = NULL;
    dro_cpu_instructions(&wrong);
    if (!wrong || strcmp(command->name, "doctor") == 0)
        return 0;
    return cli_usage("DRO_CPU=%s: expected %s, or unset it", wrong, dro_cpu_choices());
}

int cli_run(const cli_command *command, int argc, char **argv)
{
    cli_args args = {.command = command, .words = argv};
    int status = parse(&args, argc, argv);
    if (args.help) {
        cli_help(stdout, command);
        return 0;
    }
    status = status ? status : refuse_instructions(command);
    if (!command->ranks)
        status = status ? status : refuse_ranks(command);
    if (status == 0) {
        status = command->run(&args);
        cli_ready();
    }
    if (status && command->ranks)
        cli_ranks_leave(&args);
    return status;
}

/* ---- what a command reads ---- */

const char *cli_text(const cli_args *args, const char *name)
{
    int index = option_find(args->command, name, strlen(name));
    if (index < 0)
        return NULL;
    return args->values[index] ? args->values[index]
                               : cli_option_at(args->command, index)->fallback;
}

const char *cli_given(const cli_args *args, const char *name, int k)
{
    int index = option_find(args->command, name, strlen(name));
    for (int i = 0; i < args->given_count; i++)
        if (args->given[i].index == index && k-- == 0)
            return args->given[i].value;
    return NULL;
}

const char *cli_given_at(const cli_args *args, int k, const char **value)
{
    if (k >= args->given_count)
        return NULL;
    *value = args->given[k].value;
    return cli_option_at(args->command, args->given[k].index)->name;
}

double cli_real(const cli_args *args, const char *name)
{
    double value = 0;
    const char *text = cli_text(args, name);
    return text && parse_real(text, &value) ? value : 0;
}

long long cli_integer(const cli_args *args, const char *name)
{
    return (long long)cli_real(args, name);
}

bool cli_flag(const cli_args *args, const char *name)
{
    return cli_text(args, name) != NULL;
}

bool cli_json(const cli_args *args)
{
    return cli_flag(args, "json");
}

const char *cli_name(const cli_args *args)
{
    return args->command->name;
}

const cli_command *cli_command_of(const cli_args *args)
{
    return args->command;
}

const char *cli_word(const cli_args *args, int index)
{
    return index >= 0 && index < args->word_count ? args->words[index] : NULL;
}

void cli_backend_fail(const char *backend, dro_status status)
{
    const char *name, *why = dro_backend_missing(backend);
    char text[200];
    snprintf(text, sizeof text, "%s", why ? why : dro_status_text(status));
    for (int i = 0; (name = dro_backend_name(i)); i++)
        if (!dro_backend_missing(name))
            break;
    if (status == DRO_ERR_DEVICE && name)
        cli_fail("--backend %s cannot be used: %s: --backend %s works here", backend, text, name);
    else if (status == DRO_ERR_NAME)
        cli_fail("--backend %s cannot be used: this build does not have it: --backend auto selects "
                 "the fastest that works here",
                 backend);
    else
        cli_fail("--backend %s cannot be used: %s", backend, text);
}

dro_context *cli_context(const cli_args *args)
{
    dro_context *ctx = NULL;
    const char *backend = cli_text(args, "backend");
    dro_status status = dro_context_create(backend, (int)cli_integer(args, "threads"), &ctx);
    if (status != DRO_OK)
        cli_backend_fail(backend, status);
    return ctx;
}

/* Why --backend cuda would not help here, NULL if it would. */
static const char *without_cuda(void)
{
    const char *name;
    for (int i = 0; (name = dro_backend_name(i)); i++)
        if (strcmp(name, "cuda") == 0)
            return dro_backend_missing(name);
    return "this build does not have it";
}

int cli_precision(const char *command, const char *option, const char *word, const dro_context *ctx)
{
    bool lower = word && (strcmp(word, "tf32") == 0 || strcmp(word, "bf16") == 0);
    if (!word || strcmp(word, "fp32") == 0)
        return 0;
    if (!lower)
        return cli_usage("%s: %s%s: expected fp32, tf32 or bf16", command, option, word);
    const char *backend = dro_context_backend(ctx), *why = without_cuda();
    if (strcmp(backend, "cuda") == 0)
        return 0;
    if (why)
        return cli_usage("%s: %s%s: the backend %s computes in fp32: leave it out (%s is "
                         "for cuda, which cannot be used here: %s)",
                         command, option, word, backend, word, why);
    return cli_usage("%s: %s%s: the backend %s computes in fp32: leave it out, or use "
                     "--backend cuda",
                     command, option, word, backend);
}
