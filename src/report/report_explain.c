/* The page of an explanation (dro_report_explanation): shares of the weight, and the examples with
 * the largest weights. Images are bitmaps inside the page. */
#include "report_page.h"

#include <dro/version.h>
#include <math.h>
#include <string.h>

typedef struct view {
    const dro_predictor *p;
    const dro_explanation *e;
    const dro_explanation_about *about;
    dro_examples examples;
    dro_cells *cells; /* of the rows of a table; NULL: images */
    dro__buffer *out;
} view;

enum { COLUMNS_MOST = 12, CELL_MOST = 32, FEATURES_MOST = 200 };

static const char style[] =
    "<style>.heavy{display:grid;grid-template-columns:repeat(auto-fill,minmax(132px,1fr));gap:14px}"
    ".heavy figure{padding:10px;font-size:14px;line-height:1.35}"
    ".heavy img{display:block;width:100%;height:112px;object-fit:contain;image-rendering:pixelated;"
    "margin-bottom:6px}.wrong{color:var(--warn);font-weight:600}"
    ".rows{font-size:14px}.rows td{white-space:nowrap}"
    ".rows .c{border-left:1px solid var(--line);padding-left:18px}.rows .c,.rows .c~td,"
    ".rows .c~th{text-align:left}.rows .c,.rows .c~td{color:var(--mut)}</style>\n";

/* ---- pictures ---- */

static void base64(dro__buffer *out, const uint8_t *bytes, size_t size)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t at = 0; at < size; at += 3) {
        uint32_t left = (uint32_t)(size - at), word = (uint32_t)bytes[at] << 16;
        word |= left > 1 ? (uint32_t)bytes[at + 1] << 8 : 0;
        word |= left > 2 ? bytes[at + 2] : 0;
        char four[] = {letters[word >> 18], letters[word >> 12 & 63],
                       left > 1 ? letters[word >> 6 & 63] : '=',
                       left > 2 ? letters[word & 63] : '='};
        dro__buffer_bytes(out, four, sizeof four);
    }
}

static void put32(uint8_t *to, uint32_t value)
{
    for (int k = 0; k < 4; k++)
        to[k] = (uint8_t)(value >> (8 * k));
}

/* 24 bits a pixel, blue first, from the lowest row on, each row a multiple of four bytes. */
static void bitmap(dro__buffer *out, const dro_thumbnail *t)
{
    enum { HEAD = 54 };
    uint8_t bytes[HEAD + DRO_THUMBNAIL_SIDE * (3 * DRO_THUMBNAIL_SIDE + 3)];
    size_t row = ((size_t)t->width * 3 + 3) / 4 * 4, size = HEAD + row * (size_t)t->height;
    memset(bytes, 0, size);
    bytes[0] = 'B', bytes[1] = 'M';
    put32(bytes + 2, (uint32_t)size);
    put32(bytes + 10, HEAD);
    put32(bytes + 14, 40);
    put32(bytes + 18, (uint32_t)t->width);
    put32(bytes + 22, (uint32_t)t->height);
    bytes[26] = 1, bytes[28] = 24;
    for (int32_t y = 0; y < t->height; y++)
        for (int32_t x = 0; x < t->width; x++)
            for (int c = 0; c < 3; c++)
                bytes[HEAD + row * (size_t)(t->height - 1 - y) + (size_t)(3 * x + c)] =
                    t->rgb[(y * t->width + x) * 3 + 2 - c];
    dro__buffer_add(out, "data:image/bmp;base64,");
    base64(out, bytes, size);
}

/* ---- examples ---- */

static void name_of(const view *v, int64_t id)
{
    if (v->examples.paths)
        dro__buffer_escape_cut(v->out, v->examples.paths[id], 80);
    else
        dro__buffer_print(v->out, "%lld", (long long)v->examples.records[id]);
}

static void class_of(const view *v, int32_t class)
{
    const char *name = dro_predictor_class_name(v->p, class);
    dro__buffer_escape_cut(v->out, name ? name : "", 40);
}

static double times(const view *v, int64_t id)
{
    return v->e->weights[id] * (double)v->e->examples;
}

