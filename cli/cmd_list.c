/* dro list: the optimisers with their parameters, the settings, models, losses, metrics and
 * recipes, and the backends and formats of this build. */
#include "cli.h"

#include <dro/data.h>
#include <dro/metrics.h>
#include <dro/train.h>
#include <string.h>

static const char *const kinds[] = {
    [DRO_PARAM_REAL] = "real", [DRO_PARAM_INTEGER] = "integer", [DRO_PARAM_CHOICE] = "choice",
    [DRO_PARAM_LIST] = "list", [DRO_PARAM_TEXT] = "text",       [DRO_PARAM_TIME] = "time",
};

static json_t *choices_json(const char *choices)
{
    json_t *list = json_array();
    while (choices && *choices) {
        size_t length = strcspn(choices, "|");
        json_array_append_new(list, json_stringn(choices, length));
        choices += length + (choices[length] == '|');
    }
    return list;
}

static json_t *param_json(const dro_param *p)
{
    bool choice = p->kind == DRO_PARAM_CHOICE || p->kind == DRO_PARAM_TEXT;
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:s}", "name", p->name, "kind", kinds[p->kind],
                     "default", p->fallback, "low", choice ? json_null() : cli_number(p->low),
                     "high", choice ? json_null() : cli_number(p->high), "choices",
                     p->kind == DRO_PARAM_CHOICE ? choices_json(p->choices) : json_null(),
                     "meaning", p->meaning);
}

/* ---- things with a name and a summary ---- */

typedef struct listed {
    const char *kind, *word; /* the name of one, and the word that lists them */
    const char *(*name)(int index), *(*summary)(int index);
    json_t *(*json)(int index);
    void (*print)(int index); /* prints the details of one, below its summary */
} listed;

static int emit_all(const listed *l)
{
    json_t *list = json_array();
    for (int i = 0; l->name(i); i++)
        json_array_append_new(list, l->json(i));
    return cli_emit(list);
}

static int print_all(const listed *l, const char *header)
{
    const char *const headers[] = {header, "what it is"};
    cli_table *table = cli_table_create(2, headers);
    for (int i = 0; l->name(i); i++) {
        cli_table_cell(table, "%s", l->name(i));
        cli_table_cell(table, "%s", l->summary(i));
    }
    cli_table_print(table);
    return 0;
}

static int list_one(const cli_args *args, const listed *l, const char *wanted)
{
    const char *names[CLI_NAMES];
    int count = 0;
    for (; count < CLI_NAMES && l->name(count); count++) {
        names[count] = l->name(count);
        if (strcmp(names[count], wanted) != 0)
            continue;
        if (cli_json(args))
            return cli_emit(json_pack("[o]", l->json(count)));
        printf("%s\n\n", l->summary(count));
        l->print(count);
        return 0;
    }
    const char *nearest = dro_nearest(wanted, names, count);
    if (nearest)
        return cli_usage("list: no %s '%s': did you mean '%s'?", l->kind, wanted, nearest);
    return cli_usage("list: no %s '%s': 'dro list %s' lists them", l->kind, wanted, l->word);
}

/* ---- optimisers ---- */

/* The next default of dro train, from *index on, that is for this optimiser. */
static bool next_default(const char *optimizer, int *index, dro_default *d)
{
    dro_param p;
    while (dro_train_default((*index)++, d) == DRO_OK) {
        if (d->optimizer && strcmp(d->optimizer, optimizer) != 0)
            continue;
        for (int i = 0; dro_optimizer_param(optimizer, i, &p) == DRO_OK; i++)
            if (strcmp(p.name, d->name) == 0)
                return true;
    }
    return false;
}

static json_t *optimizer_json(int index)
{
    const char *name = dro_optimizer_name(index);
    json_t *params = json_array(), *defaults = json_array();
    dro_param p;
    dro_default d;
    for (int i = 0; dro_optimizer_param(name, i, &p) == DRO_OK; i++)
        json_array_append_new(params, param_json(&p));
    for (int i = 0; next_default(name, &i, &d);)
        json_array_append_new(defaults, json_pack("{s:s?, s:s, s:s, s:s}", "data", d.data, "name",
                                                  d.name, "value", d.value, "why", d.why));
    return json_pack("{s:s, s:s, s:o, s:o}", "name", name, "summary", dro_optimizer_summary(index),
                     "params", params, "train", defaults);
}

