// The program: the only source that knows the entries of the roles. Each takes the server's settings apart into its own
// configuration and runs until it is told to stop.
#include <unistd.h>

#include "api/api.h"
#include "cli/command_line.h"
#include "cli/confinement.h"
#include "cli/exit_status.h"
#include "egress/egress.h"
#include "node/node.h"
#include "warden/warden.h"

namespace {

using namespace space;
using cli::Role;
using cli::ServerSettings;

int run_warden(const ServerSettings& s) {
  warden::WardenConfig config;
  config.run_dir = s.run_dir.string();
  config.data_dir = s.data_dir.string();
  config.uid_base = s.uid_base;
  config.peer_uids = {s.node_uid()};
  config.allow_no_limits = s.no_limits;
  config.without_filter = s.without_filters;
  config.vmm_binary = s.vmm_binary.string();
  return warden::run(config);
}

int run_egress(const ServerSettings& s) {
  egress::EgressConfig config;
  config.data_dir = s.data_dir;
  config.run_dir = s.run_dir;
  config.uid = ::geteuid() == 0 ? s.egress_uid() : 0;
  config.peer_uids = {s.api_uid(), s.node_uid()};
  config.node_uid = s.node_uid();
  config.resolvers = s.egress_resolvers;
  config.allowed_ranges = s.egress_allowed_ranges;
  config.ca_file = s.egress_ca;
  config.key_source = s.egress_key;
  config.log_level = s.log_level;
  config.enclose = [&s] { return cli::enclose(Role::egress, s); };
  return egress::run(config);
}

int run_node(const ServerSettings& s) {
  node::NodeConfig config;
  config.data_dir = s.data_dir;
  config.run_dir = s.run_dir;
  config.templates_dir = s.templates();
  config.bases_dir = s.bases();
  config.trust_file = s.trust_file;
  config.driver = s.driver;
  config.uid = ::geteuid() == 0 ? s.node_uid() : 0;
  config.api_uid = s.api_uid();
  config.pool_spawned = s.pool_spawned;
  config.pool_ready = s.pool_ready;
  config.pool_ready_most = s.pool_ready_most;
  config.storage_quota_bytes = s.storage_quota_mib << 20;
  for (const std::string& text : s.storage_quotas)
    if (const auto quota = cli::parse_quota(text)) config.storage_quotas[quota->tenant] = quota->mib << 20;
  config.store_low_water_bytes = s.store_low_water_mib << 20;
  config.keep_checkpoints = s.keep_checkpoints;
  config.keep_checkpoints_days = s.keep_checkpoints_days;
  config.log_level = s.log_level;
  config.enclose = [&s] { return cli::enclose(Role::node, s); };
  return node::run(config);
}

int run_api(const ServerSettings& s) {
  const auto listen = cli::parse_listen(s.listen);
  if (!listen) return cli::kCannotServe;
  api::ApiConfig config;
  config.address = listen->address;
  config.port = listen->port;
  config.tls_certificate = s.tls_certificate;
  config.tls_key = s.tls_key;
  config.address_file = s.address_file();
  config.domain = s.domain;
  if (const auto domain_listen = cli::parse_listen(s.domain_listen)) {
    config.domain_address = domain_listen->address;
    config.domain_port = domain_listen->port;
  }
  config.domain_file = s.domain_file();
  config.e2b_allow_unsecured = s.e2b_allow_unsecured;
  config.data_dir = s.data_dir;
  config.first_key_file = s.first_key();
  config.node_socket = s.node_socket();
  config.uid = ::geteuid() == 0 ? s.api_uid() : 0;
  config.tenants_on_tcg = s.tenants_on_tcg;
  config.debug = s.log_level == log::Level::debug;
  config.enclose = [&s] { return cli::enclose(Role::api, s); };
  return api::run(config);
}

int run_role(Role role, const ServerSettings& settings) {
  if (const auto confined = cli::confine(role, settings); !confined) {
    log::error("role.not_confined", {{"error", confined.error()}});
    return cli::kCannotServe;
  }
  switch (role) {
    case Role::warden:
      return run_warden(settings);
    case Role::egress:
      return run_egress(settings);
    case Role::node:
      return run_node(settings);
    case Role::api:
      return run_api(settings);
  }
  return cli::kCannotServe;
}

}  // namespace

int main(int argc, char** argv) {
  // A worker of the gateway is started by the gateway alone, with an empty environment and a socket as descriptor 3.
  if (argc == 3 && std::string_view(argv[1]) == "egress-worker") return egress::run_worker(Fd(3), argv[2]);
  return cli::run_program(argc, argv, run_role);
}
