/* dro doctor: what this machine and this build have, and how to get what is missing. */
#include "cli.h"

#include <dro/about.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/statvfs.h>
#include <unistd.h>

typedef struct checkup {
    json_t *found; /* with --json: name to what was found; else NULL */
    cli_table *table;
    int faults;
} checkup;

/* One line: fine, or with a remedy. */
static void report(checkup *c, const char *what, const char *value, const char *cure)
{
    if (c->found) {
        json_t *row = json_pack("{s:s, s:o, s:b}", "what", what, "found", cli_text_json(value),
                                "fine", !cure);
        if (cure)
            json_object_set_new(row, "cure", json_string(cure));
        json_array_append_new(c->found, row);
    } else {
        cli_table_cell(c->table, "%s", what);
        cli_table_cell(c->table, "%s%s%s", value, cure ? ": " : "", cure ? cure : "");
    }
    c->faults += cure != NULL;
}

/* ---- the machine ---- */

/* The first line of a file without its end, or "". */
static void first_line(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "r");
    *text = '\0';
    if (file && !fgets(text, (int)size, file))
        *text = '\0';
    if (file)
        fclose(file);
    text[strcspn(text, "\n")] = '\0';
}

static void report_cores(checkup *c)
{
    char text[200];
    dro_context *ctx = NULL;
    int threads = dro_context_create(NULL, 0, &ctx) == DRO_OK ? dro_context_threads(ctx) : 1;
    dro_context_destroy(ctx);
    snprintf(text, sizeof text, "%s; %d for this process", cli_cpu(), threads);
    report(c, "processor", text, NULL);
}

static void report_instructions(checkup *c)
{
    char text[300], cure[120];
    const char *wrong = NULL, *used = dro_cpu_instructions(&wrong), *limit = getenv("DRO_CPU");
    /* The best that there is, or more than the processor has, is no limit. */
    bool best = strncmp(dro_cpu_choices(), used, strlen(used)) == 0;
    bool limited = !wrong && !best && limit && strcasecmp(limit, used) == 0;
    snprintf(text, sizeof text, "%s%s%s", used, limited ? ", limited by DRO_CPU=" : "",
             limited ? limit : "");
    if (wrong)
        snprintf(text, sizeof text, "%s; DRO_CPU=%.60s is no instruction set", used, wrong);
    snprintf(cure, sizeof cure, "expected %s; other commands refuse it", dro_cpu_choices());
    if (wrong)
        report(c, "instructions", text, cure);
    else
        report(c, "instructions", text,
               strcmp(used, "sse") == 0 && !limited ? "networks are slow without avx2" : NULL);
}

static double meminfo(const char *name)
{
    char line[200];
    double kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtod(line + strlen(name) + 1, NULL);
    if (file)
        fclose(file);
    return kib * 1024;
}

static void report_memory(checkup *c)
{
    char text[120];
    double all = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double left = meminfo("MemAvailable");
    snprintf(text, sizeof text, "%.1f GiB, %.1f GiB available", all / 0x1p30, left / 0x1p30);
    report(c, "memory", text,
           left > 0 && left < 0x1p29 ? "end other programs before training" : NULL);
}

/* "always [madvise] never" */
static void report_pages(checkup *c)
{
    char line[120];
    first_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line);
    char *open = strchr(line, '['), *close = open ? strchr(open, ']') : NULL;
    if (close)
        *close = '\0';
    bool never = open && strcmp(open + 1, "never") == 0;
    report(c, "huge pages", open ? open + 1 : "not known",
           never ? "large weights run faster with `echo madvise | sudo tee "
                   "/sys/kernel/mm/transparent_hugepage/enabled`"
                 : NULL);
}

static bool has_backend(const char *name)
{
    const char *other;
    for (int i = 0; (other = dro_backend_name(i)); i++)
        if (strcmp(other, name) == 0)
            return true;
    return false;
}

