/* Where a program's values live. Everything scales with the number of examples, so a plan is made
 * once, per example: each value has a span of time in which it is needed, and two values may share
 * memory when their spans do not meet. Time: operation i runs forward at i, the loss at P,
 * operation i backward at 2P - i. */
#include "net.h"

typedef struct span {
    int64_t *place; /* receives the offset */
    size_t size;
    int32_t from, to;
} span;

static int32_t back_time(const dro__cpu_program *p, int32_t op)
{
    return 2 * p->base.operation_count - op;
}

/* Who reads a value: as an input, or as the residual of a tail at the time when that tail is worked
 * out. */
typedef struct reading {
    int32_t count, first, last, last_back;
    bool only_conv;
} reading;

static void note(const dro__cpu_program *p, int32_t op, bool residual, reading *r)
{
    int32_t back = p->ops[op].base.back ? back_time(p, op) : -1;
    r->first = r->count == 0 || op < r->first ? op : r->first;
    r->last = op > r->last ? op : r->last;
    r->last_back = back > r->last_back ? back : r->last_back;
    r->only_conv = r->only_conv && (residual || p->ops[op].conv);
    r->count++;
}

static reading read_by(const dro__cpu_program *p, int32_t value)
{
    reading r = {.last = -1, .last_back = -1, .only_conv = true};
    for (int32_t i = 0; i < p->base.operation_count; i++) {
        const dro__operation *op = &p->ops[i].base;
        int32_t tail = p->values[op->end].base.tail;
        bool later = tail >= 0 && p->tails[tail].base.deferred;
        for (int k = 0; k < op->input_count; k++)
            if (op->in[k].value == value)
                note(p, i, false, &r);
        if (op->residual.value == value)
            note(p, later ? p->values[op->end].fill : i, true, &r);
    }
    for (int h = 0; h < DRO__HEADS; h++)
        if (p->base.heads[h] == value)
            r.last = p->base.operation_count;
    return r;
}

/* ---- spans ---- */

static void add(span *spans, size_t *count, int64_t *place, size_t size, int32_t from, int32_t to)
{
    enum { LINE = 16 }; /* floats: every value begins on a cache line */
    size = (size + LINE - 1) / LINE * LINE;
    spans[(*count)++] = (span){place, size, from, to};
}

/* When the first of those who write a value's slope runs. */
static int32_t slope_starts(const dro__cpu_program *p, int32_t value)
{
    for (int h = 0; h < DRO__HEADS; h++)
        if (p->base.heads[h] == value)
            return p->base.operation_count;
    for (int32_t i = p->base.operation_count - 1; i >= 0; i--) {
        const dro__cpu_op *op = &p->ops[i];
        for (int k = 0; op->base.back && k < op->base.input_count; k++)
            if (op->base.in[k].value == value)
                return back_time(p, i);
        if (op->base.back && op->base.residual.value == value)
            return back_time(p, i);
    }
    return 2 * p->base.operation_count;
}

/* A value, its convolution's output and its slope. Values are visited from the last to the first,
 * so that the operations that compute a later tail are known. */
static void span_value(dro__cpu_program *p, int32_t value, span *spans, size_t *count)
{
    dro__cpu_value *v = &p->values[value];
    dro__cpu_tail *tail = v->base.tail < 0 ? NULL : &p->tails[v->base.tail];
    if (v->base.maker < 0)
        return;
    bool back = p->ops[v->base.maker].base.back;
    reading r = read_by(p, value);
    int32_t end = back_time(p, v->base.maker), last = r.last_back > r.last ? r.last_back : r.last;
    bool keep = true;
    if (tail && tail->base.deferred) {
        v->fill = r.first;
        keep = tail->base.residual >= 0 || r.count != 1 || !r.only_conv;
        if (tail->base.conv)
            add(spans, count, &tail->z, v->size, v->base.maker, back ? end : last);
    } else {
        v->fill = v->base.maker;
        last = back && end > last ? end : last; /* a layer may look at its own output */
    }
    if (keep)
        add(spans, count, &v->data, v->size, v->fill, last);
    if (p->base.training && back && v->base.wants && v->alias < 0)
        add(spans, count, &v->grad, v->size, slope_starts(p, value), end);
}

/* A slope that is shared lives until the value at the end of the row of aliases is done with it. */
static void stretch_aliases(dro__cpu_program *p, span *spans, size_t count)
{
    for (int32_t v = 0; v < p->base.value_count; v++) {
        int32_t owner = v;
        while (p->values[owner].alias >= 0)
            owner = p->values[owner].alias;
        if (owner == v || p->values[v].base.maker < 0)
            continue;
        for (size_t s = 0; s < count; s++)
            if (spans[s].place == &p->values[owner].grad &&
                spans[s].to < back_time(p, p->values[v].base.maker))
                spans[s].to = back_time(p, p->values[v].base.maker);
    }
}

/* ---- places ---- */

/* The lowest offset at which a span does not meet one that has its place. */
static size_t lowest(const span *spans, size_t done, const span *s)
{
    size_t at = 0;
    for (size_t k = 0; k < done; k++) {
        const span *o = &spans[k];
        size_t begin = (size_t)*o->place;
        if (o->to < s->from || s->to < o->from || begin + o->size <= at || at + s->size <= begin)
            continue;
        at = begin + o->size;
        k = (size_t)-1; /* from the start: an earlier one may be in the way now */
    }
    return at;
}

/* Larger spans first: small ones fit between them. */
static void sort(span *spans, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        span s = spans[i];
        size_t k = i;
        for (; k > 0 && spans[k - 1].size < s.size; k--)
            spans[k] = spans[k - 1];
        spans[k] = s;
    }
}

bool dro__cpu_program_plan(dro__cpu_program *p)
{
    enum { EACH = 3 };
    size_t count = 0;
    span *spans = dro__alloc(EACH * (size_t)p->base.value_count, sizeof *spans);
    if (!spans)
        return false;
    for (int32_t i = p->base.operation_count - 1; i >= 0;
         i--) /* values in the order in which they are made */
        span_value(p, p->ops[i].base.end, spans, &count);
    stretch_aliases(p, spans, count);
    sort(spans, count);
    for (size_t k = 0; k < count; k++) {
        size_t at = lowest(spans, k, &spans[k]);
        *spans[k].place = (int64_t)at;
        p->arena = at + spans[k].size > p->arena ? at + spans[k].size : p->arena;
    }
    dro__free(spans);
    for (int32_t v = 0; v < p->base.value_count; v++) {
        int32_t owner = v;
        while (p->values[owner].alias >= 0)
            owner = p->values[owner].alias;
        p->values[v].grad = p->values[owner].grad;
    }
    return true;
}