/* One line for a parameter, wrapped: its name, its default, what it means and what is allowed. */
static void print_param(const dro_param *p)
{
    char text[600];
    size_t used = (size_t)snprintf(text, sizeof text, "%s", p->meaning);
    if (p->kind == DRO_PARAM_CHOICE) { /* with spaces, so that a long list of words wraps */
        const char *before = " (";
        for (const char *c = p->choices; *c && used + 40 < sizeof text; before = ", ") {
            int length = (int)strcspn(c, "|");
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%.*s", before, length, c);
            c += length + (c[length] == '|');
        }
        snprintf(text + used, sizeof text - used, ")");
    } else if (p->kind == DRO_PARAM_TIME) {
        snprintf(text + used, sizeof text - used, " (seconds, or 90s, 30m, 2h)");
    } else if (p->kind != DRO_PARAM_TEXT) {
        snprintf(text + used, sizeof text - used, " (%s%g to %g)",
                 p->kind == DRO_PARAM_LIST ? "list of " : "", p->low, p->high);
    }
    cli_wrap(stdout, text, printf("  %-22s %-18s ", p->name, *p->fallback ? p->fallback : "-"),
             CLI_PAGE_WIDTH);
}

static void print_params(const char *name)
{
    dro_param p;
    printf("  %-22s %-18s meaning (allowed values)\n", "parameter", "default");
    for (int i = 0; dro_optimizer_param(name, i, &p) == DRO_OK; i++)
        print_param(&p);
}

static void print_optimizer(int index)
{
    const char *name = dro_optimizer_name(index);
    dro_default d;
    char text[400];
    print_params(name);
    printf("\nDefaults of dro train that differ:\n\n");
    printf("  %-8s %-20s value (why)\n", "for", "parameter");
    for (int i = 0; next_default(name, &i, &d);) {
        snprintf(text, sizeof text, "%s (%s)", d.value, d.why);
        cli_wrap(stdout, text, printf("  %-8s %-20s ", d.data ? d.data : "all", d.name),
                 CLI_PAGE_WIDTH);
    }
    printf(
        "\nOf two lines for one parameter the lower one applies. Networks: all models except the\n"
        "linear one on a stream or on sparse rows of many features. Hidden: networks with hidden\n"
        "layers on tables.\n");
}

static const listed optimizers = {"optimiser",           "optimizers",   dro_optimizer_name,
                                  dro_optimizer_summary, optimizer_json, print_optimizer};

static int list_optimizers(const cli_args *args)
{
    if (cli_word(args, 1))
        return list_one(args, &optimizers, cli_word(args, 1));
    return cli_json(args) ? emit_all(&optimizers) : print_all(&optimizers, "optimizer");
}

/* ---- backends ---- */

static json_t *backend_json(int index)
{
    const char *name = dro_backend_name(index), *why = dro_backend_missing(name);
    return json_pack("{s:s, s:s, s:b, s:s?}", "name", name, "summary", dro_backend_summary(index),
                     "works", !why, "missing", why);
}

static int print_backends(void)
{
    static const char *const headers[] = {"backend", "what it is"};
    cli_table *table = cli_table_create(2, headers);
    const char *name;
    for (int i = 0; (name = dro_backend_name(i)); i++) {
        const char *why = dro_backend_missing(name);
        cli_table_cell(table, "%s", name);
        cli_table_cell(table, "%s%s%s", dro_backend_summary(i),
                       why ? "; cannot be used here: " : "", why ? why : "");
    }
    cli_table_print(table);
    return 0;
}

static int list_backends(const cli_args *args)
{
    static const listed backends = {"backend",           "backends",   dro_backend_name,
                                    dro_backend_summary, backend_json, NULL};
    return cli_json(args) ? emit_all(&backends) : print_backends();
}

/* ---- formats ---- */

enum { INDENT = 10 };

static json_t *format_json(int index)
{
    return json_pack("{s:s, s:s, s:s, s:s?}", "name", dro_format_name(index), "summary",
                     dro_format_summary(index), "usage", dro_format_usage(index), "details",
                     dro_format_details(index));
}

/* name:usage in lines of at most CLI_PAGE_WIDTH, broken before an option in brackets or "or". */
static void print_usage(int index, int indent)
{
    const char *rest = dro_format_usage(index);
    int column = printf("%*s%s:", indent, "", dro_format_name(index));
    while (*rest) {
        size_t length = 1;
        while (rest[length] && rest[length] != '[' && strncmp(rest + length, " or ", 4) != 0)
            length++;
        if (column + (int)length > CLI_PAGE_WIDTH) {
            column = printf("\n%*s", indent + 4, "") - 1;
            rest += *rest == ' ';
        }
        column += printf("%.*s", (int)length, rest);
        rest += length;
    }
    printf("\n");
}

