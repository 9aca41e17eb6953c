/* The lowering: which nodes become one operation, in which forms values are, who reads them and who
 * writes their slopes. */
#include "lower.h"

#include <string.h>

static dro__value *value_at(const dro__program *p, int32_t i)
{
    return (dro__value *)((char *)p->values + (size_t)i * p->lowering->value_size);
}

static dro__operation *operation_at(const dro__program *p, int32_t i)
{
    return (dro__operation *)((char *)p->operations + (size_t)i * p->lowering->operation_size);
}

/* ---- chains ---- */

typedef struct chain { /* what ends at a node */
    int32_t first;     /* its first node, -1: the node is inside a chain or not needed */
    int32_t readers, reader;
    const dro__graph_node *norm;
    int32_t residual; /* a node, -1 */
    float cap;
} chain;

static void count_readers(const dro__program *p, chain *chains)
{
    const dro__graph *g = p->graph;
    for (int32_t i = 0; i < g->count; i++)
        chains[i] = (chain){.first = -1, .residual = -1};
    for (int h = 0; h < DRO__HEADS; h++) /* a head is read from outside */
        if (g->heads[h] >= 0) {
            chains[g->heads[h]].readers++;
            if (h == 0 || p->training)
                chains[g->heads[h]].first = g->heads[h];
        }
    for (int32_t i = g->count - 1; i >= 0; i--)
        for (int k = 0; chains[i].first >= 0 && k < g->nodes[i].input_count; k++) {
            chain *from = &chains[g->nodes[i].inputs[k]];
            from->first = g->nodes[i].inputs[k];
            from->readers++;
            from->reader = i;
        }
}

static bool has_tail(const dro__program *p, const dro__graph_node *node)
{
    return p->lowering->traits(node->op)->tail;
}

/* Whether a node may be the end of a chain. */
static bool may_end(const dro__program *p, const dro__graph_node *node)
{
    return has_tail(p, node) || node->op == DRO__OP_ADD || node->op == DRO__OP_RELU;
}

/* Grows the chain that begins at a node as far as one reader after another allows. */
static void grow(const dro__program *p, chain *chains, int32_t first)
{
    const dro__graph *g = p->graph;
    chain c = chains[first];
    int32_t at = first;
    c.norm = g->nodes[first].op == DRO__OP_NORM ? &g->nodes[first] : NULL;
    while (chains[at].readers == 1 && c.cap == 0) {
        int32_t next = chains[at].reader;
        const dro__graph_node *node = &g->nodes[next];
        if (node->op == DRO__OP_NORM && !c.norm && c.residual < 0) {
            c.norm = node;
        } else if (node->op == DRO__OP_ADD && c.residual < 0) {
            int32_t other = node->inputs[0] == at ? node->inputs[1] : node->inputs[0];
            if (other >= at && may_end(p, &g->nodes[other]))
                break; /* the later of two chains takes the sum */
            c.residual = other;
        } else if (node->op == DRO__OP_RELU) {
            c.cap = node->cap;
        } else {
            break;
        }
        chains[at].first = -1;
        at = next;
    }
    chains[at].first = first;
    chains[at].norm = c.norm;
    chains[at].residual = c.residual;
    chains[at].cap = c.cap;
}

/* ---- values and operations ---- */

static dro__value *add_value(dro__program *p, int32_t index, const dro__value *what)
{
    dro__value *v = value_at(p, index);
    *v = *what;
    v->tail = v->maker = v->first = -1;
    p->lowering->value(p, index);
    return v;
}

/* The operation that makes a value. */
static dro__operation *add_operation(dro__program *p, dro__op op, int32_t end)
{
    dro__operation *to = operation_at(p, p->operation_count);
    *to = (dro__operation){.op = op, .end = end, .residual = {.value = -1}};
    value_at(p, end)->maker = p->operation_count++;
    return to;
}

dro__operation *dro__program_insert(dro__program *p, dro__op op, int32_t from,
                                    const dro__value *made)
{
    int32_t index = p->value_count++;
    bool wants = add_value(p, index, made)->wants;
    dro__operation *to = add_operation(p, op, index);
    to->input_count = 1;
    to->in[0].value = from;
    to->back = p->training && wants;
    return to;
}

/* The value in a form; adds a conversion when there is none yet. */
static int32_t in_form(dro__program *p, int32_t value, int form)
{
    const dro__value *v = value_at(p, value);
    if (form == DRO__FORM_ANY || v->form == form)
        return value;
    for (int32_t i = 0; i < p->operation_count; i++) {
        const dro__operation *op = operation_at(p, i);
        if (op->op == DRO__OP_CONVERT && op->in[0].value == value)
            return op->end;
    }
    dro__value made = *v;
    made.form = form;
    return dro__program_insert(p, DRO__OP_CONVERT, value, &made)->end;
}

/* A form of the traits for a node. */
static int resolve(const dro__program *p, const dro__graph_node *node, int form)
{
    if (form != DRO__FORM_COMMON)
        return form > p->form_most ? p->form_most : form;
    int common = 0;
    for (int k = 0; k < node->input_count; k++) {
        int here = value_at(p, node->inputs[k])->form;
        common = here > common ? here : common;
    }
    return common;
}

