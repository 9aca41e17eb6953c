/* How a predictor decides: the prior of its probabilities, and the class that follows from them. */
#define _DEFAULT_SOURCE /* strsep */
#include "predictor.h"
#include "text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The share of each class, "NAME,SHARE" a line. */
static dro_status read_shares(dro_predictor *p, const char *path, double *shares)
{
    enum { BYTES_MAX = 1 << 24 };
    char *text, *rest, *line;
    size_t size;
    dro__input *input;
    if (!dro__file_exists(path))
        return dro__fail(p->ctx, DRO_ERR_FILE,
                         "prior %s: expected train, uniform, or a file with a line NAME,SHARE for "
                         "each class",
                         path);
    DRO_TRY(dro__input_open(p->ctx, path, &input));
    dro_status status = dro__input_all(input, BYTES_MAX, &text, &size);
    dro__input_close(input);
    DRO_TRY(status);
    rest = text;
    for (int number = 1; status == DRO_OK && (line = strsep(&rest, "\n")); number++) {
        line[strcspn(line, "\r")] = '\0';
        char *comma = strrchr(line, ',');
        double share = -1;
        int32_t k = 0;
        if (comma)
            *comma = '\0';
        while (k < p->about.classes && strcmp(p->about.names[k], line) != 0)
            k++;
        if (!*line && !comma)
            continue;
        const char *end = comma ? dro__number_double(comma + 1, &share) : NULL;
        if (!end || *end || !(share > 0) || isinf(share))
            status =
                dro__fail(p->ctx, DRO_ERR_DATA,
                          "%s: line %d: expected NAME,SHARE with a share above 0", path, number);
        else if (k == p->about.classes)
            status = dro__fail(p->ctx, DRO_ERR_DATA, "%s: line %d: the model has no class '%.200s'",
                               path, number, line);
        else
            shares[k] = share;
    }
    dro__free(text);
    for (int32_t k = 0; status == DRO_OK && k < p->about.classes; k++)
        if (!(shares[k] > 0))
            status = dro__fail(p->ctx, DRO_ERR_DATA, "%s: has no line for the class '%.200s'", path,
                               p->about.names[k]);
    return status;
}

static dro_status set_prior(dro_predictor *p, const char *prior)
{
    int32_t classes = p->about.classes;
    dro__weights_shift(&p->about, p->task.net, p->task.shift);
    if (strcmp(prior, "train") == 0)
        return DRO_OK;
    if (!p->about.prior)
        return dro__fail(p->ctx, DRO_ERR_DATA,
                         "prior %s: the weights file does not have the classes' shares of the "
                         "training data (a stream, or an older version): only prior train",
                         prior);
    double *shares = dro__alloc((size_t)classes + 1, sizeof *shares);
    if (!shares)
        return dro__fail(p->ctx, DRO_ERR_MEMORY, "no memory for the classes' shares");
    bool uniform = strcmp(prior, "uniform") == 0;
    dro_status status = uniform ? DRO_OK : read_shares(p, prior, shares);
    for (int32_t k = 0; status == DRO_OK && k < classes; k++)
        p->task.shift[k] +=
            (uniform ? 0 : log(shares[k])) - log(fmax(p->about.prior[k], DRO__LEAST_SHARE));
    dro__free(shares);
    return status;
}

dro_status dro_predictor_prior(dro_predictor *p, const char *prior)
{
    if (!p || !prior)
        return DRO_ERR_ARGUMENT;
    dro__forget(p->ctx);
    p->probable = true;
    return p->about.classes ? set_prior(p, prior)
                            : dro__fail(p->ctx, DRO_ERR_ARGUMENT,
                                        "prior %s: the model has a real-valued output", prior);
}

bool dro_predictor_shifted(const dro_predictor *p)
{
    bool shifted = false;
    for (int32_t k = 1; p && k < p->about.classes; k++)
        shifted = shifted || p->task.shift[k] != p->task.shift[0];
    return shifted;
}

dro__decision dro__predictor_decision(const dro_predictor *p)
{
    return (dro__decision){.link = dro__link_of(&p->task),
                           .shift = p->task.shift,
                           .probable = p->probable,
                           .threshold = p->about.threshold,
                           .rare = p->about.rare};
}

dro_status dro_predictor_decide(const dro_predictor *p, const float *logits, double *probabilities,
                                int32_t *class)
{
    double of_it;
    if (!p || !logits || !probabilities || !class || p->about.classes < 1)
        return DRO_ERR_ARGUMENT;
    dro__decision d = dro__predictor_decision(p);
    *class = dro__decide(&d, logits, p->about.classes, &of_it, probabilities);
    return DRO_OK;
}
