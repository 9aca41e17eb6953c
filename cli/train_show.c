/* What a run prints during training, and its tables at the end. */
#include "train.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- signals ---- */

static volatile sig_atomic_t caught;

static volatile sig_atomic_t ends_stdin, at_once;
static const char *made; /* an empty folder */

static void on_signal(int number)
{
    if (caught && number == SIGINT)
        _exit(130);
    if (at_once) {
        static const char text[] = "dro: stopped before the first step: there is nothing to save\n";
        ssize_t ignored = cli_muted() ? 0 : write(STDERR_FILENO, text, sizeof text - 1);
        (void)ignored;
        if (made)
            rmdir(made);
        _exit(1);
    }
    caught = number;
    if (ends_stdin) { /* a read that waits for a pipe returns the end instead */
        int nothing = open("/dev/null", O_RDONLY);
        if (nothing >= 0)
            dup2(nothing, STDIN_FILENO);
    }
}

void cli_stop_on_signals(bool ends_input)
{
    ends_stdin = ends_input;
    struct sigaction action = {.sa_handler = on_signal}, before;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, NULL, &before);
    if (before.sa_handler != SIG_IGN) /* nohup */
        sigaction(SIGHUP, &action, NULL);
}

void cli_stop_at_once(const char *folder)
{
    made = folder;
    at_once = 1;
}

int cli_stopped(void)
{
    return caught;
}

/* ---- while it goes on ---- */

static void time_text(char *text, size_t size, double seconds)
{
    if (!isfinite(seconds))
        snprintf(text, size, "?");
    else if (seconds < 60)
        snprintf(text, size, "%.0f s", seconds);
    else if (seconds < 3600)
        snprintf(text, size, "%.0f:%02.0f min", floor(seconds / 60), fmod(floor(seconds), 60));
    else
        snprintf(text, size, "%.0f:%02.0f h", floor(seconds / 3600),
                 floor(fmod(seconds, 3600) / 60));
}

/* The progress of a run: in epochs, or in steps if it has less than one epoch. live: with a
 * constant width. */
static char *place_text(char *text, size_t size, const dro_train_progress *p, bool live)
{
    int digits = p->epochs < 1000 ? 4 : 9;
    unsigned long long step = p->step, steps = p->steps;
    if (steps == 0) /* a stream */
        snprintf(text, size, "step %llu", step);
    else if (p->epochs < 1)
        snprintf(text, size, "step %llu/%llu", step, steps);
    else if (live)
        snprintf(text, size, "epoch %.2f/%.*g", p->epoch, digits, p->epochs);
    else
        snprintf(text, size, "epoch %.*g/%.*g", digits, p->epoch, digits, p->epochs);
    return text;
}

/* The present values of the objective's scalars, if it has any. */
static char *reached_text(char *text, size_t size, double lambda, double threshold, double radius)
{
    const struct {
        const char *name;
        double value;
    } all[] = {{"lambda", lambda}, {"threshold", threshold}, {"radius", radius}};
    size_t used = 0;
    *text = '\0';
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        if (isfinite(all[k].value) && used < size)
            used +=
                (size_t)snprintf(text + used, size - used, "  %s %.3g", all[k].name, all[k].value);
    return text;
}

/* Everything on one line; shorter if the terminal is narrow. */
static void show_live(const cli_show *show, const dro_train_progress *p)
{
    enum { WIDE = 125 };
    bool wide = cli_progress_width() >= WIDE;
    char left[32], place[64], test[64] = "", reached[96];
    time_text(left, sizeof left, p->left);
    reached_text(reached, sizeof reached, p->lambda, p->threshold, p->radius);
    place_text(place, sizeof place, p, true);
    if (show->evaluated)
        snprintf(
            test, sizeof test,
            wide ? "  %saccuracy %.1f %%  worst class %.1f %%" : "  %sacc %.1f%%  worst %.1f%%",
            show->of_train ? "train " : "", cli_percent(show->accuracy), cli_percent(show->worst));
    char on[64] = "";
    if (p->evaluating)
        snprintf(on, sizeof on, "  %s%s %.0f %%", wide ? "evaluating " : "", p->evaluating,
                 cli_percent(p->evaluated));
    if (wide)
        cli_progress("%s  %.0f examples/s  %s left  loss %.3f  F %.3f%s%s  effective %.2f%s", place,
                     p->examples_per_s, left, p->loss, p->objective, test, reached, p->effective,
                     on);
    else
        cli_progress("%s  %.0f/s  %s left  loss %.3f  F %.3f%s%s  ess %.2f%s",
                     strchr(place, ' ') + 1, p->examples_per_s, left, p->loss, p->objective, test,
                     reached, p->effective, on);
}

