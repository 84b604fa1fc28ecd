// The store of checkpoints worked on directly, by root and on the machine that has it: listing garbage and verifying beside a running
// server, copying out beside it too; collecting and restoring without one. Each blocks and gives the exit status.
#pragma once

#include <filesystem>
#include <string>

#include "cli/console.h"

namespace space::cli {

struct StoreOptions {
  std::filesystem::path data_dir = "/var/lib/space";
  std::filesystem::path folder;  // of a backup
  bool dry_run = false;
};

int collect_store(Console& console, const StoreOptions& options);
int verify_local_store(Console& console, const StoreOptions& options);  // 70 when there is a fault
int backup_store(Console& console, const StoreOptions& options);
int restore_store(Console& console, const StoreOptions& options);

}  // namespace space::cli
