/* The list of models. */
#include "nn.h"

#include <string.h>

static const dro__model *const list[] = {
#define MODEL(name) &dro__model_##name,
#include "models.def"
#undef MODEL
};

enum { LIST_COUNT = sizeof list / sizeof list[0] };

const char *dro_model_name(int index)
{
    return index >= 0 && index < LIST_COUNT ? list[index]->name : NULL;
}

const char *dro_model_summary(int index)
{
    return index >= 0 && index < LIST_COUNT ? list[index]->summary : NULL;
}

dro_model_shape dro_model_usual(int index)
{
    return index >= 0 && index < LIST_COUNT ? list[index]->usual : (dro_model_shape){0};
}

static const dro__model *find(const char *name)
{
    size_t length = strcspn(name, ":");
    for (int i = 0; i < LIST_COUNT; i++)
        if (strlen(list[i]->name) == length && strncmp(list[i]->name, name, length) == 0)
            return list[i];
    return NULL;
}

dro_status dro__model_check(dro_context *ctx, const char *name)
{
    const char *names[LIST_COUNT];
    for (int i = 0; i < LIST_COUNT; i++)
        names[i] = list[i]->name;
    if (find(name))
        return DRO_OK;
    const char *nearest = dro_nearest(name, names, LIST_COUNT);
    if (nearest)
        return dro__fail(ctx, DRO_ERR_NAME, "there is no model '%.60s': did you mean '%s'?", name,
                         nearest);
    return dro__fail(ctx, DRO_ERR_NAME, "there is no model '%.60s': `dro list models` shows them",
                     name);
}

bool dro__model_of_rows(const char *name)
{
    const dro__model *model = find(name);
    return !model || model->usual.height == 1;
}

dro_status dro_net_model(dro_context *ctx, const char *name, const dro_model_shape *shape,
                         dro_net **net)
{
    if (!ctx || !name || !shape || !net)
        return DRO_ERR_ARGUMENT;
    dro__forget(ctx);
    *net = NULL;
    const dro__model *model = find(name);
    if (!model)
        return dro__model_check(ctx, name);
    size_t length = strcspn(name, ":");
    dro_net *made;
    DRO_TRY(dro_net_create(ctx, shape->channels, shape->height, shape->width, &made));
    model->build(made, name[length] ? name + length + 1 : "", shape->outputs);
    if (made->failed != DRO_OK) {
        dro_status status = dro__fail(ctx, made->failed, "%s: %s", name, made->error);
        dro_net_destroy(made);
        return status;
    }
    *net = made;
    return DRO_OK;
}