/* Without a terminal: occasional lines during a long evaluation. */
static void show_evaluating(cli_show *show, const dro_train_progress *p, double now)
{
    enum { SECONDS = 10 };
    char place[64];
    if (!p->evaluating || now - show->last < SECONDS) {
        show->last = p->evaluating && show->last > 0 ? show->last : now;
        return;
    }
    show->last = now;
    place_text(place, sizeof place, p, false);
    fprintf(show->to ? show->to : stdout, "%s  evaluating %s: %.0f %%\n", place, p->evaluating,
            cli_percent(p->evaluated));
    fflush(show->to ? show->to : stdout);
}

static bool on_step(void *user, const dro_train_progress *p)
{
    cli_show *show = user;
    double now = cli_seconds();
    at_once = 0;
    show->step = p->step;
    if (!show->quiet && !show->to && isatty(STDERR_FILENO) && now - show->last > 0.2 &&
        p->step > 0) {
        show->last = now;
        show_live(show, p);
    } else if (!show->quiet && (show->to || !isatty(STDERR_FILENO))) {
        show_evaluating(show, p, now);
    }
    return caught != 0 || (show->stop && atomic_load(show->stop));
}

/* A line of a stream. */
static void show_stream(FILE *to, const dro_train_record *r)
{
    const dro_metrics *m = &r->test;
    char last[48] = "AUROC -";
    if (m->classes > 2)
        snprintf(last, sizeof last, "balanced %.2f %%", cli_percent(r->window.balanced_accuracy));
    else if (isfinite(r->window.auroc))
        snprintf(last, sizeof last, "AUROC %.4f", r->window.auroc);
    fprintf(to, "%llu example%s  %.0f examples/s  loss %.4f, recent %.4f",
            (unsigned long long)m->examples, m->examples == 1 ? "" : "s",
            (double)m->examples / r->seconds, m->loss, r->window.loss);
    if (m->classes)
        fprintf(to, "  accuracy %.2f %%, recent %.2f %%  worst class %.2f %%  recent %s",
                cli_percent(m->accuracy), cli_percent(r->window.accuracy),
                cli_percent(m->worst_class_accuracy), last);
    fprintf(to, "\n");
    fflush(to);
}

static void on_evaluated(void *user, const dro_train_record *r)
{
    cli_show *show = user;
    const dro_metrics *m = r->has_test ? &r->test : r->has_holdout ? &r->holdout : &r->train;
    show->accuracy = m->accuracy;
    show->worst = m->worst_class_accuracy;
    show->evaluated = m->classes > 0;
    show->of_train = m == &r->train;
    FILE *to = show->to ? show->to : stdout;
    if (show->quiet || (!show->to && isatty(STDERR_FILENO)))
        return;
    if (r->has_window) {
        show_stream(to, r);
        return;
    }
    char left[32], place[64], reached[96];
    double done = (double)r->info.step;
    dro_train_progress at = {
        .step = r->info.step, .steps = r->steps, .epoch = r->epoch, .epochs = r->epochs};
    time_text(left, sizeof left, r->wall / done * ((double)r->steps - done));
    fprintf(to, "%s  %.0f examples/s  %s left  loss %.3f",
            place_text(place, sizeof place, &at, false), (double)r->info.examples / r->seconds,
            left, r->info.loss);
    if (r->has_train)
        fprintf(to, "  F %.3f", r->train.objective);
    if (m->classes)
        fprintf(to, "  %saccuracy %.1f %%  worst class %.1f %%", m == &r->train ? "train " : "",
                cli_percent(m->accuracy), cli_percent(m->worst_class_accuracy));
    else if (m->examples) /* without: nothing was evaluated */
        fprintf(to, "  %s loss %.4g",
                r->has_test      ? "test"
                : r->has_holdout ? "holdout"
                                 : "train",
                m->loss);
    reached_text(reached, sizeof reached, r->info.lambda, r->info.threshold, r->info.radius);
    fprintf(to, "%s  effective %.2f\n", reached, r->info.effective);
    fflush(to);
}

/* Settings as a user types them here: " model=auto" becomes " --model auto". */
static void write_options(const char *text, char *out, size_t size)
{
    size_t used = 0;
    while (*text && used + 4 < size) {
        char name[32] = "";
        size_t length = strspn(text + 1, "abcdefghijklmnopqrstuvwxyz_");
        if ((*text == ' ' || *text == '(') && text[1 + length] == '=' && length < sizeof name)
            memcpy(name, text + 1, length);
        out[used++] = *text++;
        if (!*name || !dro_setting_name(name) || used + length + 4 > size)
            continue;
        used += (size_t)snprintf(out + used, size - used, "--%s ", name);
        text += length + 1;
    }
    out[used] = '\0';
}

