/* dro predict: the predictions of trained weights, in the order of the data. */
#define _GNU_SOURCE /* realpath, asprintf */
#include "train.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 256 };

typedef enum format { CSV, JSONL, NPY, JSON } format; /* JSON: one list */

typedef struct output {
    FILE *to;
    const char *name; /* of where it goes */
    cli_file file;    /* of --out */
    format format;
    bool logits, real; /* real: a real-valued output */
    bool prior;        /* the class is the most probable one under --prior */
    int32_t classes;
    dro_predictor *p;
    const char *const *paths; /* of images in files, or NULL */
    const cli_args *named;    /* the command line that names them, or NULL */
    const int64_t *records;
} output;

/* ---- formats ---- */

/* As the user named it. */
static const char *path_of(const output *o, int64_t id)
{
    return o->named ? cli_word(o->named, (int)id) : o->paths[id];
}

static void csv_header(const output *o)
{
    fputs(o->paths ? "path" : "example", o->to);
    if (o->real)
        fputs(",value", o->to);
    else
        fputs(",class,probability", o->to);
    for (int32_t k = 0; !o->real && k < o->classes; k++) {
        char *name = NULL;
        fputc(',', o->to);
        if (asprintf(&name, "%s:%s", o->logits ? "logit" : "p", dro_predictor_class_name(o->p, k)) <
            0)
            cli_no_memory();
        cli_csv_text(o->to, ',', name);
        free(name);
    }
    fputc('\n', o->to);
}

static void csv_row(const output *o, int64_t id, const float *logits, const double *p, int32_t best)
{
    if (o->paths)
        cli_csv_text(o->to, ',', path_of(o, id));
    else
        fprintf(o->to, "%lld", (long long)o->records[id]);
    if (o->real) {
        fprintf(o->to, ",%.9g\n", (double)logits[0]);
        return;
    }
    fputc(',', o->to);
    cli_csv_text(o->to, ',', isnan(p[best]) ? "" : dro_predictor_class_name(o->p, best));
    fprintf(o->to, ",%.6f", p[best]);
    for (int32_t k = 0; k < o->classes; k++)
        fprintf(o->to, o->logits ? ",%.9g" : ",%.6f", o->logits ? (double)logits[k] : p[k]);
    fputc('\n', o->to);
}

static void json_row(const output *o, int64_t id, const float *logits, const double *p,
                     int32_t best)
{
    json_t *row = json_object(), *list = json_array();
    size_t ascii = isatty(fileno(o->to)) ? JSON_ENSURE_ASCII : 0;
    if (o->paths)
        json_object_set_new(row, "path", cli_path_json(path_of(o, id)));
    else
        json_object_set_new(row, "example", json_integer(o->records[id]));
    if (o->real) {
        json_object_set_new(row, "value", cli_number((double)logits[0]));
    } else {
        json_object_set_new(row, "class",
                            isnan(p[best]) ? json_null()
                                           : cli_text_json(dro_predictor_class_name(o->p, best)));
        json_object_set_new(row, "probability", cli_number(p[best]));
        for (int32_t k = 0; k < o->classes; k++)
            json_array_append_new(list, cli_number(o->logits ? (double)logits[k] : p[k]));
        json_object_set(row, o->logits ? "logits" : "probabilities", list);
    }
    json_decref(list);
    if (o->format == JSON)
        fputs(id ? ",\n" : "[\n", o->to);
    json_dumpf(row, o->to, ascii | JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (o->format == JSONL)
        fputc('\n', o->to);
    json_decref(row);
}

/* (count, classes) floats, little-endian as every machine we run on. */
static void npy_header(const output *o, int64_t count)
{
    char text[128];
    int columns = o->real ? 1 : (int)o->classes;
    int used = snprintf(text, sizeof text,
                        "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %d), }",
                        (long long)count, columns);
    while ((10 + used + 1) % 64)
        text[used++] = ' ';
    text[used++] = '\n';
    fwrite("\x93NUMPY\x01\x00", 1, 8, o->to);
    fputc(used & 255, o->to);
    fputc(used >> 8, o->to);
    fwrite(text, 1, (size_t)used, o->to);
}

static void npy_row(const output *o, const float *logits, const double *p)
{
    int32_t columns = o->real ? 1 : o->classes;
    for (int32_t k = 0; k < columns; k++) {
        float value = o->logits || o->real ? logits[k] : (float)p[k];
        fwrite(&value, sizeof value, 1, o->to);
    }
}

/* ---- the loop ---- */

static char list[] = "/tmp/dro-predict-XXXXXX"; /* of the images named on the command line */

/* The error, without "(line 1 of LIST)", as the user did not write a list. */
static int failed(const dro_context *ctx)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", dro_context_error(ctx));
    char *at = strstr(text, list);
    while (at && at > text && *at != '(')
        at--;
    if (at && at > text)
        at[-1] = '\0';
    return cli_fail("%s", text);
}

