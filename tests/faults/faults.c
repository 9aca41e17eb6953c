/* faults [-j JOBS] [-t SECONDS] DRO SHIM LIMIT [CASE...]: every command of the program with its
 * k-th call failing: an allocation, or an open, read, write, fsync, rename, close, ftruncate, mmap.
 * For every k, or for LIMIT of them spread evenly (0: all). JOBS processes share the work. After
 * SECONDS no further call is tried; a case gets its share of the time that is left, and the k that
 * were tried by then are spread evenly.
 *
 * What must hold: the program ends by itself, with status 0 or with status 1 or 2 and a line "dro:
 * ..."; with status 0 all files and the output are right; otherwise every file is the old one or
 * the right one, and the same command (of a run: with --resume) then brings all of them to what
 * they are without a fault. Where the program says that it evaluates batches in pieces for want of
 * memory, numbers are rounded in another way: its files need only be complete. Inside of oneDNN,
 * which aborts or exits when its memory fails, that is counted and is no failure. Writes a
 * temporary folder for each process. Exit status 1 on any failure, 77 where system calls cannot be
 * traced. */
#define _GNU_SOURCE
#include "faults.h"

#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    WORDS = 40,
    PATH = 600,
    LINE = 1200,
    INSIDE = 123
}; /* INSIDE: the shim, of a crash in oneDNN */

#define IMAGES                                                                                     \
    "--data synth:glyphs,n=60,test=12,size=8,classes=3,holdout=0.2 --batch 12 --threads 1"

#define TRAINED "train --data csv:t.csv,label=y --steps 2 --batch 16 --out run"
#define WEIGHTS "--weights run/weights.safetensors "
#define TABLE   "--data csv:t.csv,label=y "

/* A command, what comes before it, and what repairs it (NULL: the command itself). */
static const struct kase {
    const char *name, *before, *command, *again;
    bool output; /* what it prints is compared, too */
} cases[] = {
    {"table", "",
     "train --data csv:t.csv,label=y,holdout=0.2 --steps 4 --batch 16 --threads 1 "
     "--best accuracy --eval-every 0.5 --out run",
     "--resume", false},
    {"images", "", "train " IMAGES " --model mlp:4 --lr 0.01 --steps 3 --out run", "--resume",
     false},
    {"network", "", "train " IMAGES " --model resnet20 --steps 3 --out run", "--resume", false},
    {"stream", "",
     "train --progressive --data libsvm:s.svm,features=3 --batch 16 "
     "--report-every 32 --threads 1 --out run",
     "--resume", false},
    {"resume",
     "train --data csv:t.csv,label=y --steps 6 --batch 16 --threads 1 --out run|"
     "rm run/result.json run/weights.safetensors|mv run/previous.ckpt run/last.ckpt",
     "train --resume --out run", NULL, false},
    {"rows", "",
     "train --progressive --data csv:t.csv,label=y,learn=32 --batch 16 --report-every 32 "
     "--threads 1 --out run",
     "--resume", false},
    {"classes", "",
     "train --progressive --data libsvm:m.svm,features=3,learn=32 --objective cvar:0.5 --batch 16 "
     "--report-every 32 --threads 1 --out run",
     "--resume", false},
    {"auto", "",
     "train --data csv:t.csv,label=y,holdout=0.2 --model auto --steps 4 --batch 16 --threads 1 "
     "--out run",
     "--resume", false},
    {"halve", "",
     "train " TABLE "--optimizer sgd --model mlp:4 --lr 1e6 --set warmup=0 --steps 12 --batch 16 "
     "--threads 1 --out run",
     "--resume", false},
    {"predict", TRAINED "|cp t.csv p.csv", "predict " WEIGHTS TABLE "--out p.csv", NULL, false},
    {"cells", TRAINED, "predict " WEIGHTS TABLE, NULL, true},
    {"lines", TRAINED, "predict " WEIGHTS TABLE "--format jsonl", NULL, true},
    {"prior", TRAINED, "predict " WEIGHTS TABLE "--prior prior.csv", NULL, true},
    {"eval", TRAINED, "eval " WEIGHTS TABLE "--json", NULL, true},
    {"threshold", TRAINED, "eval " WEIGHTS TABLE "--threshold f1 --json", NULL, true},
    {"export", TRAINED, "export " WEIGHTS "--onnx model.onnx", NULL, false},
    {"explain", TRAINED "|cp t.csv x.csv",
     "explain " WEIGHTS TABLE "--objective kl:1 --out x.csv --json", NULL, true},
    {"page", TRAINED "|cp t.csv x.html",
     "explain " WEIGHTS TABLE "--objective cvar:0.2 --out x.html", NULL, false},
    {"data", "", "data csv:t.csv,label=y,holdout=0.2 --json", NULL, true},
    {"compare", "",
     "compare --data csv:t.csv,label=y --steps 2 --batch 16 --threads 1 --seeds 1 "
     "--out all --json",
     NULL, false},
    {"sweep", "",
     "sweep --data csv:t.csv,label=y,holdout=0.3 --optimizer sgd --steps 2 --batch 16 "
     "--threads 1 --grid eta=0.1,0.2 --out all",
     NULL, false},
    {"report", "train --data csv:t.csv,label=y --steps 3 --batch 16 --out run|cp t.csv page.html",
     "report run --out page.html", NULL, false},
    {"into", TRAINED, "report run --out page.html --into doc.md#t", NULL, false},
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* What the processes share. */
static struct board {
    struct tally {
        atomic_long calls, wanted, next,
            tried; /* how many there are, of them to try, taken, done */
    } tallies[CASES][FAULT_KINDS];
    atomic_long crashes_inside;
    atomic_int failures;
    atomic_bool untraceable;
} * board;

static char top[64], dro[PATH_MAX], shim[PATH_MAX];
static long limit;
static double deadline; /* of the case, 0: none */
static bool inside;     /* the last run crashed in oneDNN */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *place(const char *name)
{
    static char paths[8][PATH];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, PATH, "%s/%s", top, name);
    return path;
}

