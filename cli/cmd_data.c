/* `dro data SPEC`: the shapes, classes and counts of a data set. Sees the public headers only. */
#include "train.h"

#include <dro/data.h>
#include <dro/stream.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *size_text(char out[32], double bytes)
{
    bool large = bytes >= 1e5;
    snprintf(out, 32, "%.1f %s", bytes / (large ? 1e6 : 1e3), large ? "MB" : "kB");
    return out;
}

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

/* dro_data_skipped: the images that skip_bad skipped, or dro_data_remark. */
static json_t *texts_json(const dro_data *data, const char *(*text)(const dro_data *, int))
{
    json_t *list = json_array();
    for (int k = 0; text(data, k); k++)
        json_array_append_new(list, cli_text_json(text(data, k)));
    return list;
}

static int print_json(const dro_data *data, const dro_data_info *info)
{
    json_t *names = json_array(), *groups = json_array();
    for (int32_t k = 0; k < info->classes; k++)
        json_array_append_new(names, cli_text_json(info->class_names[k]));
    for (int32_t k = 0; k < info->groups; k++)
        json_array_append_new(groups, cli_text_json(info->group_names[k]));
    json_t *document = json_pack(
        "{s:s, s:o, s:b, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o}", "format", info->format, "shape",
        shape_json(info), "sparse", info->kind == DRO_DATA_SPARSE, "classes", names, "groups",
        groups, "train", split_json(info, DRO_TRAIN), "test", split_json(info, DRO_TEST),
        "bytes_read", (json_int_t)info->bytes_read, "memory", (json_int_t)info->memory, "skipped",
        texts_json(data, dro_data_skipped), "notes", texts_json(data, dro_data_remark));
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
        printf(", %zu feature%s", info->features, info->features == 1 ? "" : "s");
    if (info->classes > 0)
        printf(", %d class%s", info->classes, info->classes == 1 ? "" : "es");
    printf("\n");
    for (int s = 0; s < DRO_SPLITS; s++)
        if (info->examples[s] || s != DRO_HOLDOUT)
            printf("%-8s %lld example%s\n", split_names[s], (long long)info->examples[s],
                   info->examples[s] == 1 ? "" : "s");
    char read[32], memory[32];
    printf("read     %s, %s in memory\n", size_text(read, (double)info->bytes_read),
           size_text(memory, (double)info->memory));
    for (int32_t k = 0; k < info->groups && k < 20; k++)
        cli_print("%s%s", k ? ", " : "groups   ", info->group_names[k]);
    if (info->groups)
        puts(info->groups > 20 ? ", ..." : "");
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

/* ---- a stream, from its beginning to its end ---- */

typedef struct stream_summary {
    int64_t rows, *counts; /* (classes) */
    int classes;
    double sum;      /* of y */
    uint64_t memory; /* at most */
} stream_summary;

/* y is the number of the class, or -1 and 1 for two. */
static dro_status read_stream(dro_stream *stream, stream_summary *p)
{
    dro_rows rows;
    dro_status status;
    while (dro_stream_class(stream, p->classes))
        p->classes++;
    p->counts = calloc((size_t)p->classes + 1, sizeof *p->counts);
    if (!p->counts)
        return DRO_ERR_MEMORY;
    while ((status = dro_stream_next(stream, 1, &rows)) == DRO_OK) {
        uint64_t memory = p->rows % 256 ? 0 : dro_stream_memory(stream);
        p->memory = memory > p->memory ? memory : p->memory;
        p->rows++;
        p->sum += (double)rows.y[0];
        if (p->classes)
            p->counts[p->classes == 2 ? rows.y[0] > 0 : (int)rows.y[0]]++;
    }
    return status == DRO_ERR_END ? DRO_OK : status;
}

static int stream_json(const cli_args *args, const dro_stream *stream, const stream_summary *p)
{
    json_t *names = json_array(), *counts = json_array();
    const char *spec = cli_word(args, 0);
    for (int k = 0; k < p->classes; k++) {
        json_array_append_new(names, cli_text_json(dro_stream_class(stream, k)));
        json_array_append_new(counts, json_integer(p->counts[k]));
    }
    json_t *document = json_pack(
        "{s:s%, s:[I], s:b, s:b, s:o, s:{s:I, s:o, s:f}, s:{s:i, s:[]}, s:I, s:I}", "format", spec,
        strcspn(spec, ":"), "shape", (json_int_t)dro_stream_features(stream), "sparse", 1, "stream",
        1, "classes", names, "train", "examples", (json_int_t)p->rows, "counts", counts, "mean_y",
        p->rows ? p->sum / (double)p->rows : 0.0, "test", "examples", 0, "counts", "bytes_read",
        (json_int_t)dro_stream_bytes(stream), "memory", (json_int_t)p->memory);
    return cli_emit(document);
}

static int report_stream(const cli_args *args, const dro_stream *stream, const stream_summary *p)
{
    static const char *const headers[] = {">class", "name", ">train"};
    if (cli_json(args))
        return stream_json(args, stream, p);
    size_t features = dro_stream_features(stream);
    printf("a stream of rows, %zu feature%s\n", features, features == 1 ? "" : "s");
    printf("train    %lld example%s, mean of y %g\n", (long long)p->rows, p->rows == 1 ? "" : "s",
           p->rows ? p->sum / (double)p->rows : 0);
    char read[32], memory[32];
    printf("read     %s, %s in memory at most\n", size_text(read, (double)dro_stream_bytes(stream)),
           size_text(memory, (double)p->memory));
    if (p->classes == 0)
        return 0;
    printf("\n");
    cli_table *t = cli_table_create(3, headers);
    for (int k = 0; k < p->classes && k < cli_integer(args, "classes"); k++) {
        cli_table_cell(t, "%d", k);
        cli_table_cell(t, "%s", dro_stream_class(stream, k));
        cli_table_cell(t, "%lld", (long long)p->counts[k]);
    }
    cli_table_print(t);
    return 0;
}

static int run_stream(const cli_args *args, dro_context *ctx, const char *spec)
{
    dro_stream *stream = NULL;
    stream_summary p = {0};
    cli_busy("reading %s", spec);
    dro_status status = dro_stream_open(ctx, spec, &stream);
    if (status == DRO_OK)
        status = read_stream(stream, &p);
    cli_ready();
    int code =
        status == DRO_OK ? report_stream(args, stream, &p) : cli_fail("%s", dro_context_error(ctx));
    free(p.counts);
    dro_stream_close(stream);
    dro_context_destroy(ctx);
    return code;
}

static int run(const cli_args *args)
{
    char spec[4096];
    int status = cli_label_spec(args, cli_word(args, 0), spec, sizeof spec);
    dro_context *ctx = status ? NULL : cli_context(args);
    dro_data *data = NULL;
    dro_data_info info;
    if (!ctx)
        return status ? status : 1;
    if (cli_flag(args, "stream"))
        return run_stream(args, ctx, spec);
    cli_busy("reading %s", spec);
    dro_status opened = dro_data_open(ctx, spec, &data);
    if (opened == DRO_OK)
        opened = dro_data_info_get(data, &info);
    cli_ready();
    if (opened != DRO_OK) {
        status = cli_fail("%s", dro_context_error(ctx));
    } else if (cli_json(args)) {
        status = print_json(data, &info);
    } else {
        print_shape(&info);
        for (int k = 0; dro_data_skipped(data, k); k++)
            cli_print("skipped  %s\n", dro_data_skipped(data, k));
        for (int k = 0; dro_data_remark(data, k); k++)
            cli_print("note     %s\n", dro_data_remark(data, k));
        print_classes(&info, cli_integer(args, "classes"));
    }
    dro_data_close(data);
    dro_context_destroy(ctx);
    return status;
}

static const cli_option options[] = {
    {"classes", CLI_INTEGER, "N", "40", 0, 1e9, "the largest number of classes to list"},
    {"stream", CLI_FLAG, NULL, NULL, 0, 0,
     "read libsvm or csv as a stream, once and in bounded memory"},
    CLI_OPTION_TEXT("label", "COLUMN", "the label column of a csv table; same as label= in SPEC"),
    CLI_OPTIONS_END,
};

const cli_command cmd_data = {
    .name = "data",
    .usage = "SPEC [--stream] [--json]",
    .summary = "show a data set: shapes, classes, counts",
    .details =
        "SPEC is format:path[,option=value...], for example synth:glyphs, cifar10:DIR,imratio=0.1\n"
        "or csv:FILE,label=COLUMN. A comma in a path or a value is written \\, . `dro list\n"
        "formats` shows the formats and their options. Options of every format:\n"
        "  imratio=R             the first half of the classes keep only this share of\n"
        "                        their examples (the last ones in file order)\n"
        "  longtail=exp:R        the largest class has R times the examples of the smallest; or\n"
        "                        pareto:POWER\n"
        "  holdout=SHARE         set this share of every class aside; seed=N\n"
        "  flip=SHARE            give this share of the training examples a wrong label\n"
        "  skip_bad=N            tolerate N unreadable images; each is named",
    .options = options,
    .least = 1,
    .most = 1,
    .run = run,
};