static void report_gpu(checkup *c)
{
    char line[200];
    first_line("/proc/driver/nvidia/version", line, sizeof line);
    bool seen = *line != '\0' || access("/dev/nvidia0", F_OK) == 0;
    if (!seen)
        report(c, "GPU", "none seen", NULL);
    else
        report(c, "GPU", *line ? line : "/dev/nvidia0",
               has_backend("cuda") ? NULL
                                   : "this build does not use it: `make cuda` builds the cuda "
                                     "backend, `make install PRESET=cuda` installs it");
}

static void report_folder(checkup *c)
{
    struct statvfs disk;
    char text[200] = "can be written to";
    bool writable = access(".", W_OK | X_OK) == 0;
    int why = errno;
    if (writable && statvfs(".", &disk) == 0)
        snprintf(text, sizeof text, "can be written to, %.1f GiB free",
                 (double)disk.f_bavail * (double)disk.f_frsize / 0x1p30);
    else if (!writable)
        snprintf(text, sizeof text, "cannot be written to (%s)", strerror(why));
    report(c, "this folder", text, writable ? NULL : "choose another one with --out");
}

/* ---- the build ---- */

static void report_libraries(checkup *c)
{
    dro_library l;
    for (int i = 0; dro_library_get(i, &l) == DRO_OK; i++) {
        char text[200], cure[200];
        snprintf(text, sizeof text, "%s (%s)", l.version ? l.version : "not in this build",
                 l.purpose);
        snprintf(cure, sizeof cure, "install %s and build again", l.package);
        report(c, l.name, text, l.version ? NULL : cure);
    }
}

static void report_backends(checkup *c)
{
    const char *name;
    for (int i = 0; (name = dro_backend_name(i)); i++) {
        char what[80], text[800];
        const char *why = dro_backend_missing(name);
        const char *device = why ? NULL : dro_backend_device(name);
        snprintf(what, sizeof what, "backend %s", name);
        snprintf(text, sizeof text, "%s%s%s%s (%s)", why ? "cannot be used here: " : "works",
                 why ? why : "", device ? " on " : "", device ? device : "",
                 dro_backend_summary(i));
        report(c, what, text,
               !why                        ? NULL
               : strcmp(name, "cuda") == 0 ? "`nvidia-smi` shows the GPU and its driver; the other "
                                             "backends do without"
                                           : "build again on this machine");
    }
    if (!has_backend("cpu"))
        report(c, "backend cpu", "not in this build", "build with -DDRO_CPU=ON");
}

static int run(const cli_args *args)
{
    static const char *const headers[] = {"what", "found"};
    char version[40];
    checkup c = {.found = cli_json(args) ? json_array() : NULL};
    if (!c.found)
        c.table = cli_table_create(2, headers);
    snprintf(version, sizeof version, "%d.%d.%d", DRO_VERSION_MAJOR, DRO_VERSION_MINOR,
             DRO_VERSION_PATCH);
    report(&c, "dro", version, NULL);
    report_cores(&c);
    report_instructions(&c);
    report_memory(&c);
    report_pages(&c);
    report_gpu(&c);
    report_folder(&c);
    report_backends(&c);
    report_libraries(&c);
    if (c.found)
        return cli_emit(json_pack("{s:i, s:o}", "faults", c.faults, "checks", c.found));
    cli_table_print(c.table);
    printf("\n%s\n", c.faults == 0   ? "Nothing to mend."
                     : c.faults == 1 ? "One thing can be improved: see its line."
                                     : "Some things can be improved: see their lines.");
    return 0;
}

const cli_command cmd_doctor = {
    .name = "doctor",
    .usage = "[--json]",
    .summary = "check the machine and this build, and say how to get what is missing",
    .details =
        "Checks the processor, memory, GPU, this folder, the backends and the libraries. For each\n"
        "thing that is missing or slow it names the remedy.",
    .run = run,
};
