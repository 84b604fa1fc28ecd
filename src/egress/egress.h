// The `egress` role: everything that sandboxes send to the outside goes through it (docs/egress.md).
//
// A parent, which holds the store's key and takes no byte from a guest, serves <run>/egress/egress.sock (HTTP) and
// <run>/egress/fds.sock (descriptors from node), and starts one worker process a tenant, which holds that tenant's secrets and
// nobody else's. All of them unprivileged.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "base/result.h"

namespace space::egress {

struct EgressConfig {
  std::filesystem::path data_dir = "/var/lib/space";  // egress/ stands below it
  std::filesystem::path run_dir = "/run/space";
  uid_t uid = 0;                            // as in NodeConfig: 0 keeps the present account
  std::vector<uid_t> peer_uids;             // api and node; root always
  uid_t node_uid = 0;                       // beside root, the only one that hands over descriptors
  std::vector<std::string> resolvers;       // "10.0.0.1:53"; empty: those of /etc/resolv.conf
  std::vector<std::string> allowed_ranges;  // CIDR: special ranges that may be dialled
  std::filesystem::path ca_file;            // trusted for upstreams beside the system's authorities; "": none
  std::string key_source;                   // "": <data_dir>/egress/store.key, made when missing; else FILE, env:NAME, credential:NAME
  log::Level log_level = log::Level::info;
  // Starts a worker with `channel` as its descriptor 3. Empty: this program again, as `egress-worker`.
  std::function<Result<pid_t>(Fd channel)> spawn_worker;
  // Called once, with the store's key read and before there are threads: what this process can reach shrinks. Empty: it does not.
  std::function<Result<>()> enclose;
};

// Runs until SIGTERM or SIGINT. The exit status: 0, or 1 after an error it has logged. Blocks.
int run(const EgressConfig& config);

// A worker: everything that it needs comes over `channel`, a SEQPACKET socket to the parent. It ends with the parent. Blocks.
int run_worker(Fd channel, std::string_view log_level);

}  // namespace space::egress