static void picture(const view *v, int64_t id)
{
    dro_thumbnail t;
    char loss[DRO__NUMBER], weight[DRO__NUMBER];
    bool wrong = v->e->labels[id] != v->e->predictions[id];
    dro__buffer_add(v->out, "<figure>");
    if (dro_predictor_thumbnail(v->p, v->about->split, id, &t) == DRO_OK) {
        dro__buffer_add(v->out, "<img alt=\"\" src=\"");
        bitmap(v->out, &t);
        dro__buffer_add(v->out, "\">");
    }
    dro__buffer_add(v->out, "<b>");
    class_of(v, v->e->labels[id]);
    dro__buffer_add(v->out, wrong ? "</b><br><span class=\"wrong\">predicted "
                                  : "</b><br><span>predicted ");
    class_of(v, v->e->predictions[id]);
    dro__buffer_print(v->out, "</span><br><small>loss %s, weight %s times<br>",
                      dro__show_real(loss, v->e->losses[id]), dro__show_real(weight, times(v, id)));
    name_of(v, id);
    dro__buffer_add(v->out, "</small></figure>\n");
}

/* What stands in the row, behind what is said of it. names: of the columns. */
static void cells_of(const view *v, const char *const *texts, bool names)
{
    const dro_cells *c = v->cells;
    int most = c->columns == 1 ? FEATURES_MOST : CELL_MOST;
    const char *tag = names ? "th" : "td";
    for (int32_t k = 0; k < c->columns; k++) {
        dro__buffer_print(v->out, k ? "<%s>" : "<%s class=\"c\">", tag);
        dro__buffer_escape_cut(v->out, texts[k], most);
        dro__buffer_print(v->out, "</%s>", tag);
    }
}

static void row(const view *v, int64_t id, int64_t place)
{
    char text[4][DRO__NUMBER];
    const dro_explanation *e = v->e;
    const dro_data_info *info = dro_predictor_data(v->p);
    bool wrong = e->classes && e->labels[id] != e->predictions[id];
    dro__buffer_add(v->out, "<tr><td>");
    name_of(v, id);
    dro__buffer_add(v->out, "</td><td>");
    if (e->classes)
        class_of(v, e->labels[id]);
    else
        dro__buffer_add(v->out, dro__show_real(text[0], info->target_centre +
                                                            info->target_scale *
                                                                (double)v->examples.targets[id]));
    dro__buffer_add(v->out, wrong ? "</td><td class=\"wrong\">" : "</td><td>");
    if (e->classes)
        class_of(v, e->predictions[id]);
    else
        dro__buffer_add(v->out, dro__show_real(text[1], (double)e->outputs[id]));
    dro__buffer_print(v->out, "</td><td>%s</td><td>%s</td>", dro__show_real(text[2], e->losses[id]),
                      dro__show_real(text[3], times(v, id)));
    cells_of(v, v->cells->cells + place * v->cells->columns, false);
    dro__buffer_add(v->out, "</tr>\n");
}

/* What the cells are. */
static void say_cells(const view *v)
{
    const dro_cells *c = v->cells;
    if (c->original)
        dro__buffer_add(v->out, " On their right is the row of the file.");
    else
        dro__buffer_add(v->out, " On their right are the features, as the model gets them.");
    if (c->more > 0)
        dro__buffer_print(v->out, " %lld more columns are not shown.", (long long)c->more);
}

static int64_t shown(const view *v)
{
    return v->about->top < v->e->examples ? v->about->top : v->e->examples;
}

static void examples(const view *v)
{
    dro__buffer_add(v->out,
                    "<section id=\"examples\"><h2>Examples</h2><p class=\"lead\">Those of the "
                    "largest weight, with label and prediction. A weight of 1 is the mean.");
    if (v->cells)
        say_cells(v);
    dro__buffer_add(v->out, v->cells
                                ? "</p>\n<div class=\"scroll\"><table class=\"rows\"><thead><tr>"
                                  "<th>Example</th><th>Label</th><th>Prediction</th>"
                                  "<th>Loss</th><th>Weight</th>"
                                : "</p>\n<div class=\"heavy\">\n");
    if (v->cells) {
        cells_of(v, v->cells->names, true);
        dro__buffer_add(v->out, "</tr></thead><tbody>\n");
    }
    for (int64_t k = 0; k < shown(v); k++)
        if (v->cells)
            row(v, v->e->order[k], k);
        else
            picture(v, v->e->order[k]);
    dro__buffer_add(v->out, v->cells ? "</tbody></table></div></section>\n" : "</div></section>\n");
}

/* ---- shares ---- */