static int cannot_write(const char *name)
{
    return cli_fail("cannot write to %s: %s", name, strerror(errno));
}

static int predict(dro_context *ctx, const output *o, dro_split split, int64_t count)
{
    int32_t columns = o->real ? 1 : o->classes;
    float *logits = calloc(CHUNK * (size_t)columns, sizeof *logits);
    double *p = calloc((size_t)columns, sizeof *p);
    int status = logits && p ? 0 : cli_fail("no memory for the predictions");
    if (o->to == stdout)
        cli_ready(); /* the first line would stand behind the progress line */
    if (status == 0 && o->format == CSV)
        csv_header(o);
    else if (status == 0 && o->format == NPY)
        npy_header(o, count);
    for (int64_t first = 0; first < count && status == 0; first += CHUNK) {
        size_t some = count - first < CHUNK ? (size_t)(count - first) : CHUNK;
        if (dro_predictor_logits(o->p, split, first, some, logits, NULL) != DRO_OK)
            status = failed(ctx);
        for (size_t i = 0; i < some && status == 0; i++) {
            const float *row = logits + i * (size_t)columns;
            int32_t best = 0;
            if (!o->real)
                dro_predictor_decide(o->p, row, p, &best);
            if (o->format == NPY)
                npy_row(o, row, p);
            else
                (o->format == CSV ? csv_row : json_row)(o, first + (int64_t)i, row, p, best);
        }
        if (cli_stopped())
            status = cli_fail("stopped: nothing is written to %s", o->name);
        else if (fflush(o->to) != 0 ||
                 ferror(o->to)) /* a full disk, or the reader has closed the pipe */
            status = o->to == stdout ? cli_finish(1) : cannot_write(o->name);
        if (o->to != stdout || !isatty(STDOUT_FILENO))
            cli_progress("%lld of %lld", (long long)first + (long long)some, (long long)count);
    }
    if (status == 0 && o->format == JSON)
        fputs(count ? "\n]\n" : "[]\n", o->to);
    free(logits);
    free(p);
    cli_progress(NULL);
    return status;
}

/* --out must not be a file that is read. */
static int check_out(const cli_args *args)
{
    const char *out = cli_text(args, "out");
    bool read = out && (cli_same_file(cli_text(args, "weights"), out) || //
                        cli_spec_reads(cli_text(args, "data"), out));
    for (int i = 0; out && cli_word(args, i); i++)
        read = read || cli_same_file(cli_word(args, i), out);
    return read ? cli_fail("%s is the input: write the predictions to another file", out) : 0;
}

