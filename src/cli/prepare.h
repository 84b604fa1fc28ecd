// What must hold on this machine before any role starts, said in sentences that name the remedy; and the folders of a server.
#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "cli/server_settings.h"

namespace space::cli {

// Root, /dev/net/tun, room on the disk, addresses and certificates that belong together. Changes nothing.
Result<> check_host(const ServerSettings& settings);

// Makes the data and run folders with the owners and modes that the roles expect. Idempotent; needs root.
Result<> make_folders(const ServerSettings& settings);

// Held as long as a server lives on this run folder. A second one gets conflict/already_running with the first one's process.
Result<Fd> lock_run_dir(const ServerSettings& settings);

}  // namespace space::cli