static void shares(const view *v, bool groups)
{
    const dro_explanation *e = v->e;
    int32_t count = groups ? e->group_count : e->classes;
    const double *share = groups ? e->group_shares : e->class_shares;
    const double *weight = groups ? e->group_weights : e->class_weights;
    char text[3][DRO__NUMBER];
    if (count < 1)
        return;
    dro__buffer_print(
        v->out,
        "<section id=\"%s\"><h2>%s</h2><p class=\"lead\">Shares of the examples and of "
        "the weight.</p><div class=\"scroll\"><table><thead><tr><th>%s</th>"
        "<th>Examples, %%</th><th>Weight, %%</th><th>Ratio</th></tr></thead><tbody>\n",
        groups ? "groups" : "classes", groups ? "Groups" : "Classes", groups ? "Group" : "Class");
    for (int32_t k = 0; k < count; k++) {
        dro__buffer_add(v->out, "<tr><td>");
        if (groups)
            dro__buffer_escape_cut(v->out, dro_predictor_data(v->p)->group_names[k], 60);
        else
            class_of(v, k);
        dro__buffer_print(v->out, "</td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
                          dro__show_share(text[0], share[k]), dro__show_share(text[1], weight[k]),
                          dro__show_real(text[2], share[k] > 0 ? weight[k] / share[k] : NAN));
    }
    dro__buffer_add(v->out, "</tbody></table></div></section>\n");
}

/* ---- the page ---- */

static void tile(dro__buffer *out, const char *name, double value)
{
    char text[DRO__NUMBER];
    if (isfinite(value))
        dro__buffer_print(out, "<div><dt>%s</dt><dd>%s</dd></div>", name,
                          dro__show_real(text, value));
}

static void page(const view *v)
{
    static const char *const splits[DRO_SPLITS] = {"training", "test", "holdout"};
    const dro_explanation *e = v->e;
    char count[DRO__NUMBER];
    dro__page_head(v->out, v->about->objective);
    dro__buffer_add(v->out, style);
    dro__buffer_add(v->out, "<header><p class=\"eyebrow\">Worst case</p><h1>");
    dro__buffer_escape(v->out, v->about->objective);
    dro__buffer_add(v->out, " over ");
    dro__buffer_escape(v->out, v->about->over);
    dro__buffer_print(v->out, "</h1><p class=\"lead\">%s %s examples, weights of ",
                      dro__show_count(count, (double)e->examples), splits[v->about->split]);
    dro__buffer_escape(v->out, v->about->weights);
    dro__buffer_add(v->out, "</p></header>\n<main>\n<dl class=\"tiles\">");
    tile(v->out, "Objective", e->value);
    tile(v->out, "Mean loss", e->mean_loss);
    tile(v->out, "Lambda", e->lambda);
    tile(v->out, "Threshold", e->threshold);
    tile(v->out, "Divergence", e->divergence);
    tile(v->out, "Effective share", e->effective);
    dro__buffer_add(v->out, "</dl>\n");
    if (shown(v) > 0)
        examples(v);
    shares(v, false);
    shares(v, true);
    dro__buffer_print(v->out, "</main>\n<footer>Made by dro %d.%d.%d</footer>\n", DRO_VERSION_MAJOR,
                      DRO_VERSION_MINOR, DRO_VERSION_PATCH);
    dro__buffer_add(v->out, "</body>\n</html>\n");
}

dro_status dro_report_explanation(dro_context *ctx, const dro_predictor *predictor,
                                  const dro_explanation *explanation,
                                  const dro_explanation_about *about, const char *path)
{
    if (!ctx || !predictor || !explanation || !about || !about->objective || !about->over ||
        !about->weights || about->split < 0 || about->split >= DRO_SPLITS || !path)
        return DRO_ERR_ARGUMENT;
    dro__forget(ctx);
    dro__buffer out = {0};
    view v = {.p = predictor, .e = explanation, .about = about, .out = &out};
    DRO_TRY(dro_predictor_examples(predictor, about->split, &v.examples));
    if (shown(&v) > 0 && !v.examples.pixels && !v.examples.paths)
        DRO_TRY(dro_predictor_cells(predictor, about->split, explanation->order, (size_t)shown(&v),
                                    COLUMNS_MOST, &v.cells));
    page(&v);
    dro_cells_free(v.cells);
    dro_status status = out.failed ? dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the page")
                                   : dro__write_file(ctx, path, out.bytes, out.size);
    dro__buffer_free(&out);
    return status;
}