static void on_note(void *user, const char *text)
{
    const cli_show *show = user;
    char hint[1024];
    if (show->quiet && strncmp(text, "skipped ", 8) == 0)
        return; /* result.json has them */
    if (strncmp(text, "hint: ", 6) == 0) {
        write_options(text, hint, sizeof hint);
        text = hint;
    }
    cli_note(show->to ? show->to : stderr, "%s", text);
}

static void on_plan(void *user, const char *text)
{
    const cli_show *show = user;
    if (show->quiet)
        return;
    if (!show->to)
        cli_progress(NULL);
    cli_wrapped(show->to ? show->to : stdout, text);
    fflush(show->to ? show->to : stdout);
}

dro_train_watch cli_show_watch(cli_show *show)
{
    return (dro_train_watch){.size = sizeof(dro_train_watch),
                             .user = show,
                             .step = on_step,
                             .evaluated = on_evaluated,
                             .note = on_note,
                             .plan = on_plan};
}

/* ---- at the end ---- */

static void write_metrics(FILE *to, const char *name, const dro_metrics *m, const char *loss)
{
    bool usual = !loss || dro_loss_proper(loss);
    const char *of = usual ? "" : loss, *space = usual ? "" : " ";
    fprintf(to, "%-8s ", name);
    if (m->classes == 0) {
        fprintf(to, "%s%sloss %.5g  RMSE %.5g  MAE %.5g  R2 %.4f", of, space, m->loss, m->rmse,
                m->mae, m->r2);
        return;
    }
    fprintf(to, "accuracy %.2f %%  balanced %.2f %%  worst class %.2f %%  macro F1 %.4f",
            cli_percent(m->accuracy), cli_percent(m->balanced_accuracy),
            cli_percent(m->worst_class_accuracy), m->macro_f1);
    if (isfinite(m->worst_group_accuracy))
        fprintf(to, "  worst group %.2f %%", cli_percent(m->worst_group_accuracy));
    if (isfinite(m->auroc))
        fprintf(to, "  AUROC %.4f", m->auroc);
    if (isfinite(m->average_precision))
        fprintf(to, "  average precision %.4f", m->average_precision);
    fprintf(to, "  calibration error %.4f  %s%sloss %.4f", m->calibration_error, of, space,
            m->loss);
}

void cli_show_metrics(const char *name, const dro_metrics *m, const char *loss)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to)
        write_metrics(to, name, m, loss);
    cli_close_text(to, &text);
    cli_wrapped(stdout, text);
    free(text);
}

enum { MOST = 40 }; /* rows of a table */

static void show_groups(const dro_metrics *m, const dro_data_info *info)
{
    static const char *const headers[] = {">group", "name", ">examples", ">accuracy"};
    printf("\n");
    cli_table *t = cli_table_create(4, headers);
    for (int32_t k = 0; k < m->groups && k < MOST; k++) {
        cli_table_cell(t, "%d", k);
        cli_table_cell(t, "%s", info->group_names[k]);
        cli_table_cell(t, "%lld", (long long)m->group_counts[k]);
        if (m->group_counts[k])
            cli_table_cell(t, "%.1f %%", cli_percent(m->per_group[k]));
        else
            cli_table_cell(t, "-");
    }
    cli_table_print(t);
    if (m->groups > MOST)
        printf("... %d more groups: result.json has them all\n", m->groups - MOST);
}

void cli_show_classes(const dro_metrics *m, const dro_data_info *info, bool train_counts)
{
    static const char *const headers[] = {">class", "name", ">examples", ">accuracy",
                                          ">trained on"};
    if (m->classes == 0)
        return;
    cli_table *t = cli_table_create(train_counts ? 5 : 4, headers);
    for (int32_t k = 0; k < m->classes && k < MOST; k++) {
        cli_table_cell(t, "%d", k);
        cli_table_cell(t, "%s", k < info->classes ? info->class_names[k] : "");
        cli_table_cell(t, "%lld", (long long)m->counts[k]);
        if (m->counts[k])
            cli_table_cell(t, "%.1f %%", cli_percent(m->per_class[k]));
        else
            cli_table_cell(t, "-");
        if (train_counts)
            cli_table_cell(t, "%lld",
                           info->counts[DRO_TRAIN] ? (long long)info->counts[DRO_TRAIN][k] : 0LL);
    }
    cli_table_print(t);
    if (m->classes > MOST)
        printf("... %d more classes: result.json has them all\n", m->classes - MOST);
    if (m->groups)
        show_groups(m, info);
}