static void fail(const char *what, const struct kase *c, fault_kind kind, long at)
{
    char line[LINE] = "";
    FILE *err = fopen(place("err"), "r");
    if (err && !fgets(line, sizeof line, err))
        line[0] = '\0';
    if (err)
        fclose(err);
    atomic_fetch_add(&board->failures, 1);
    printf("FAILED: %s, %s %ld: %s; it said: %s%s", c->name, fault_names[kind], at, what, line,
           strchr(line, '\n') ? "" : "\n");
    fflush(stdout);
}

/* The words of a line into `words`; text is cut. */
static void split(char *text, const char **words)
{
    int count = 0;
    words[count++] = dro;
    for (char *rest = text, *word; count < WORDS - 1 && (word = strtok_r(rest, " ", &rest));)
        words[count++] = word;
    words[count] = NULL;
}

static int run(const char *line, const char *more, const char *folder, fault_kind kind, long at,
               long *calls)
{
    char text[LINE];
    const char *words[WORDS];
    snprintf(text, sizeof text, "%s %s", line, more ? more : "");
    split(text, words);
    fault_run one = {.words = words, .folder = folder, .shim = shim, .kind = kind, .at = at};
    if (!fault_try(&one))
        atomic_store(&board->untraceable, true);
    if (calls)
        *calls = one.calls;
    inside = one.inside || (WIFEXITED(one.status) && WEXITSTATUS(one.status) == INSIDE);
    return one.status;
}

static void must(int status, const char *what)
{
    if (status == 0)
        return;
    printf("FAILED: %s: status %d without a fault\n", what, status);
    exit(2);
}

static void write_data(void)
{
    FILE *table = fopen(place("base/t.csv"), "w"), *rows = fopen(place("base/s.svm"), "w"),
         *many = fopen(place("base/m.svm"), "w");
    unsigned state = 7;
    if (!table || !rows || !many)
        exit(2);
    fputs("a,b,town,y\n", table);
    for (int i = 0; i < 96; i++) {
        state = state * 1103515245u + 12345u;
        double a = (double)(state >> 8) / (1 << 24), b = (i * 37 % 96) / 96.0;
        fprintf(table, "%.4f,%.4f,%s,%s\n", a, b, i % 3 ? "Oslo" : "Rome",
                a + 0.3 * b > 0.6 ? "yes" : "no");
        fprintf(rows, "%s 1:%.4f 2:%.4f 3:1\n", a + 0.3 * b > 0.6 ? "+1" : "-1", a, b);
        fprintf(many, "%d 1:%.4f 2:%.4f 3:1\n", 1 + (a > 0.3) + (a > 0.6), a, b);
    }
    fclose(table);
    fclose(rows);
    fclose(many);
    FILE *prior = fopen(place("base/prior.csv"), "w"), *document = fopen(place("base/doc.md"), "w");
    if (!prior || !document)
        exit(2);
    fputs("yes,0.3\nno,0.7\n", prior);
    fputs("before\n<!-- t -->\n<!-- end -->\nafter\n", document);
    fclose(prior);
    fclose(document);
}

