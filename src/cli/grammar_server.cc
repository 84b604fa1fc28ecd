#include <CLI/CLI.hpp>
#include <memory>

#include "cli/grammar.h"
#include "cli/server_settings.h"
#include "cli/supervisor.h"

namespace space::cli {
namespace {

void add_settings(CLI::App& app, ServerSettings& s) {
  const CLI::Validator quota(
      [](std::string& text) {
        const auto parsed = parse_quota(text);
        return parsed ? std::string() : parsed.error().message;
      },
      "TENANT=MIB");
  app.add_option("--data-dir", s.data_dir, "Templates, disks and the database")->capture_default_str();
  app.add_option("--run-dir", s.run_dir, "Sockets of this server; emptied by a reboot")->capture_default_str();
  app.add_option("--templates-dir", s.templates_dir, "Templates, when they are not below the data folder");
  app.add_option("--bases-dir", s.bases_dir, "Saved template bases, when they are not below the data folder");
  app.add_option("--trust", s.trust_file,
                 "Policy (TOML): which signers and stores of templates are trusted (docs/supply.md); any when not given");
  app.add_option("--listen", s.listen, "Address and port of the API; port 0 picks one")->capture_default_str();
  app.add_option("--tls-cert", s.tls_certificate, "Certificate chain (PEM); needed for any address but loopback");
  app.add_option("--tls-key", s.tls_key, "Its private key (PEM)");
  app.add_option("--domain", s.domain, "Ports of sandboxes are reached as PORT-ID.DOMAIN");
  app.add_option("--domain-listen", s.domain_listen, "Address and port, always TLS, for the names of --domain")->capture_default_str();
  app.add_flag("--e2b-allow-unsecured", s.e2b_allow_unsecured, "Let E2B's clients make sandboxes without access tokens");
  app.add_option("--driver", s.driver, "What runs the VMs; sim runs none and is for load tests of the server alone")
      ->check(CLI::IsMember({"qemu", "sim"}))
      ->capture_default_str();
  app.add_option("--vmm-binary", s.vmm_binary, "The VMM that new machines run on; states that an earlier one wrote go on loading with that")
      ->capture_default_str();
  app.add_option("--pool-ready", s.pool_ready, "Sandboxes kept loaded, for creates that take no time")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  app.add_option("--pool-ready-most", s.pool_ready_most, "As many as that while creates come quickly (0: always --pool-ready)")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  app.add_option("--pool-spawned", s.pool_spawned, "VMM processes kept waiting for a load")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  app.add_option("--storage-quota-mib", s.storage_quota_mib,
                 "What the checkpoints and snapshots of a tenant may take together; 0: no limit")
      ->check(CLI::Range(std::uint64_t{0}, kMostMib))
      ->capture_default_str();
  app.add_option("--storage-quota-for", s.storage_quotas, "That limit for one tenant, as TENANT=MIB; may be given several times")
      ->check(quota);
  app.add_option("--store-low-water-mib", s.store_low_water_mib, "Free space of the disk below which no checkpoint is taken")
      ->check(CLI::Range(std::uint64_t{0}, kMostMib))
      ->capture_default_str();
  app.add_option("--keep-checkpoints", s.keep_checkpoints, "How many checkpoints without a name are kept of each sandbox; 0: all")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--keep-checkpoints-days", s.keep_checkpoints_days, "Or as long as they are younger than so many days; 0: however old")
      ->check(CLI::Range(0, 36'500))
      ->capture_default_str();
  app.add_flag("--no-limits", s.no_limits, "Serve although this host cannot limit memory, processes and CPU of a VM");
  app.add_flag("--tenants-on-tcg", s.tenants_on_tcg,
               "Let several tenants share this host although it has no hardware virtualisation (docs/security.md)");
  app.add_flag("--bench-without-filters", s.without_filters, "No filters of system calls and no Landlock: only to measure what they cost")
      ->group("");  // in no help: nobody serves with it
  app.add_option("--uid-base", s.uid_base, "First of the numeric users that the roles and VMs run as")
      ->check(CLI::Range(1000, 2'000'000'000))
      ->capture_default_str();
  app.add_option("--egress-resolver", s.egress_resolvers,
                 "DNS server of the egress gateway, as address:port; the host's own when not given");
  app.add_option("--egress-allow-range", s.egress_allowed_ranges,
                 "A private or special range (CIDR) that sandboxes may reach where their policy allows it");
  app.add_option("--egress-ca", s.egress_ca, "Authorities (PEM) trusted for upstreams beside the system's");
  app.add_option("--egress-key", s.egress_key,
                 "Key of the credential store: a file, env:NAME or credential:NAME; a file below the data folder when not given");
  const std::map<std::string, log::Level> levels = {
      {"debug", log::Level::debug}, {"info", log::Level::info}, {"warn", log::Level::warn}, {"error", log::Level::error}};
  app.add_option("--log-level", s.log_level, "debug, info, warn or error")->transform(CLI::CheckedTransformer(levels));
}

}  // namespace

void add_server_commands(CLI::App& app, CommandLine& line, const RunRole& run_role) {
  auto settings = std::make_shared<ServerSettings>();
  CLI::App* serve = app.add_subcommand("serve", "Run a server on this machine")->group("Server");
  add_settings(*serve, *settings);
  serve->callback([settings, &line] {
    line.chosen = [settings] {
      log::configure("serve", settings->log_level);
      return Supervisor(*settings).run();
    };
  });
  for (const Role role : {Role::warden, Role::egress, Role::node, Role::api}) {
    // `space egress` is a family of client commands as well; alone, and with a server's folders, it is the role.
    const bool shared = role == Role::egress;
    CLI::App* one = shared ? app.get_subcommand("egress")
                           : app.add_subcommand(std::string(to_string(role)), "A role of the server; started by serve")->group("");
    add_settings(*one, *settings);
    if (shared)
      for (CLI::Option* option : one->get_options()) option->group("");
    one->callback([one, shared, settings, role, run_role, &line] {
      if (shared && !one->get_subcommands().empty()) return;
      if (shared && one->count("--run-dir") == 0) throw CLI::CallForHelp();
      line.chosen = [settings, role, run_role] {
        log::configure(to_string(role), settings->log_level);
        return run_role(role, *settings);
      };
    });
  }
}

}  // namespace space::cli
