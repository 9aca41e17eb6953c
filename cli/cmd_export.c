/* dro export: a trained model for other programs. */
#define _GNU_SOURCE /* realpath, asprintf */
#include "cli.h"

#include <dro/export.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where a file is or will be, without links and dots; NULL: there is no such folder. */
static char *place_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *place = realpath(path, NULL), *above = NULL, *folder = NULL;
    if (place || asprintf(&above, "%.*s.", (int)(name - path), path) < 0)
        return place;
    folder = realpath(above, NULL);
    if (folder && asprintf(&place, "%s/%s", folder, name) < 0)
        place = NULL;
    free(above);
    free(folder);
    return place;
}

/* Whether a file can be made there, or a device or pipe written to; otherwise errno says why. */
static bool can_write(char *place)
{
    struct stat about;
    char *slash = place ? strrchr(place, '/') : NULL;
    if (!slash)
        return false;
    if (stat(place, &about) == 0 && !S_ISREG(about.st_mode)) {
        errno = EISDIR;
        return !S_ISDIR(about.st_mode) && access(place, W_OK) == 0;
    }
    char first = slash[1];
    slash[1] = '\0';
    bool fine = access(place, W_OK) == 0;
    slash[1] = first;
    return fine;
}

/* An output of that name must be a file that can be written and is not the input: nothing is
 * written when the second one is refused. */
static int check_out(const cli_args *args, const char *name, char **place)
{
    const char *out = cli_text(args, name);
    *place = NULL;
    if (!out)
        return 0;
    if (!*out)
        return cli_usage("export: --%s needs a file", name);
    if (cli_same_file(cli_text(args, "weights"), out))
        return cli_fail("%s is the input: write the model to another file", out);
    *place = place_of(out);
    return can_write(*place) ? 0 : cli_fail("%s: cannot write it: %s", out, strerror(errno));
}

static int check_outs(const cli_args *args)
{
    const char *onnx = cli_text(args, "onnx"), *torch = cli_text(args, "torch");
    char *places[2] = {NULL, NULL};
    int status = check_out(args, "onnx", &places[0]);
    if (status == 0)
        status = check_out(args, "torch", &places[1]);
    bool alike = places[0] && places[1] && strcmp(places[0], places[1]) == 0;
    if (status == 0 && onnx && torch &&
        (cli_same_file(onnx, torch) || (alike && access(onnx, F_OK) != 0)))
        status = cli_fail("%s is the file of --onnx: write the module to another file", torch);
    free(places[0]);
    free(places[1]);
    return status;
}

static int run(const cli_args *args)
{
    const char *weights = cli_text(args, "weights"), *onnx = cli_text(args, "onnx");
    const char *torch = cli_text(args, "torch");
    if (!weights || (!onnx && !torch))
        return cli_usage("export: --%s is missing: usage: dro export --weights FILE "
                         "--onnx OUT.onnx or --torch OUT.py",
                         weights ? "onnx or --torch" : "weights");
    int wrong = check_outs(args);
    if (wrong)
        return wrong;
    dro_context *ctx = cli_context(args);
    if (!ctx)
        return 1;
    int status = 0;
    if ((onnx && dro_export_onnx(ctx, weights, onnx) != DRO_OK) ||
        (torch && dro_export_torch(ctx, weights, torch) != DRO_OK))
        status = cli_fail("%s", dro_context_error(ctx));
    else if (cli_json(args))
        status = cli_emit(json_pack("{s:o, s:o*, s:o*}", "weights", cli_path_json(weights), "onnx",
                                    onnx ? cli_path_json(onnx) : NULL, "torch",
                                    torch ? cli_path_json(torch) : NULL));
    else
        cli_print("wrote %s%s%s\n", onnx ? onnx : "", onnx && torch ? " and " : "",
                  torch ? torch : "");
    dro_context_destroy(ctx);
    return status;
}

static const cli_option options[] = {
    CLI_OPTION_TEXT("weights", "FILE", "a weights file written by dro train"),
    CLI_OPTION_TEXT("onnx", "OUT.onnx", "the ONNX file to write"),
    CLI_OPTION_TEXT("torch", "OUT.py", "the PyTorch module to write"),
    CLI_OPTIONS_END,
};

const cli_command cmd_export = {
    .name = "export",
    .usage = "--weights FILE [--onnx OUT.onnx] [--torch OUT.py]",
    .summary = "export a trained model as ONNX or as a PyTorch module",
    .details =
        "The ONNX file takes batches of any size. Its outputs are `probabilities` (batch,\n"
        "classes) and `label` (batch), the class that `dro predict` prints (by the saved\n"
        "threshold, if there is one); for a real-valued target the output is `value` (batch, 1).\n"
        "Inputs:\n"
        "  images  `pixels` (batch, channels, height, width), 0 to 255; the model normalises\n"
        "          them. Images must already have the model's size. The metadata `dro.resize`\n"
        "          says how `dro predict` crops and resizes files\n"
        "  tables  one input (batch, 1) per column, with its name in the header (or column.K, if\n"
        "          that name cannot be used); the model encodes it. Text: without blanks around\n"
        "          it. Numbers: double, without units and thousands separators; dates as days\n"
        "          since 1970-01-01; NaN where the value is missing\n"
        "  rows    `features` (batch, features)\n"
        "A linear model of libsvm's sparse rows (a stream, or more than 4096 features) cannot be\n"
        "exported.\n"
        "\n"
        "The PyTorch module is a Python file. Its load(FILE) reads the tensors from the weights\n"
        "file by name. For a table it takes features that are already encoded. There is no module\n"
        "for a linear model of sparse rows.",
    .options = options,
    .run = run,
};
