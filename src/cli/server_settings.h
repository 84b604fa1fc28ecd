// What `space serve` was told. The supervisor hands the same settings to every role as arguments of its subcommand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"

namespace space::cli {

struct ServerSettings {
  std::filesystem::path data_dir = "/var/lib/space";
  std::filesystem::path run_dir = "/run/space";
  std::filesystem::path templates_dir;  // "": <data dir>/templates
  std::filesystem::path bases_dir;      // "": <data dir>/bases
  std::filesystem::path trust_file;     // which templates may be loaded; "": any
  std::string listen = "127.0.0.1:7070";
  std::filesystem::path tls_certificate;
  std::filesystem::path tls_key;
  std::string domain;                            // names PORT-ID.<domain> lead into sandboxes
  std::string domain_listen = "127.0.0.1:7443";  // where they are served, over TLS
  bool e2b_allow_unsecured = false;
  std::string driver = "qemu";
  std::filesystem::path vmm_binary = "/usr/bin/qemu-system-x86_64";  // copied with its libraries; earlier ones stay for what they wrote
  std::uint32_t pool_ready = 2;                                      // sandboxes kept loaded and answered once, of the default template
  std::uint32_t pool_ready_most = 24;        // as many as that while creates come quickly; counts for each template and size
  std::uint32_t pool_spawned = 2;            // VMM processes kept waiting for a load
  std::uint64_t storage_quota_mib = 0;       // of each tenant's checkpoints; 0: none
  std::vector<std::string> storage_quotas;   // "TENANT=MIB": of that one instead; parse_quota
  std::uint64_t store_low_water_mib = 1024;  // free space that checkpoints leave
  std::uint32_t keep_checkpoints = 0, keep_checkpoints_days = 0;  // 0: all
  bool no_limits = false;                                         // serve although the host has no usable cgroups
  bool tenants_on_tcg = false;                                    // tenants share a host where the jail alone separates them
  bool without_filters = false;  // no system call filters of ours: to measure what they cost (bench/lib/hardening.py)
  log::Level log_level = log::Level::info;
  std::uint32_t uid_base = 7340032;
  // The egress gateway (docs/egress.md).
  std::vector<std::string> egress_resolvers;       // "10.0.0.1:53"; none: the host's resolv.conf
  std::vector<std::string> egress_allowed_ranges;  // CIDR: special ranges that sandboxes may reach all the same
  std::filesystem::path egress_ca;                 // trusted for upstreams beside the system's authorities
  std::string egress_key;                          // "": a file below the data folder

  std::filesystem::path templates() const { return templates_dir.empty() ? data_dir / "templates" : templates_dir; }
  std::filesystem::path bases() const { return bases_dir.empty() ? data_dir / "bases" : bases_dir; }
  std::filesystem::path warden_socket() const { return run_dir / "warden.sock"; }
  std::filesystem::path node_socket() const { return run_dir / "node.sock"; }
  std::filesystem::path egress_socket() const { return run_dir / "egress" / "egress.sock"; }
  std::filesystem::path egress_handover() const { return run_dir / "egress" / "fds.sock"; }
  std::filesystem::path first_key() const { return data_dir / "first.key"; }
  std::filesystem::path address_file() const { return run_dir / "api" / "address"; }  // written by api once it listens

  std::filesystem::path domain_file() const { return run_dir / "api" / "domain"; }

  // The numeric users of the roles; there are no accounts behind them.
  std::uint32_t api_uid() const { return uid_base + 1; }
  std::uint32_t node_uid() const { return uid_base + 2; }
  std::uint32_t egress_uid() const { return uid_base + 3; }
};

inline constexpr std::uint64_t kMostMib = std::uint64_t{1} << 40;  // of any of the store's limits

enum class Role { warden, egress, node, api };
std::string_view to_string(Role role);

// The settings as command line options, to be parsed again by a role.
std::vector<std::string> to_arguments(const ServerSettings& settings);
std::string_view to_string(log::Level level);

// "127.0.0.1:7070", "[::1]:7070": an IP literal and a port; port 0 picks a free one.
struct ListenAddress {
  std::string address;
  std::uint16_t port = 0;
};
Result<ListenAddress> parse_listen(std::string_view text);

// "acme=2048": a tenant and MiB, 0 for none.
struct TenantQuota {
  std::string tenant;
  std::uint64_t mib = 0;
};
Result<TenantQuota> parse_quota(std::string_view text);

}  // namespace space::cli
