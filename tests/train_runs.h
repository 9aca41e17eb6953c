/* Runs of the training room's tests: small, in a folder of their own, stopped where a test
 * wants. */
#ifndef DRO_TRAIN_RUNS_H
#define DRO_TRAIN_RUNS_H

#include "data_dir.h"
#include "events.h"
#include "train.h"

#include <math.h>

/* One thread of the fastest backend; a test that wants more takes another context. */
static inline int setup_train(void **state)
{
    (void)state;
    bool memory = access("/dev/shm", W_OK) == 0; /* where nothing waits for a disk */
    sprintf(dir, "%s/dro_train_XXXXXX", memory ? "/dev/shm" : "/tmp");
    ctx = check_context(NULL, 1);
    return mkdtemp(dir) ? 0 : -1;
}

#define DATA "synth:glyphs,n=200,test=30,size=12,classes=3,holdout=0.2"

typedef struct stopper {
    uint64_t at;            /* stop before this step */
    int notes, evaluations; /* notes: without the one that says where a run goes on */
    char note[512];
    unsigned long long step, examples; /* where it went on */
    bool went_on;
} stopper;

static inline bool stop_at(void *user, const dro_train_progress *p)
{
    const stopper *s = user;
    return !p->evaluating && p->step >= s->at;
}

static inline void count_note(void *user, const char *text)
{
    stopper *s = user;
    if (sscanf(text, "resuming after step %llu (%llu examples)", &s->step, &s->examples) == 2) {
        s->went_on = true;
        return;
    }
    s->notes++;
    snprintf(s->note, sizeof s->note, "%s", text);
}

static inline void count_evaluation(void *user, const dro_train_record *r)
{
    stopper *s = user;
    (void)r;
    s->evaluations++;
}

static inline dro_train_watch watch_of(stopper *s)
{
    return (dro_train_watch){.size = sizeof(dro_train_watch),
                             .user = s,
                             .step = stop_at,
                             .note = count_note,
                             .evaluated = count_evaluation};
}

static inline void set_all(dro_train *t, const char *settings)
{
    char text[512], *rest = text, *word;
    strcpy(text, settings);
    while ((word = strtok_r(rest, " ", &rest))) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        OK(ctx, dro_train_set(t, word, value));
    }
}

static inline dro_train *make(const char *settings)
{
    dro_train *t;
    OK(ctx, dro_train_create(ctx, &t));
    set_all(t, "data=" DATA " batch=16 steps=20 eval_every=0.5 best=balanced_accuracy");
    set_all(t, settings);
    return t;
}

static inline dro_status run_to(const char *settings, const char *name, bool resume, uint64_t stop,
                                stopper *s)
{
    stopper mine;
    s = s ? s : &mine;
    *s = (stopper){.at = stop};
    dro_train_watch watch = watch_of(s);
    dro_train *t = make(settings);
    char folder[300];
    snprintf(folder, sizeof folder, "%s/%s", dir, name);
    dro_status status = dro_train_run(t, folder, resume, &watch);
    dro_train_destroy(t);
    return status;
}

static inline char *slurp(const char *folder, const char *name, size_t *size)
{
    char path[300], *bytes;
    snprintf(path, sizeof path, "%s/%s", dir, folder);
    OK(ctx, dro__file_read(ctx, path, name, &bytes, size));
    if (!bytes)
        fail_msg("%s/%s is not there", folder, name);
    return bytes;
}

/* The first number of this name in result.json: a loss is that on the training set. */
static inline double number_in(const char *folder, const char *name)
{
    size_t length, size = strlen(name);
    char *result = slurp(folder, "result.json", &length);
    double value = NAN;
    for (size_t i = 0; i + size < length && isnan(value); i++)
        if (strncmp(result + i, name, size) == 0)
            value = atof(result + i + size);
    dro__free(result);
    return value;
}

/* Takes the measured times out of a text. */
static inline void without_times(char *text)
{
    static const char *const keys[] = {"\"seconds\":", "\"wall\":"};
    for (int k = 0; k < 2; k++)
        for (char *at = text; (at = strstr(at, keys[k]));) {
            at += strlen(keys[k]);
            size_t skip = strcspn(at, ",}");
            memmove(at, at + skip, strlen(at + skip) + 1);
        }
}

/* Takes the times out of an event file: after the head each record begins with one. */
static inline void without_event_times(char *bytes, size_t size)
{
    uint64_t length;
    for (size_t at = 0; at < size; at += 12 + length + 4) {
        assert_true(at + 16 <= size);
        memcpy(&length, bytes + at, sizeof length);
        assert_true(length <= size - at - 16);
        if (at == 0)
            continue;
        assert_int_equal(bytes[at + 12], 1 << 3 | 1);
        memset(bytes + at + 13, 0, 8);
        memset(bytes + at + 12 + length, 0, 4); /* the check */
    }
}

static inline void same_file(const char *a, const char *b, const char *name)
{
    size_t na, nb;
    char *x = slurp(a, name, &na), *y = slurp(b, name, &nb);
    if (strstr(name, ".json")) {
        without_times(x);
        without_times(y);
        na = strlen(x);
        nb = strlen(y);
    }
    if (strcmp(name, DRO__EVENTS_NAME) == 0) {
        without_event_times(x, na);
        without_event_times(y, nb);
    }
    if (na != nb || memcmp(x, y, na) != 0)
        fail_msg("%s differs between %s and %s", name, a, b);
    dro__free(x);
    dro__free(y);
}

static inline void same_run(const char *a, const char *b)
{
    static const char *const files[] = {"weights.safetensors", "last.safetensors",
                                        "metrics.jsonl",       "result.json",
                                        "config.json",         DRO__EVENTS_NAME};
    for (int k = 0; k < 6; k++)
        same_file(a, b, files[k]);
}

static inline void clear(const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
