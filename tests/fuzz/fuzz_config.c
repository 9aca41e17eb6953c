/* config.json, or any file of settings: taken for a run, checked, and given back as text. Those of
 * an earlier input stay: making all settings again takes ten times as long. */
#include "fuzz_cli.h"

static void take(dro_context *ctx, json_t *document, const char *path)
{
    static dro_settings *settings;
    static unsigned uses;
    if (uses++ % 64 == 0) {
        dro_settings_destroy(settings);
        FUZZ_CHECK(dro_settings_create(ctx, &settings) == DRO_OK);
    }
    cli_scope scope = {.command = "train", .ctx = ctx, .settings = settings};
    if (fuzz_fine(cli_config_take(&scope, path, document)))
        fuzz_fine(cli_settings_check(&scope));
    const char *name;
    json_t *value;
    json_object_foreach(document, name, value)
    {
        char text[8192];
        dro_settings_get(settings, name, text, sizeof text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    dro_context *ctx = fuzz_context();
    const char *path = fuzz_real_file(0, bytes, size);
    json_t *document = cli_config_load(path);
    fuzz_fine(document ? 0 : 1);
    if (document)
        take(ctx, document, path);
    json_decref(document);
    return 0;
}