/* base: before the command; right: after it. */
static void prepare(const struct kase *c)
{
    char text[LINE], command[PATH_MAX + 2 * LINE];
    folder_remove(place("base"));
    folder_remove(place("right"));
    folder_copy("/nowhere", place("base"));
    write_data();
    snprintf(text, sizeof text, "%s", c->before);
    for (char *rest = text, *line; (line = strtok_r(rest, "|", &rest));) {
        bool ours = strncmp(line, "train", 5) == 0;
        snprintf(command, sizeof command, "cd '%s' && '%s' %s >/dev/null", place("base"),
                 ours ? dro : "env", line);
        must(system(command), line);
    }
    folder_copy(place("base"), place("right"));
    must(run(c->command, NULL, place("right"), FAULT_MALLOC, 0, NULL), c->command);
    rename(place("out"), place("right.out"));
}

/* A line on stderr begins with `who` and contains `text`. */
static bool said_by(const char *who, const char *text)
{
    char line[LINE];
    bool found = false;
    FILE *err = fopen(place("err"), "r");
    while (err && fgets(line, sizeof line, err))
        found = found || (strncmp(line, who, strlen(who)) == 0 && strstr(line, text));
    if (err)
        fclose(err);
    return found;
}

static bool said(const char *text)
{
    return said_by("dro: ", text);
}

/* A batch that is evaluated in pieces gives the same numbers up to rounding. */
static bool files_right(bool pieces, bool crashed, char *what, int size)
{
    return pieces ? folder_complete(place("now"), place("right"), what, size)
                  : folder_same(place("now"), place("right"), crashed, what, size);
}

static void attempt(const struct kase *c, fault_kind kind, long at)
{
    char what[300], text[400];
    folder_remove(place("now"));
    folder_copy(place("base"), place("now"));
    int status = run(c->command, NULL, place("now"), kind, at, NULL);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    bool pieces = said("it is evaluated in pieces");
    bool crashed = inside || said_by("libgomp: ", "Out of memory"); /* which then exits */
    if (crashed && (kind == FAULT_ONEDNN || kind == FAULT_MMAP)) {
        atomic_fetch_add(&board->crashes_inside, 1);
    } else if (status == -1) {
        fail("it hangs", c, kind, at);
        return;
    } else if (WIFSIGNALED(status)) {
        snprintf(text, sizeof text, "signal %d", WTERMSIG(status));
        fail(text, c, kind, at);
        return;
    } else if (code > 2) {
        snprintf(text, sizeof text, "status %d", code);
        fail(text, c, kind, at);
        return;
    } else if (code == 0) {
        if (!files_right(pieces, crashed, what, sizeof what)) {
            snprintf(text, sizeof text, "status 0, and %s is wrong", what);
            fail(text, c, kind, at);
        } else if (c->output && !file_same(place("out"), place("right.out"), true)) {
            fail("status 0, and another output", c, kind, at);
        }
        return;
    } else if (!said("")) {
        fail("no line says why", c, kind, at);
    }
    if (!pieces && !folder_fine(place("now"), place("base"), place("right"), what, sizeof what)) {
        snprintf(text, sizeof text, "status %d, and %s is neither the old one nor the right one",
                 code, what);
        fail(text, c, kind, at);
    }
    status = run(c->command, c->again, place("now"), FAULT_MALLOC, -1, NULL);
    if (status != 0) {
        fail("the same command again fails", c, kind, at);
    } else if (!files_right(pieces, crashed, what, sizeof what)) {
        snprintf(text, sizeof text, "repaired, %s is wrong", what);
        fail(text, c, kind, at);
    }
}

/* The i-th of n numbers, in an order in which those of any beginning are spread evenly. */
static long spread(long i, long n)
{
    long step = (long)(0.618 * (double)n) + 1;
    for (long a = n, b = step; b > 1;) {
        long rest = a % b;
        a = b, b = rest;
        if (b == 0) /* a common divisor: the next one */
            a = n, b = ++step;
    }
    return (long)(((long long)i * step) % n);
}

