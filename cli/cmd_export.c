/* dro export: a trained model for other programs. */
#include "cli.h"

#include <dro/export.h>

static int run(const cli_args *args)
{
    const char *weights = cli_text(args, "weights"), *onnx = cli_text(args, "onnx");
    if (!weights || !onnx)
        return cli_usage(
            "export: --%s is missing: usage: dro export --weights FILE --onnx OUT.onnx",
            weights ? "onnx" : "weights");
    dro_context *ctx = cli_context(args);
    if (!ctx)
        return 1;
    int status = 0;
    if (dro_export_onnx(ctx, weights, onnx) != DRO_OK)
        status = cli_fail("%s", dro_context_error(ctx));
    else if (cli_json(args))
        status = cli_emit(json_pack("{s:s, s:s}", "weights", weights, "onnx", onnx));
    else
        printf("wrote %s\n", onnx);
    dro_context_destroy(ctx);
    return status;
}

static const cli_option options[] = {
    CLI_OPTION_TEXT("weights", "FILE", "a weights file written by dro train"),
    CLI_OPTION_TEXT("onnx", "OUT.onnx", "the file to write"),
    CLI_OPTIONS_END,
};

const cli_command cmd_export = {
    .name = "export",
    .usage = "--weights FILE --onnx OUT.onnx",
    .summary = "export a trained model as ONNX",
    .details =
        "The file contains everything: the normalisation of images or the encoding of a table's\n"
        "columns, the network, the class probabilities and the class names. Batches can have any\n"
        "size.\n"
        "  images  input `pixels` (batch, channels, height, width), 0 to 255\n"
        "  tables  an input (batch, 1) for each column: text, or numbers, NaN where missing\n"
        "  rows    input `features` (batch, features)\n"
        "Outputs are `probabilities` (batch, classes) and `label` (batch), or `value`.",
    .options = options,
    .run = run,
};
