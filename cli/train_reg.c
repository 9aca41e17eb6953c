/* --reg: a regulariser and its strength, which do nothing without each other. */
#include "train.h"

#include <stdlib.h>
#include <string.h>

int cli_reg_take(const char *command, dro_train *train, const char *value)
{
    char name[64];
    const char *colon = strchr(value, ':');
    snprintf(name, sizeof name, "%.*s", (int)strcspn(value, ":"), value);
    int status = cli_train_set(command, train, "reg", name);
    if (status || !colon)
        return status;
    if (strcmp(name, "ball") == 0)
        return cli_train_set(command, train, "reg_radius", colon + 1);
    if (!dro_regulariser_has_strength(name))
        return cli_usage("%s: --reg %s: %s has no strength: --reg %s%s", command, value, name, name,
                         strcmp(name, "box") ? "" : ", with --set reg_low=A --set reg_high=B");
    return cli_train_set(command, train, "reg_strength", colon + 1);
}

/* Whether --set names it. */
static bool is_set(const cli_args *args, const char *name)
{
    const char *pair;
    size_t length = strlen(name);
    for (int k = 0; (pair = cli_given(args, "set", k)); k++)
        if (strncmp(pair, name, length) == 0 && pair[length] == '=')
            return true;
    return false;
}

/* A strength of 0 is a choice where somebody wrote it, in a grid of strengths say; a config.json has that of a run
 * without a regulariser, too. */
int cli_reg_check(const cli_args *args, const dro_train *train)
{
    char reg[64] = "none", strength[64] = "0";
    const char *flag = cli_text(args, "reg");
    bool named = dro_train_get(train, "reg", reg, sizeof reg) == DRO_OK;
    bool given = dro_train_get(train, "reg_strength", strength, sizeof strength) == DRO_OK;
    bool named_here = flag || is_set(args, "reg");
    bool given_here = is_set(args, "reg_strength") || (flag && strchr(flag, ':'));
    bool zero = strtod(strength, NULL) == 0;
    if (dro_regulariser_has_strength(reg) && (!given || (zero && named_here && !given_here)))
        return cli_usage("%s: the regulariser %s does nothing without a strength: --reg %s:1e-5, "
                         "say",
                         cli_name(args), reg, reg);
    if (!dro_regulariser_has_strength(reg) && !zero && !named_here && (given_here || !named))
        return cli_usage("%s: reg_strength=%s does nothing without a regulariser: --reg l2:%s, say",
                         cli_name(args), strength, strength);
    return 0;
}
