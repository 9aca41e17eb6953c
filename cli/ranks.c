/* The program on several ranks. */
#include "cli.h"

#include <string.h>

static bool has_joined;

/* The place of a command among all, from 1 on; benchmarks come last. */
static int place_of(const cli_command *command)
{
    int place = 1;
    for (int k = 0; cli_commands[k]; k++, place++)
        if (cli_commands[k] == command)
            return place;
    for (int k = 0; cli_benches[k]; k++, place++)
        if (cli_benches[k] == command)
            return place;
    return 0;
}

static const char *name_at(int place)
{
    int k = 1;
    for (int i = 0; cli_commands[i]; i++, k++)
        if (k == place)
            return cli_commands[i]->name;
    for (int i = 0; cli_benches[i]; i++, k++)
        if (k == place)
            return cli_benches[i]->name;
    return "?";
}

/* Two commands make different calls, and would wait for each other. */
static int compare_commands(const cli_command *command, dro_context *ctx, dro_comm *comm)
{
    int last = place_of(command), first = -last;
    if (dro_comm_barrier(comm, &last) != DRO_OK || dro_comm_barrier(comm, &first) != DRO_OK)
        return cli_fail("%s", dro_context_error(ctx));
    if (last == -first)
        return 0;
    return cli_fail("some ranks run `dro %s` and others `dro %s`: start all with the same command",
                    name_at(-first), name_at(last));
}

int cli_ranks_join(const cli_args *args, dro_context *ctx, dro_comm **comm)
{
    has_joined = true;
    if (dro_comm_open(ctx, comm) != DRO_OK)
        return cli_fail("%s", dro_context_error(ctx));
    return *comm ? compare_commands(cli_command_of(args), ctx, *comm) : 0;
}

void cli_ranks_leave(const cli_args *args)
{
    dro_context *ctx = NULL;
    dro_comm *comm = NULL;
    char why[400];
    if (has_joined || dro_comm_started(NULL, NULL) == 1 ||
        dro_context_create("ref", 1, &ctx) != DRO_OK)
        return;
    snprintf(why, sizeof why, "%s", cli_error());
    cli_mute(true); /* rank 0 has said why it fails itself */
    cli_ranks_join(args, ctx, &comm);
    dro_comm_fail(comm, why);
    dro_comm_close(comm);
    dro_context_destroy(ctx);
}
