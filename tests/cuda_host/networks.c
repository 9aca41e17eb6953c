#include "networks.h"

#include "base.h"
#include "losses.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int draw(uint64_t *state, int below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)below);
}

float draw_real(uint64_t *state)
{
    return (float)draw(state, 20001) / 10000 - 1;
}

typedef struct value {
    dro_node node;
    int32_t channels, height, width;
    bool read;
} value;

enum { VALUES = 20, NAME = 24, NAMES = 2 * VALUES };

typedef struct draft {
    dro_net *net;
    uint64_t *state;
    char *text;
    value values[VALUES];
    int count;
    char names[NAMES][NAME]; /* of layers with parameters */
    int name_count;
} draft;

static void say(draft *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(draft *d, const char *format, ...)
{
    size_t used = strlen(d->text);
    va_list args;
    va_start(args, format);
    vsnprintf(d->text + used, LAYERS_TEXT - used, format, args);
    va_end(args);
}

static int any(draft *d, int below)
{
    return draw(d->state, below);
}

static const char *new_name(draft *d, const char *what)
{
    char *name = d->names[d->name_count++];
    snprintf(name, NAME, "%s%d", what, d->name_count);
    return name;
}

static bool alike(const value *a, const value *b)
{
    return a->channels == b->channels && a->height == b->height && a->width == b->width;
}

/* The last value but for every third, so that most networks are deep and some values have many
 * readers. */
static int pick(draft *d)
{
    return any(d, 3) ? d->count - 1 : any(d, d->count);
}

static void shrink(value *v, const dro_window *w)
{
    v->height = (v->height + 2 * w->pad[0] - w->kernel[0]) / w->stride[0] + 1;
    v->width = (v->width + 2 * w->pad[1] - w->kernel[1]) / w->stride[1] + 1;
}

static void keep(draft *d, value made)
{
    made.read = false;
    d->values[d->count++] = made;
}

/* A value as an input. */
static value use(draft *d, int k)
{
    d->values[k].read = true;
    return d->values[k];
}

/* Adds an earlier value of the same shape, if there is one, on either side. */
static void add_earlier(draft *d, value *v)
{
    for (int k = d->count - 1; k >= 0; k--) {
        if (!alike(&d->values[k], v))
            continue;
        bool first = any(d, 2);
        dro_node other = use(d, k).node;
        v->node = first ? dro_net_add(d->net, other, v->node) : dro_net_add(d->net, v->node, other);
        say(d, first ? "+added_to(%d)" : "+add(%d)", k);
        return;
    }
}

/* ReLU or ReLU6. */
static void activate(draft *d, value *v)
{
    bool six = any(d, 2);
    say(d, six ? "+relu6" : "+relu");
    v->node = six ? dro_net_relu6(d->net, v->node) : dro_net_relu(d->net, v->node);
}

/* A convolution, mostly of sizes that our own kernels take, and what may follow it. */
static void conv(draft *d)
{
    static const int32_t channels[] = {16, 16, 8, 6, 32};
    int from = pick(d), side = any(d, 3) ? 3 : 1, stride = any(d, 4) ? 1 : 2;
    value v = use(d, from);
    bool bias = any(d, 2);
    int32_t in = v.channels;
    v.channels = channels[any(d, 5)];
    if (side == 3 && stride == 1 && (in == 16 || in == 32) && any(d, 4))
        v.channels = in;
    if (stride == 2 && in == 16)
        v.channels = 32;
    dro_window w = {{side, side}, {stride, stride}, {side / 2, side / 2}};
    if (!any(d, 8))
        w.kernel[1] = 3, w.pad[1] = 1;
    say(d, " %d=conv(%d,%d,%dx%d/%d%s)", d->count, from, v.channels, w.kernel[0], w.kernel[1],
        stride, bias ? ",bias" : "");
    v.node = dro_net_conv_window(d->net, new_name(d, "conv"), v.node, v.channels, &w, bias);
    shrink(&v, &w);
    if (any(d, 3)) {
        say(d, "+norm");
        v.node = dro_net_norm(d->net, new_name(d, "norm"), v.node);
    }
    if (!any(d, 3))
        add_earlier(d, &v);
    if (any(d, 2))
        activate(d, &v);
    keep(d, v);
}

/* A depthwise convolution; most of what ReLU6 gets has been made large. */
static void depthwise(draft *d)
{
    enum { MOST = 64 };
    int from = pick(d), side = any(d, 3) ? 3 : 1 + any(d, 5);
    value v = use(d, from);
    bool bias = any(d, 2);
    float scale[MOST], shift[MOST] = {0};
    dro_window w = {{side, 3}, {1 + any(d, 2), 1 + any(d, 2)}, {side / 2, 1}};
    for (int c = 0; c < v.channels; c++)
        scale[c] = 1 + (float)any(d, 8);
    say(d, " %d=depthwise(affine(%d),%dx3/%d,%d%s)", d->count, from, side, w.stride[0], w.stride[1],
        bias ? ",bias" : "");
    v.node = dro_net_affine(d->net, v.node, scale, shift);
    v.node = dro_net_depthwise(d->net, new_name(d, "deep"), v.node, &w, bias);
    shrink(&v, &w);
    if (any(d, 2)) {
        say(d, "+norm");
        v.node = dro_net_norm(d->net, new_name(d, "norm"), v.node);
    }
    if (!any(d, 3))
        add_earlier(d, &v);
    if (any(d, 4))
        activate(d, &v);
    keep(d, v);
}

static void norm(draft *d)
{
    int from = pick(d);
    value v = use(d, from);
    say(d, " %d=norm(%d)", d->count, from);
    v.node = dro_net_norm(d->net, new_name(d, "norm"), v.node);
    keep(d, v);
}

static void relu(draft *d)
{
    int from = pick(d);
    value v = use(d, from);
    say(d, " %d=(%d)", d->count, from);
    activate(d, &v);
    keep(d, v);
}

/* Two values, which may be one and the same. */
static void add(draft *d)
{
    int from = pick(d), other = from;
    value v = use(d, from);
    for (int tries = 0; tries < 8; tries++) {
        int k = any(d, d->count);
        if (alike(&d->values[k], &v))
            other = k;
    }
    say(d, " %d=add(%d,%d)", d->count, from, other);
    v.node = dro_net_add(d->net, v.node, use(d, other).node);
    keep(d, v);
}

static void concat(draft *d)
{
    enum { MOST = 3, WIDEST = 64 };
    int count = 0;
    value v = d->values[pick(d)];
    dro_node parts[MOST];
    v.channels = 0;
    for (int k = d->count - 1; k >= 0 && count < MOST; k--) {
        const value *one = &d->values[k];
        if (one->height != v.height || one->width != v.width || !any(d, 2) ||
            v.channels + one->channels > WIDEST)
            continue;
        say(d, count ? ",%d" : " %d=concat(%d", count ? k : d->count, k);
        v.channels += one->channels;
        parts[count++] = use(d, k).node;
    }
    if (!count)
        return;
    say(d, ")");
    v.node = dro_net_concat(d->net, parts, count);
    keep(d, v);
}

static void pool(draft *d)
{
    int from = pick(d), side = 2 + any(d, 2);
    value v = use(d, from);
    bool largest = any(d, 2);
    dro_window w = {{side, side}, {1 + any(d, 2), 1}, {1, 1}};
    say(d, " %d=%s_pool(%d,%dx%d/%d)", d->count, largest ? "max" : "avg", from, side, side,
        w.stride[0]);
    v.node = largest ? dro_net_max_pool(d->net, v.node, &w) : dro_net_avg_pool(d->net, v.node, &w);
    shrink(&v, &w);
    keep(d, v);
}

static void dropout(draft *d)
{
    int from = pick(d);
    value v = use(d, from);
    say(d, " %d=dropout(%d)", d->count, from);
    v.node = dro_net_dropout(d->net, v.node, 0.3f);
    keep(d, v);
}

static void shortcut(draft *d)
{
    int from = pick(d), stride = 1 + any(d, 2);
    value v = use(d, from);
    dro_window every = {{1, 1}, {stride, stride}, {0, 0}};
    v.channels += v.channels > 16 ? 0 : 8 * any(d, 3);
    say(d, " %d=shortcut(%d,%d/%d)", d->count, from, v.channels, stride);
    v.node = dro_net_shortcut(d->net, v.node, v.channels, stride);
    shrink(&v, &every);
    keep(d, v);
}

static void affine(draft *d)
{
    enum { MOST = 64 };
    int from = pick(d);
    value v = use(d, from);
    float scale[MOST], shift[MOST];
    for (int c = 0; c < v.channels; c++)
        scale[c] = 1 + draw_real(d->state) / 2, shift[c] = draw_real(d->state);
    say(d, " %d=affine(%d)", d->count, from);
    v.node = dro_net_affine(d->net, v.node, scale, shift);
    keep(d, v);
}

/* From an image to a flat value. */
static dro_node flat(draft *d, dro_node x)
{
    bool mean = any(d, 2);
    say(d, mean ? "+global_pool" : "+flatten");
    return mean ? dro_net_global_pool(d->net, x) : dro_net_flatten(d->net, x);
}

/* The last value and, in most networks, those that nobody has read; else they lead nowhere. */
static dro_node ends(draft *d)
{
    enum { MOST = 4 };
    int count = 0;
    dro_node all[MOST];
    bool wide = any(d, 4);
    say(d, " out:");
    for (int k = d->count - 1; k >= 0 && count < (wide ? MOST : 1); k--)
        if (!d->values[k].read) {
            say(d, "(%d", k);
            all[count++] = flat(d, d->values[k].node);
            say(d, ")");
        }
    return count == 1 ? all[0] : dro_net_concat(d->net, all, count);
}

static void heads(draft *d)
{
    dro_node x = ends(d);
    if (!any(d, 3)) {
        say(d, "+linear+relu");
        x = dro_net_relu(d->net, dro_net_linear(d->net, new_name(d, "linear"), x, 12));
        if (any(d, 2)) {
            say(d, "+dropout");
            x = dro_net_dropout(d->net, x, 0.3f);
        }
    }
    dro_net_output(d->net, dro_net_linear(d->net, new_name(d, "out"), x, OUTPUTS));
    if (!any(d, 3)) {
        say(d, " cosine");
        dro_net_set(d->net, "classifier", "cosine");
        dro_net_set(d->net, "classifier_scale", "3");
    }
    if (any(d, 2))
        return;
    int from = any(d, d->count);
    say(d, " auxiliary:%d", from);
    x = flat(d, d->values[from].node);
    dro_net_auxiliary(d->net, dro_net_linear(d->net, new_name(d, "aux"), x, OUTPUTS), 0.4f);
}

/* Trains some of the layers. */
static dro_status freeze(draft *d)
{
    char patterns[NAMES * (NAME + 4)] = "";
    if (any(d, 3))
        return DRO_OK;
    for (int k = 0; k < d->name_count; k++)
        if (any(d, 2) || (k + 1 == d->name_count && !patterns[0]))
            snprintf(patterns + strlen(patterns), sizeof patterns - strlen(patterns), "%s%s.*",
                     patterns[0] ? "," : "", d->names[k]);
    say(d, " trained:%s", patterns);
    return dro_net_train_only(d->net, patterns);
}

static dro_status settle(draft *d, const char *precision, drawn *about)
{
    static const double share[OUTPUTS] = {0.4, 0.3, 0.15, 0.1, 0.05};
    int loss = any(d, DRO__NET_LOSSES);
    about->targets = dro__net_losses[loss].of == DRO__OF_TARGETS && any(d, 2);
    say(d, " %s%s", dro_loss_name(loss), about->targets ? " of targets" : "");
    DRO_TRY(dro_net_set(d->net, "loss", dro_loss_name(loss)));
    DRO_TRY(dro_net_set(d->net, "precision", precision));
    DRO_TRY(dro_net_prior(d->net, share, OUTPUTS));
    DRO_TRY(freeze(d));
    DRO_TRY(dro_net_ready(d->net));
    return dro_net_init(d->net, 7);
}

dro_net *draw_network(dro_context *ctx, uint64_t seed, const char *precision, drawn *about)
{
    static void (*const layers[])(draft * d) = {
        conv, conv, conv, conv,   conv,   conv, depthwise, depthwise, depthwise, norm,
        relu, add,  add,  concat, concat, pool, dropout,   shortcut,  affine};
    enum { KINDS = sizeof layers / sizeof layers[0], FEWEST = 4, MORE = 9 };
    *about = (drawn){.state = seed * 77777 + 1};
    draft d = {.state = &about->state, .text = about->text};
    for (int k = 0; k < 10; k++)
        any(&d, 2); /* neighbouring seeds part */
    about->channels = any(&d, 2) ? 3 : any(&d, 3) ? 16 : 1;
    about->height = 5 + any(&d, 5);
    about->width = 5 + any(&d, 5);
    if (dro_net_create(ctx, about->channels, about->height, about->width, &d.net) != DRO_OK)
        return NULL;
    say(&d, "0=input(%dx%dx%d)", about->channels, about->height, about->width);
    keep(&d, (value){dro_net_input(d.net), about->channels, about->height, about->width, false});
    if (!any(&d, 4))
        affine(&d);
    for (int k = FEWEST + any(&d, MORE); k > 0; k--)
        layers[any(&d, KINDS)](&d);
    heads(&d);
    if (settle(&d, precision, about) == DRO_OK)
        return d.net;
    dro_net_destroy(d.net);
    return NULL;
}
