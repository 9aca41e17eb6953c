/* dro export: a trained model for other programs. */
#include "cli.h"

#include <dro/export.h>

static int run(const cli_args *args)
{
    const char *weights = cli_text(args, "weights"), *onnx = cli_text(args, "onnx");
    const char *torch = cli_text(args, "torch");
    if (!weights || (!onnx && !torch))
        return cli_usage("export: --%s is missing: usage: dro export --weights FILE "
                         "--onnx OUT.onnx or --torch OUT.py",
                         weights ? "onnx or --torch" : "weights");
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
        "The ONNX file contains everything: the normalisation of images or the encoding of a\n"
        "table's columns, the network, the class probabilities and the class names. Batches can\n"
        "have any size.\n"
        "  images  input `pixels` (batch, channels, height, width), 0 to 255\n"
        "  tables  an input (batch, 1) for each column, named as in the header (column.K without\n"
        "          a usable name): text, or numbers, NaN where missing\n"
        "  rows    input `features` (batch, features)\n"
        "Outputs are `probabilities` (batch, classes) and `label` (batch), or `value`.\n"
        "\n"
        "The PyTorch module is a Python file. Its load(FILE) reads the tensors from the weights\n"
        "file by name. For a table it takes features that are already encoded.",
    .options = options,
    .run = run,
};
