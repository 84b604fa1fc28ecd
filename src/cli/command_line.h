// The grammar of the `space` command: options and subcommands become plain structs, and each struct its function.
#pragma once

namespace space::cli {

int run_program(int argc, char** argv);  // the exit status of the process

}  // namespace space::cli