static void print_format(int index)
{
    print_usage(index, 0);
    if (dro_format_details(index))
        printf("\n%s\n", dro_format_details(index));
    printf("\n'dro data --help' lists the options that all formats have.\n");
}

static int list_formats(const cli_args *args)
{
    static const listed formats = {"format",           "formats",   dro_format_name,
                                   dro_format_summary, format_json, print_format};
    if (cli_word(args, 1))
        return list_one(args, &formats, cli_word(args, 1));
    if (cli_json(args))
        return emit_all(&formats);
    for (int i = 0; dro_format_name(i); i++) {
        printf("%s%-*s%s\n", i ? "\n" : "", INDENT, dro_format_name(i), dro_format_summary(i));
        print_usage(i, INDENT);
    }
    return 0;
}

/* ---- models: built at their usual shape, without memory for weights ---- */

/* 1234567 as "1.23 M". */
static void print_scaled(char *text, size_t size, double value)
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    int k = 0;
    for (; value >= 1000 && k < 4; k++)
        value /= 1000;
    snprintf(text, size, "%.*f%s",
             k == 0 || value >= 100 ? 0
             : value >= 10          ? 1
                                    : 2,
             value, units[k]);
}

static void model_row(cli_table *table, json_t *list, int index, const dro_net *net)
{
    dro_model_shape in = dro_net_shape(net);
    const char *name = dro_model_name(index), *summary = dro_model_summary(index);
    size_t parameters = dro_net_parameters(net);
    uint64_t adds = dro_net_multiply_adds(net);
    if (list) {
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:[i,i,i], s:i, s:s}", "name", name,
                                              "parameters", (json_int_t)parameters, "multiply_adds",
                                              (json_int_t)adds, "input", in.channels, in.height,
                                              in.width, "outputs", in.outputs, "summary", summary));
        return;
    }
    char text[32];
    cli_table_cell(table, "%s", name);
    print_scaled(text, sizeof text, (double)parameters);
    cli_table_cell(table, "%s", text);
    print_scaled(text, sizeof text, (double)adds);
    cli_table_cell(table, "%s", text);
    cli_table_cell(table, "%d x %d x %d to %d", in.channels, in.height, in.width, in.outputs);
    cli_table_cell(table, "%s", summary);
}

static int list_models(const cli_args *args)
{
    const char *const headers[] = {"model", ">parameters", ">multiply-adds", "of", "what it is"};
    dro_context *ctx = cli_context(args);
    if (!ctx)
        return 1;
    json_t *list = cli_json(args) ? json_array() : NULL;
    cli_table *table = list ? NULL : cli_table_create(5, headers);
    int status = 0;
    for (int i = 0; dro_model_name(i) && status == 0; i++) {
        dro_model_shape shape = dro_model_usual(i);
        dro_net *net;
        if (dro_net_model(ctx, dro_model_name(i), &shape, &net) != DRO_OK)
            status = cli_fail("list: %s", dro_context_error(ctx));
        else
            model_row(table, list, i, net);
        dro_net_destroy(net);
    }
    dro_context_destroy(ctx);
    if (list)
        return cli_emit(list) ? 1 : status;
    cli_table_print(table);
    return status;
}

static int list_recipes(const cli_args *args)
{
    dro_recipe r;
    if (cli_json(args)) {
        json_t *list = json_array();
        for (int i = 0; dro_recipe_setting(i, &r) == DRO_OK; i++)
            json_array_append_new(list,
                                  json_pack("{s:s, s:s?, s:s?, s:s, s:s, s:s}", "recipe", r.recipe,
                                            "optimizer", r.optimizer, "data", r.data, "name",
                                            r.name, "value", r.value, "why", r.why));
        return cli_emit(list);
    }
    const char *const headers[] = {"recipe", "for", "sets", "why"};
    cli_table *table = cli_table_create(4, headers);
    for (int i = 0; dro_recipe_setting(i, &r) == DRO_OK; i++) {
        cli_table_cell(table, "%s", r.recipe);
        cli_table_cell(table, "%s%s%s", r.optimizer ? r.optimizer : "all", r.data ? ", " : "",
                       r.data ? r.data : "");
        cli_table_cell(table, "%s=%s", r.name, r.value);
        cli_table_cell(table, "%s", r.why);
    }
    cli_table_print(table);
    return 0;
}

