/* The program: finds the command and runs it. Sees cli.h only. */
#include "cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#define COMMAND(name) extern const cli_command cmd_##name;
#include "commands.def"
#undef COMMAND

const cli_command *const cli_commands[] = {
#define COMMAND(name) &cmd_##name,
#include "commands.def"
#undef COMMAND
    NULL,
};

static void help(FILE *to)
{
    fputs("dro: distributionally robust training, for rare classes and difficult examples\n\n"
          "usage: dro COMMAND [OPTIONS]\n\ncommands:\n",
          to);
    cli_help_list(to, cli_commands, 0);
    fputs("\nbenchmarks:\n", to);
    cli_help_list(to, cli_benches, 0);
    fputs("\n`dro COMMAND --help` describes one command, `dro --version` prints the version.\n"
          "Every command takes --json, --backend and --threads. Exit status: 0 success, 2 wrong\n"
          "usage, 3 a sweep in which every setting diverged, 1 any other failure.\n",
          to);
}

static int version(void)
{
    printf("dro %d.%d.%d\n", DRO_VERSION_MAJOR, DRO_VERSION_MINOR, DRO_VERSION_PATCH);
    return 0;
}

static const cli_command *find(const cli_command *const *list, const char *name)
{
    for (; *list; list++)
        if (strcmp((*list)->name, name) == 0)
            return *list;
    return NULL;
}

static int unknown(const char *word)
{
    const char *names[CLI_NAMES];
    int count = 0;
    for (int i = 0; cli_commands[i]; i++)
        if (!cli_commands[i]->hidden)
            names[count++] = cli_commands[i]->name;
    const char *nearest = dro_nearest(word, names, count);
    if (nearest)
        return cli_usage("no command '%s': did you mean 'dro %s'?", word, nearest);
    return cli_usage("no command '%s': 'dro --help' lists them", word);
}

/* help COMMAND, help bench NAME: as COMMAND --help. */
static int help_on(int argc, char **argv)
{
    char name[64];
    snprintf(name, sizeof name, "%.30s %.30s", argv[2], argc > 3 ? argv[3] : "");
    const cli_command *command = argc > 3 ? find(cli_benches, name) : NULL;
    if (!command)
        command = find(cli_commands, argv[2]);
    if (!command)
        return unknown(argv[2]);
    cli_help(stdout, command);
    return 0;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return 2;
    }
    const char *word = argv[1];
    if (strcmp(word, "help") == 0 && argc > 2)
        return help_on(argc, argv);
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        help(stdout);
        return 0;
    }
    if (strcmp(word, "--version") == 0)
        return version();
    const cli_command *command = NULL;
    int used = 2;
    if (strcmp(word, "bench") == 0 && argc > 2 && argv[2][0] != '-') {
        char name[64];
        snprintf(name, sizeof name, "bench %s", argv[2]);
        command = find(cli_benches, name);
        if (command)
            used = 3;
        else
            argc = 3; /* the name is wrong: what follows it does not matter */
    }
    if (!command)
        command = find(cli_commands, word);
    return command ? cli_run(command, argc - used, argv + used) : unknown(word);
}

/* A run that another `dro` started (runs.c) writes a checkpoint and stops when that one ends. */
static void follow_parent(void)
{
#ifdef __linux__
    const char *parent = getenv("DRO_PARENT");
    if (!parent)
        return;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (atoll(parent) != (long long)getppid())
        exit(1);
#endif
}

/* Without memory for its output or plans the program cannot continue. */
static void *memory_or_end(size_t size)
{
    void *memory = malloc(size);
    if (memory || size == 0)
        return memory;
    cli_fail("no memory");
    _exit(1);
}

/* A file that is opened while standard output or standard error is closed would take their place
 * and what is printed. This takes it instead; writing to it fails, as before. */
static void fill_closed(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd)
            _exit(1);
}

int main(int argc, char **argv)
{
    static char lines[4096];
    int rank;
    fill_closed();
    json_set_alloc_funcs(memory_or_end, free);
    setvbuf(stderr, lines, _IOLBF, sizeof lines); /* several processes may share it: whole lines */
    follow_parent();
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a failed write: status 1 */
    signal(SIGXFSZ, SIG_IGN); /* so is a file that grows beyond `ulimit -f` */
    dro_comm_started(&rank, NULL);
    cli_mute(rank > 0);
    return cli_finish(dispatch(argc, argv));
}
