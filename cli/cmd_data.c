/* `dro data SPEC`: what is in a data set: shapes, classes, counts. Sees the public headers only. */
#include "cli.h"

#include <dro/data.h>
#include <stdio.h>

static const char *const split_names[DRO_SPLITS] = {"train", "test", "holdout"};

static json_t *split_json(const dro_data_info *info, int s)
{
    json_t *counts = json_array();
    for (int32_t k = 0; info->counts[s] && k < info->classes; k++)
        json_array_append_new(counts, json_integer(info->counts[s][k]));
    return json_pack("{s:I, s:o}", "examples", (json_int_t)info->examples[s], "counts", counts);
}

static json_t *shape_json(const dro_data_info *info)
{
    if (info->kind == DRO_DATA_PIXELS)
        return json_pack("[i,i,i]", info->channels, info->height, info->width);
    if (info->kind == DRO_DATA_FILES)
        return json_pack("[i,n,n]", info->channels);
    return json_pack("[I]", (json_int_t)info->features);
}

/* A name that is not UTF-8 has no place in JSON. */
static json_t *name_json(const char *name)
{
    json_t *text = json_string(name);
    return text ? text : json_string("(not UTF-8)");
}

static int print_json(const dro_data_info *info)
{
    json_t *names = json_array(), *groups = json_array();
    for (int32_t k = 0; k < info->classes; k++)
        json_array_append_new(names, name_json(info->class_names[k]));
    for (int32_t k = 0; k < info->groups; k++)
        json_array_append_new(groups, name_json(info->group_names[k]));
    json_t *document =
        json_pack("{s:s, s:o, s:b, s:o, s:o, s:o, s:o, s:I, s:I, s:i}", "format", info->format,
                  "shape", shape_json(info), "sparse", info->kind == DRO_DATA_SPARSE, "classes",
                  names, "groups", groups, "train", split_json(info, DRO_TRAIN), "test",
                  split_json(info, DRO_TEST), "bytes_read", (json_int_t)info->bytes_read, "memory",
                  (json_int_t)info->memory, "skipped", info->skipped);
    if (info->examples[DRO_HOLDOUT])
        json_object_set_new(document, "holdout", split_json(info, DRO_HOLDOUT));
    return cli_emit(document);
}

static void print_shape(const dro_data_info *info)
{
    static const char *const kinds[] = {"images in memory", "images in files", "rows of numbers",
                                        "sparse rows", "a stream of rows"};
    printf("%s: %s", info->format, kinds[info->kind]);
    if (info->kind == DRO_DATA_PIXELS)
        printf(", %d x %d, %d channel%s", info->width, info->height, info->channels,
               info->channels == 1 ? "" : "s");
    else if (info->kind != DRO_DATA_FILES)
        printf(", %zu features", info->features);
    printf("\n");
    for (int s = 0; s < DRO_SPLITS; s++)
        if (info->examples[s] || s != DRO_HOLDOUT)
            printf("%-8s %lld examples\n", split_names[s], (long long)info->examples[s]);
    printf("read     %.1f MB, %.1f MB in memory\n", (double)info->bytes_read / 1e6,
           (double)info->memory / 1e6);
}

static void print_classes(const dro_data_info *info, long long most)
{
    static const char *const headers[] = {">class", "name", ">train", ">test", ">holdout"};
    int columns = info->examples[DRO_HOLDOUT] ? 5 : 4;
    if (info->classes == 0) {
        printf("a real-valued target\n");
        return;
    }
    printf("\n");
    cli_table *t = cli_table_create(columns, headers);
    for (int32_t k = 0; k < info->classes && k < most; k++) {
        cli_table_cell(t, "%d", k);
        cli_table_cell(t, "%s", info->class_names[k]);
        for (int s = 0; s < columns - 2; s++)
            cli_table_cell(t, "%lld", info->counts[s] ? (long long)info->counts[s][k] : 0LL);
    }
    cli_table_print(t);
    if (info->classes > most)
        printf("... %lld more classes (--classes N shows N, --json all)\n",
               (long long)info->classes - most);
}

static int run(const cli_args *args)
{
    dro_context *ctx = cli_context(args);
    dro_data *data = NULL;
    dro_data_info info;
    if (!ctx)
        return 1;
    int status = 0;
    dro_status opened = dro_data_open(ctx, cli_word(args, 0), &data);
    if (opened == DRO_OK)
        opened = dro_data_info_get(data, &info);
    if (opened != DRO_OK) {
        status = cli_fail("%s", dro_context_error(ctx));
    } else if (cli_json(args)) {
        status = print_json(&info);
    } else {
        print_shape(&info);
        for (int k = 0; dro_data_note(data, k); k++)
            printf("skipped  %s\n", dro_data_note(data, k));
        print_classes(&info, cli_integer(args, "classes"));
    }
    dro_data_close(data);
    dro_context_destroy(ctx);
    return status;
}

static const cli_option options[] = {
    {"classes", CLI_INTEGER, "N", "40", 0, 1e9, "how many classes the table lists"},
    CLI_OPTIONS_END,
};

const cli_command cmd_data = {
    .name = "data",
    .usage = "SPEC [--json]",
    .summary = "what is in a data set: shapes, classes, counts",
    .details = "SPEC is format:path[,option=value...], for example synth:glyphs, "
               "cifar10:DIR,imratio=0.1,\n"
               "csv:FILE,label=COLUMN. `dro list formats` names the formats and their options.",
    .options = options,
    .least = 1,
    .most = 1,
    .run = run,
};
