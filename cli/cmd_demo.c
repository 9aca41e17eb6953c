#include "cli.h"
static int run(const cli_args *args){(void)args;return 0;}
const cli_command cmd_demo={.name="demo",.usage="",.summary="x",.run=run};