/* ---- losses ---- */

/* The settings that affect a loss. */
static json_t *loss_settings(const char *loss)
{
    json_t *list = json_array();
    dro_param p;
    for (int i = 0; dro_net_param(i, &p) == DRO_OK; i++)
        if (dro_loss_has(loss, p.name))
            json_array_append_new(list, json_string(p.name));
    return list;
}

static json_t *loss_json(int index)
{
    const char *name = dro_loss_name(index);
    return json_pack("{s:s, s:s, s:b, s:o}", "name", name, "summary", dro_loss_summary(index),
                     "proper", dro_loss_proper(name), "settings", loss_settings(name));
}

static int list_losses(const cli_args *args)
{
    static const listed losses = {"loss",           "losses",  dro_loss_name,
                                  dro_loss_summary, loss_json, NULL};
    if (cli_json(args))
        return emit_all(&losses);
    print_all(&losses, "loss");
    printf("\n  %-22s %-18s meaning (allowed values)\n", "setting", "default");
    dro_param p;
    for (int i = 0; dro_net_param(i, &p) == DRO_OK; i++)
        if (dro_loss_has(NULL, p.name))
            print_param(&p);
    return 0;
}

/* ---- metrics ---- */

static int list_metrics(const cli_args *args)
{
    static const struct {
        const char *name, *meaning;
        int better;
    } metrics[] = {
#define X(name, code, title, better, unit, meaning) {#name, meaning, better},
        DRO_METRIC_LIST(X)
#undef X
    };
    const char *const headers[] = {"metric", "better", "what it is"};
    json_t *list = cli_json(args) ? json_array() : NULL;
    cli_table *table = list ? NULL : cli_table_create(3, headers);
    for (size_t k = 0; k < sizeof metrics / sizeof metrics[0]; k++) {
        const char *better = metrics[k].better > 0 ? "higher" : "lower";
        if (list) {
            json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", metrics[k].name,
                                                  "better", better, "summary", metrics[k].meaning));
            continue;
        }
        cli_table_cell(table, "%s", metrics[k].name);
        cli_table_cell(table, "%s", better);
        cli_table_cell(table, "%s", metrics[k].meaning);
    }
    if (list)
        return cli_emit(list);
    cli_table_print(table);
    printf("\nThese are names for --best of dro train and --by of dro sweep.\n");
    return 0;
}

/* ---- settings ---- */

/* Where a setting applies: to every run, to networks, or to these optimisers. */
static void print_where(const dro_setting *s, char *text, size_t size)
{
    size_t used = 0;
    int all = 0, have = 0;
    for (; dro_optimizer_name(all); all++)
        have += dro_setting_known(dro_optimizer_name(all), s->param.name);
    if (s->owner != DRO_SETTING_OPTIMIZER || have == all) {
        snprintf(text, size, "%s",
                 s->owner == DRO_SETTING_RUN       ? "every run"
                 : s->owner == DRO_SETTING_NETWORK ? "networks"
                                                   : "every optimiser");
        return;
    }
    bool few = have <= all / 2;
    const char *before = few ? "" : "all optimisers but ";
    for (int i = 0; i < all && used < size; i++)
        if (dro_setting_known(dro_optimizer_name(i), s->param.name) == few) {
            used +=
                (size_t)snprintf(text + used, size - used, "%s%s", before, dro_optimizer_name(i));
            before = ", ";
        }
}

/* The default of a setting by optimiser, an object; NULL where all have the same. */
static json_t *defaults_json(const dro_setting *s)
{
    json_t *all = json_object();
    dro_param p;
    const char *name;
    bool differ = false;
    for (int k = 0; s->owner == DRO_SETTING_OPTIMIZER && (name = dro_optimizer_name(k)); k++)
        for (int i = 0; dro_optimizer_param(name, i, &p) == DRO_OK; i++)
            if (strcmp(p.name, s->param.name) == 0) {
                json_object_set_new(all, name, json_string(p.fallback));
                differ = differ || strcmp(p.fallback, s->param.fallback) != 0;
            }
    if (differ)
        return all;
    json_decref(all);
    return NULL;
}