static void campaign(const struct kase *c)
{
    prepare(c);
    for (int kind = FAULT_KINDS; kind-- > 0;) { /* allocations last: they are many */
        struct tally *tally = &board->tallies[c - cases][kind];
        long calls = 0, most = kind == FAULT_ONEDNN && (limit == 0 || limit > 100) ? 100 : limit;
        if (kind > FAULT_ONEDNN && atomic_load(&board->untraceable))
            continue;
        folder_remove(place("now"));
        folder_copy(place("base"), place("now"));
        run(c->command, NULL, place("now"), (fault_kind)kind, 0, &calls);
        most = most == 0 || most > calls ? calls : most;
        atomic_store(&tally->calls, calls);
        atomic_store(&tally->wanted, most);
        for (long i; (deadline == 0 || now() < deadline) &&
                     (i = atomic_fetch_add(&tally->next, 1)) < most;) {
            long k = spread(i, most);
            attempt(c, (fault_kind)kind, 1 + (long)((double)k * (double)calls / (double)most));
            atomic_fetch_add(&tally->tried, 1);
        }
    }
    if (atomic_load(&board->tallies[c - cases][FAULT_FSYNC].calls) <
        atomic_load(&board->tallies[c - cases][FAULT_RENAME].calls))
        fail("a file is renamed without fsync", c, FAULT_RENAME, 0);
}

static bool is_wanted(const struct kase *c, int count, char **names)
{
    bool wanted = count == 0;
    for (int k = 0; k < count; k++)
        wanted = wanted || strcmp(names[k], c->name) == 0;
    return wanted;
}

/* One of the processes: all cases, each as long as its share of the time lasts. */
static int work(double seconds, int count, char **names)
{
    double end = now() + seconds;
    int left = 0;
    snprintf(top, sizeof top, "%s/dro-faults-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(top))
        return 2;
    for (int k = 0; k < CASES; k++)
        left += is_wanted(&cases[k], count, names);
    for (int k = 0; k < CASES; k++) {
        if (!is_wanted(&cases[k], count, names))
            continue;
        deadline = seconds > 0 ? now() + (end - now()) / left : 0;
        left--;
        campaign(&cases[k]);
    }
    folder_remove(top);
    return 0;
}

/* One line per case, and one in all. */
static long print_tallies(void)
{
    long tried = 0, wanted = 0;
    for (int k = 0; k < CASES; k++) {
        bool any = false;
        for (int kind = 0; kind < FAULT_KINDS; kind++) {
            struct tally *tally = &board->tallies[k][kind];
            if (tally->calls == 0)
                continue;
            printf(any ? "" : "faults %s:", cases[k].name);
            printf(" %s %ld/%ld", fault_names[kind], tally->tried, tally->calls);
            any = true;
            tried += tally->tried;
            wanted += tally->wanted;
        }
        printf(any ? "\n" : "");
    }
    printf("faults: %ld calls failed, %ld crashes inside of oneDNN, %d failures\n", tried,
           board->crashes_inside, board->failures);
    return wanted - tried;
}

int main(int argc, char **argv)
{
    int jobs = 1, option, status;
    double seconds = 0;
    while ((option = getopt(argc, argv, "+j:t:")) != -1) {
        if (option == 'j')
            jobs = atoi(optarg);
        if (option == 't')
            seconds = atof(optarg);
        if (option == '?')
            optind = argc;
    }
    argv += optind, argc -= optind;
    if (argc < 3 || jobs < 1 || !realpath(argv[0], dro) || !realpath(argv[1], shim)) {
        fputs("usage: faults [-j JOBS] [-t SECONDS] DRO SHIM LIMIT [CASE...]\n", stderr);
        return 2;
    }
    limit = atol(argv[2]);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 2;
    setenv("DRO_BUSY_DELAY", "1000", 1);
    for (int k = 0; k < jobs; k++)
        if (fork() == 0)
            _exit(work(seconds, argc - 3, argv + 3));
    bool well = true;
    while (wait(&status) > 0)
        well = well && status == 0;
    long left = print_tallies();
    if (left > 0)
        printf("faults: %ld calls were not tried in %g s\n", left, seconds);
    if (board->untraceable)
        puts("faults: system calls cannot be traced here, so only allocations failed");
    if (!well || board->failures > 0)
        return well ? 1 : 2;
    return board->untraceable ? 77 : 0;
}