static dro_status add_tail(dro__program *p, const dro__operation *op, const chain *c)
{
    dro__tail *tail =
        (dro__tail *)((char *)p->tails + (size_t)p->tail_count * p->lowering->tail_size);
    bool conv = op->op != DRO__OP_NORM;
    *tail = (dro__tail){.conv = conv ? op->node : NULL,
                        .norm = c->norm,
                        .cap = c->cap,
                        .deferred = p->training && c->norm && !c->norm->frozen,
                        .residual = op->residual.value,
                        .source = conv ? -1 : op->in[0].value};
    value_at(p, op->end)->tail = p->tail_count++;
    return p->lowering->tail(p, tail, op);
}

/* Emits the operation of the chain (or single node) that ends at node i. */
static dro_status emit(dro__program *p, const chain *c, int32_t i)
{
    const dro__graph_node *node = &p->graph->nodes[c->first], *last = &p->graph->nodes[i];
    const dro__traits *traits = p->lowering->traits(node->op);
    int32_t inputs[DRO__NODE_INPUTS] = {0}, residual = -1;
    int in = resolve(p, node, traits->in), out = resolve(p, node, traits->out);
    for (int k = 0; k < node->input_count; k++) {
        bool few = value_at(p, node->inputs[k])->channels <= traits->few;
        inputs[k] = in_form(p, node->inputs[k], few ? DRO__FORM_ANY : in);
    }
    if (p->lowering->input)
        inputs[0] = p->lowering->input(p, node, inputs[0]);
    if (c->residual >= 0)
        residual = in_form(p, c->residual, out);
    add_value(p, i,
              &(dro__value){.channels = last->channels,
                            .height = last->height,
                            .width = last->width,
                            .form = out,
                            .wants = last->grad});
    dro__operation *op = add_operation(p, node->op, i);
    op->index = c->first;
    op->node = node;
    op->back = p->training && last->grad;
    op->input_count = node->input_count;
    for (int k = 0; k < node->input_count; k++)
        op->in[k].value = inputs[k];
    op->residual.value = residual;
    DRO_TRY(p->lowering->operation(p, op));
    return traits->tail ? add_tail(p, op, c) : DRO_OK;
}

static dro_status emit_all(dro__program *p, chain *chains)
{
    const dro__graph *g = p->graph;
    count_readers(p, chains);
    for (int32_t i = 0; i < g->count; i++)
        if (chains[i].first == i && has_tail(p, &g->nodes[i]))
            grow(p, chains, i);
    for (int32_t i = 0; i < g->count; i++) {
        const dro__graph_node *node = &g->nodes[i];
        dro__value input = {.channels = node->channels,
                            .height = node->height,
                            .width = node->width,
                            .form = resolve(p, node, p->lowering->traits(node->op)->out)};
        if (chains[i].first >= 0 && node->op == DRO__OP_INPUT)
            add_value(p, i, &input);
        else if (chains[i].first >= 0)
            DRO_TRY(emit(p, &chains[i], i));
    }
    for (int h = 0; h < DRO__HEADS; h++) {
        bool used = g->heads[h] >= 0 && (h == 0 || p->training);
        p->heads[h] = used ? in_form(p, g->heads[h], 0) : -1;
    }
    return DRO_OK;
}

/* ---- who reads a value, and who writes its slope first and last ---- */

static void mark_use(const dro__program *p, int32_t operation, dro__use *use, bool back,
                     dro__use **latest)
{
    if (use->value < 0)
        return;
    dro__value *v = value_at(p, use->value);
    v->readers++;
    v->first = operation; /* they come from the last to the first */
    if (!back || !v->wants)
        return;
    v->writers++;
    use->first = !latest[use->value];
    use->last = true;
    if (latest[use->value])
        latest[use->value]->last = false;
    latest[use->value] = use;
}

static void mark_uses(const dro__program *p, dro__use **latest)
{
    dro__use heads[DRO__HEADS] = {{0}};
    for (int h = 0; h < DRO__HEADS; h++) {
        heads[h].value = p->heads[h];
        mark_use(p, -1, &heads[h], p->training, latest);
    }
    for (int32_t i = p->operation_count - 1; i >= 0; i--) {
        dro__operation *op = operation_at(p, i);
        for (int k = 0; k < op->input_count; k++)
            mark_use(p, i, &op->in[k], op->back, latest);
        mark_use(p, i, &op->residual, op->back, latest);
    }
}

/* ---- the whole ---- */

dro_status dro__program_begin(dro__program *p)
{
    size_t count = (size_t)p->graph->count, most = count * (size_t)(1 + p->lowering->extra);
    p->values = dro__alloc(most, p->lowering->value_size);
    p->tails = dro__alloc(count, p->lowering->tail_size);
    p->operations = dro__alloc(most, p->lowering->operation_size);
    p->value_count = p->graph->count;
    if (!p->values || !p->tails || !p->operations)
        return dro__fail(p->ctx, DRO_ERR_MEMORY, "no memory for a network");
    return DRO_OK;
}

dro_status dro__program_lower(dro__program *p)
{
    size_t count = (size_t)p->graph->count, most = count * (size_t)(1 + p->lowering->extra);
    chain *chains = dro__alloc(count, sizeof *chains);
    dro__use **latest = dro__alloc(most, sizeof *latest);
    dro_status status = DRO_OK;
    if (!chains || !latest)
        status = dro__fail(p->ctx, DRO_ERR_MEMORY, "no memory for a network");
    if (status == DRO_OK)
        status = emit_all(p, chains);
    if (status == DRO_OK)
        mark_uses(p, latest);
    dro__free(chains);
    dro__free(latest);
    return status;
}

void dro__program_end(dro__program *p)
{
    dro__free(p->values);
    dro__free(p->tails);
    dro__free(p->operations);
}
