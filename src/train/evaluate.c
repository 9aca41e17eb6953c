/* A split from end to end in evaluation mode, without augmentation. */
#include "train.h"

#include <math.h>

dro_status dro__evaluation_create(dro__task *t, int32_t classes, dro__evaluation *e)
{
    int32_t groups = t->info.groups;
    *e = (dro__evaluation){0};
    e->logits = dro__alloc(DRO__EVAL_MOST * t->outputs, sizeof(float));
    e->losses = dro__alloc(DRO__EVAL_MOST, sizeof(float));
    e->class_weights = dro__alloc((size_t)classes + 1, sizeof(double));
    e->group_weights = dro__alloc((size_t)groups + 1, sizeof(double));
    dro_status status = e->logits && e->losses && e->class_weights && e->group_weights
                            ? DRO_OK
                            : dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory to evaluate");
    for (int s = 0; s < DRO_SPLITS && status == DRO_OK; s++) {
        status = dro__measure_create(t->ctx, classes, t->info.examples[s], groups, &e->splits[s]);
        e->splits[s].link = dro__link_of(t);
    }
    if (status != DRO_OK)
        dro__evaluation_free(e);
    return status;
}

void dro__evaluation_free(dro__evaluation *e)
{
    for (int s = 0; s < DRO_SPLITS; s++)
        dro__measure_free(&e->splits[s]);
    dro__free(e->logits);
    dro__free(e->losses);
    dro__free(e->class_weights);
    dro__free(e->group_weights);
    *e = (dro__evaluation){0};
}

dro_status dro__evaluate_split(dro__task *t, dro__evaluation *e, dro_split split, const float *w,
                               double r, bool (*poll)(void *user), void *user)
{
    dro__measure *m = &e->splits[split];
    const int32_t *groups = t->shelf[split].examples.groups;
    const float *weights = t->shelf[split].examples.weights;
    int64_t n = t->info.examples[split];
    size_t step = t->shelf[split].batch;
    for (int64_t first = 0; first < n; first += (int64_t)step) {
        size_t count = n - first < (int64_t)step ? (size_t)(n - first) : step;
        const int32_t *labels;
        DRO_TRY(dro__task_evaluate(t, split, first, count, w, e->logits, e->losses, &labels));
        for (size_t i = 0, end; i < count; i = end + 1) { /* runs of examples that were read */
            for (end = i; end < count && !t->unread[end]; end++)
                ;
            dro__measure_add(
                m, &(dro__measured){.count = end - i,
                                    .logits = t->regression ? NULL : e->logits + i * t->outputs,
                                    .labels = labels ? labels + i : NULL,
                                    .losses = e->losses + i,
                                    .groups = groups ? groups + first + i : NULL,
                                    .weights = weights ? weights + first + i : NULL});
        }
        if (poll && poll(user))
            return DRO_OK;
    }
    return dro__measure_finish(t->ctx, m, r);
}