static int open_output(const cli_args *args, output *o)
{
    const char *out = cli_text(args, "out"), *word = cli_text(args, "format");
    out = out && strcmp(out, "-") == 0 ? NULL : out;
    const char *dot = out ? strrchr(out, '.') : NULL;
    static const char *const endings[] = {".csv", ".jsonl", ".json", ".npy"};
    for (size_t k = 0; !word && dot && k < sizeof endings / sizeof endings[0]; k++)
        if (strcmp(dot, endings[k]) == 0)
            word = endings[k] + 1;
    if (!word)
        word = cli_json(args) ? "json" : "csv";
    o->format = strcmp(word, "csv") == 0     ? CSV
                : strcmp(word, "jsonl") == 0 ? JSONL
                : strcmp(word, "json") == 0  ? JSON
                                             : NPY;
    if (o->format == NPY && strcmp(word, "npy") != 0)
        return cli_usage("predict: --format %s: expected csv, jsonl, json or npy", word);
    o->name = out ? out : "standard output";
    int status = out ? cli_file_open(&o->file, out) : 0;
    o->to = out ? o->file.to : stdout;
    return status;
}

/* Says which prior the probabilities have, and how it affects the class. */
static void print_prior(const output *o, const char *prior)
{
    char of[300] = "all classes alike";
    if (!prior || strcmp(prior, "train") == 0)
        snprintf(of, sizeof of, "the classes' shares of the training data");
    else if (strcmp(prior, "uniform") != 0)
        snprintf(of, sizeof of, "the shares of %.250s", prior);
    cli_note(stderr, "prior of the probabilities: %s%s", of,
             !prior && dro_predictor_shifted(o->p) && !dro_predictor_threshold_get(o->p).class_name
                 ? "; the predicted class has the largest output, which gives all classes equal "
                   "weight; with --prior it is the most probable class"
                 : "");
}

static int predict_to(const cli_args *args, dro_context *ctx, dro_predictor *p, bool named)
{
    output o = {.p = p,
                .logits = cli_flag(args, "logits"),
                .prior = cli_text(args, "prior") != NULL,
                .classes = dro_predictor_classes(p),
                .real = dro_predictor_classes(p) == 0};
    const dro_data_info *info = dro_predictor_data(p);
    dro_split split = DRO_TRAIN;
    int status = named ? 0 : cli_split(args, info, &split);
    if (status == 0)
        status = open_output(args, &o);
    if (status)
        return status;
    dro_examples examples;
    if (dro_predictor_examples(p, split, &examples) != DRO_OK) {
        status = failed(ctx);
        return o.to == stdout ? status : cli_file_close(&o.file, status);
    }
    if (o.prior && dro_predictor_prior(p, cli_text(args, "prior")) != DRO_OK) {
        status = failed(ctx);
        return o.to == stdout ? status : cli_file_close(&o.file, status);
    }
    o.paths = examples.paths;
    o.named = named ? args : NULL;
    o.records = examples.records;
    status = predict(ctx, &o, split, examples.count);
    if (!cli_json(args))
        cli_print_remarks(p);
    if (!cli_json(args) && !o.real && !o.logits && status == 0)
        print_prior(&o, cli_text(args, "prior"));
    if (!cli_json(args) && status == 0)
        cli_print_threshold(p, "");
    if (o.to == stdout)
        return cli_finish(status);
    return cli_file_close(&o.file, status);
}

/* Images named on the command line, as a temporary list. */
static int write_list(const cli_args *args)
{
    struct stat about;
    int fd = mkstemp(list);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file)
        return cli_fail("cannot write a temporary file in /tmp");
    for (int i = 0; cli_word(args, i); i++) {
        const char *word = cli_word(args, i);
        char *real = realpath(word, NULL);
        bool broken = real && strchr(real, '\n');
        if (!real || broken) {
            fclose(file);
            free(real);
            if (strcmp(word, "-") == 0)
                return cli_fail("-: expected the file of an image, not standard input");
            return cli_fail(broken ? "%s: rename it: no line break may be in an image's path"
                                   : "%s: there is no such image",
                            word);
        }
        fprintf(file, "%s 0\n", real + 1); /* below root=/ */
        bool folder = stat(real, &about) == 0 && S_ISDIR(about.st_mode);
        free(real);
        if (folder) {
            fclose(file);
            return cli_fail("%s is a folder: name its images, as in %s/*.png; with a folder for "
                            "each class --data images:%s",
                            cli_word(args, i), cli_word(args, i), cli_word(args, i));
        }
    }
    return fclose(file) == 0 ? 0 : cli_fail("cannot write a temporary file in /tmp");
}

