// The `node` role: owns the sandboxes of one machine and serves them on <run>/node.sock. Unprivileged: everything that needs
// root it asks of the warden. One event loop on one thread; disk and warden calls go to a pool of threads.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"

namespace space::node {

struct NodeConfig {
  std::filesystem::path data_dir = "/var/lib/space";  // node/sandboxes/<id>/ stands below it
  std::filesystem::path run_dir = "/run/space";       // node.sock, warden.sock, node/<vm>.qmp
  std::filesystem::path templates_dir;                // "": <data_dir>/templates
  std::filesystem::path bases_dir;                    // "": <data_dir>/bases
  std::filesystem::path trust_file;                   // which templates may be loaded (docs/supply.md); "": any
  std::string driver = "qemu";                        // or "sim", which is no VM and says so in every answer

  // The account to run as. 0 keeps the present one. Started as root with another uid here, node prepares its folders and
  // then drops to it for good (uid = gid, no groups).
  uid_t uid = 0;
  uid_t api_uid = 0;  // beside root, the only peer that node.sock listens to

  // Pools, for each (template, size) in use; 0 turns one off.
  std::size_t pool_spawned = 1;                        // VMM processes waiting for a load
  std::size_t pool_ready = 2;                          // VMs loaded, answered once and paused
  std::size_t pool_ready_most = 24;                    // that many when creates come quickly
  std::vector<std::string> pool_templates = {"base"};  // filled from the start at their default size; others on first use
  std::size_t pool_kinds = 4;                          // (template, size) pairs with pools at a time; the least used goes

  // Checkpoints and snapshots (docs/snapshots.md, "Limits").
  std::uint64_t storage_quota_bytes = 0;                // of each tenant's blobs as stored; 0: none
  std::map<std::string, std::uint64_t> storage_quotas;  // of single tenants instead
  std::uint64_t store_low_water_bytes = 1ULL << 30;     // free bytes of the disk that they leave to what runs
  std::uint32_t keep_checkpoints = 0;                   // of each sandbox, those without a name; 0: all
  std::uint32_t keep_checkpoints_days = 0;              // or as long as they are younger; 0: however old

  std::size_t max_sandboxes = 1000;  // more: resource_exhausted/node_full
  log::Level log_level = log::Level::info;
  // Called once, as the account above and before there are threads: what this process can reach shrinks. Empty: it does not.
  std::function<Result<>()> enclose;
};

// Runs until SIGTERM or SIGINT: then it drains its pools and leaves the sandboxes running for the next node to adopt.
// Returns the exit status: 0, or 1 after an error it has logged. Blocks.
int run(const NodeConfig& config);

}  // namespace space::node