static int emit_settings(void)
{
    json_t *list = json_array();
    char where[300];
    dro_setting s;
    for (int i = 0; dro_setting_at(i, &s) == DRO_OK; i++) {
        json_t *row = param_json(&s.param);
        print_where(&s, where, sizeof where);
        json_object_set_new(row, "applies_to", json_string(where));
        json_t *defaults = defaults_json(&s);
        if (defaults) {
            json_object_set_new(row, "default", json_null());
            json_object_set_new(row, "defaults", defaults);
        }
        json_array_append_new(list, row);
    }
    return cli_emit(list);
}

/* The settings that apply to the same runs as the i-th, if it is the first of them. */
static void print_group(int index)
{
    char first[300], where[300];
    dro_setting s;
    dro_setting_at(index, &s);
    print_where(&s, first, sizeof first);
    for (int i = 0; dro_setting_at(i, &s) == DRO_OK; i++) {
        print_where(&s, where, sizeof where);
        if (strcmp(where, first) != 0)
            continue;
        if (i < index)
            return;
        if (i == index)
            printf("\n%s:\n", where);
        json_t *defaults = defaults_json(&s);
        if (defaults)
            s.param.fallback = "by optimizer";
        json_decref(defaults);
        print_param(&s.param);
    }
}

static int list_settings(const cli_args *args)
{
    dro_setting s;
    if (cli_json(args))
        return emit_settings();
    printf("  %-22s %-18s meaning (allowed values)\n", "setting", "default");
    for (int i = 0; dro_setting_at(i, &s) == DRO_OK; i++)
        print_group(i);
    printf(
        "\nEach is an option of dro train, compare and sweep (--max-time 30m), a name for --set\n"
        "(max_time=30m) and a name in config.json. A default of - means that the\n"
        "setting is not set, or follows from the data; 'by optimizer', that optimisers have\n"
        "different ones: 'dro list optimizers NAME' shows those of one, and what dro train\n"
        "changes.\n");
    return 0;
}

/* A line for each list. */
static const char lists_text[] =
    "dro list optimizers        every optimiser in one line\n"
    "dro list optimizers NAME   its parameters, and the defaults of dro train that differ\n"
    "dro list settings          every setting of a run, grouped by where it applies\n"
    "dro list models            the networks: parameters, multiply-adds of one example\n"
    "dro list losses            the losses, and the settings that they have\n"
    "dro list metrics           what is measured, and whether higher or lower is better\n"
    "dro list backends          the backends of this build, fastest first\n"
    "dro list formats           the data formats and their options\n"
    "dro list formats NAME      one of them\n"
    "dro list recipes           what --recipe NAME sets, and why";

static int print_lists(const cli_args *args, const char *const *names, int count)
{
    json_t *list = json_array();
    for (int k = 0; k < count; k++)
        json_array_append_new(list, json_string(names[k]));
    if (cli_json(args))
        return cli_emit(list);
    json_decref(list);
    puts(lists_text);
    return 0;
}

static int run(const cli_args *args)
{
    static const struct {
        const char *word;
        int (*list)(const cli_args *args);
        bool one; /* NAME may follow */
    } lists[] = {{"optimizers", list_optimizers, true}, {"settings", list_settings, false},
                 {"models", list_models, false},        {"losses", list_losses, false},
                 {"metrics", list_metrics, false},      {"backends", list_backends, false},
                 {"formats", list_formats, true},       {"recipes", list_recipes, false}};
    enum { LISTS = sizeof lists / sizeof lists[0] };
    const char *word = cli_word(args, 0), *names[LISTS];
    for (int k = 0; k < LISTS; k++) {
        names[k] = lists[k].word;
        if (!word || strcmp(word, names[k]) != 0)
            continue;
        if (cli_word(args, 1) && !lists[k].one)
            return cli_usage("list: unexpected word '%s': usage: dro list %s", cli_word(args, 1),
                             word);
        return lists[k].list(args);
    }
    if (!word)
        return print_lists(args, names, LISTS);
    const char *nearest = dro_nearest(word, names, LISTS);
    if (nearest)
        return cli_usage("list: no list '%s': did you mean '%s'?", word, nearest);
    return cli_usage("list: no list '%s': 'dro list' names them", word);
}

const cli_command cmd_list = {
    .name = "list",
    .usage = "[optimizers [NAME] | settings | models | losses | metrics | "
             "backends | formats [NAME] | recipes]",
    .summary = "list optimisers, settings, models, losses, metrics, backends, formats, recipes",
    .details = lists_text,
    .most = 2,
    .words = "optimizers settings models losses metrics formats backends recipes",
    .run = run,
};