/* A table among the images. */
static int check_words(const cli_args *args)
{
    for (int i = 0; cli_word(args, i); i++) {
        const char *word = cli_word(args, i), *likely = dro_format_likely(word);
        if (likely)
            return cli_usage("predict: %s is no image: expected --data %s:%s", word, likely, word);
    }
    return 0;
}

static int run(const cli_args *args)
{
    char spec[256];
    const char *weights = cli_text(args, "weights"), *data = cli_text(args, "data");
    bool named = cli_word(args, 0) != NULL;
    if (!weights || (!data && !named))
        return cli_usage("predict: %s missing: usage: dro predict --weights FILE (--data SPEC | "
                         "IMAGE...)",
                         weights ? "--data or an image is" : "--weights is");
    if (data && named)
        return cli_usage("predict: --data and images on the command line: give one of them");
    int wrong = check_words(args);
    if (wrong || check_out(args))
        return wrong ? wrong : 1;
    dro_context *ctx = cli_context(args);
    dro_predictor *p = NULL;
    if (!ctx)
        return 1;
    cli_busy("reading %s", named ? "the images" : data);
    int status = named ? write_list(args) : 0;
    snprintf(spec, sizeof spec, "list:%s,root=/", list);
    if (status == 0 && dro_predictor_open(ctx, weights, named ? spec : data, &p) != DRO_OK)
        status = failed(ctx);
    cli_ready();
    cli_busy("predicting");
    if (status == 0)
        status = predict_to(args, ctx, p, named);
    if (named)
        unlink(list);
    dro_predictor_close(p);
    dro_context_destroy(ctx);
    return status;
}

static const cli_option options[] = {
    CLI_OPTION_TEXT("weights", "FILE", "a weights file written by dro train"),
    CLI_OPTION_TEXT("data", "SPEC", "format:path[,option=value...]"),
    CLI_OPTION_TEXT("split", "NAME", "train, test or holdout (default test, or train if none)"),
    {"logits", CLI_FLAG, NULL, NULL, 0, 0, "logits instead of probabilities"},
    CLI_OPTION_TEXT("prior", "NAME",
                    "class prior: train (default), uniform, or a file of lines NAME,SHARE"),
    CLI_OPTION_TEXT("out", "FILE", "the file to write; if not given, or -, standard output"),
    CLI_OPTION_TEXT(
        "format", "NAME",
        "csv, jsonl, json or npy (default: follows from the ending of --out, else csv)"),
    CLI_OPTIONS_END,
};

const cli_command cmd_predict = {
    .name = "predict",
    .usage = "--weights FILE (--data SPEC | IMAGE...) [--out FILE] [--logits]",
    .summary = "predict the classes of examples or images",
    .details =
        "One row per example: its class, the probability of that class, and the probability (or\n"
        "logit) of every class. Rows are printed as soon as they are computed; a file of --out\n"
        "appears when it is complete. In csv, a name that a spreadsheet would take for a formula\n"
        "is written with a ' in front, control characters as \\xNN or \\uNNNN, and \\x as \\x5cx.\n"
        "\n"
        "The loss determines how outputs become probabilities. Most losses use the softmax.\n"
        "logistic takes the sigmoid of each output, squared the output itself, at least 0; both\n"
        "then divide by the sum over the classes. The class prior of the probabilities is that of\n"
        "the training data, even if the loss or the tilt gives all classes the same weight.\n"
        "--prior selects another prior; the predicted class is then the most probable one under\n"
        "it.",
    .options = options,
    .most = INT_MAX,
    .run = run,
};
