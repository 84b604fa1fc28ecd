#include "cli/server_settings.h"

#include <charconv>
#include <fmt/format.h>

#include "snapshot/blob_store.h"

namespace space::cli {

std::string_view to_string(Role role) {
  switch (role) {
    case Role::warden:
      return "warden";
    case Role::egress:
      return "egress";
    case Role::node:
      return "node";
    case Role::api:
      return "api";
  }
  return "?";
}

std::string_view to_string(log::Level level) {
  switch (level) {
    case log::Level::debug:
      return "debug";
    case log::Level::info:
      return "info";
    case log::Level::warn:
      return "warn";
    case log::Level::error:
      return "error";
  }
  return "info";
}

std::vector<std::string> to_arguments(const ServerSettings& s) {
  std::vector<std::string> out;
  const std::pair<const char*, std::string> always[] = {
      {"--data-dir", s.data_dir.string()},
      {"--run-dir", s.run_dir.string()},
      {"--templates-dir", s.templates().string()},
      {"--bases-dir", s.bases().string()},
      {"--listen", s.listen},
      {"--driver", s.driver},
      {"--vmm-binary", s.vmm_binary.string()},
      {"--pool-ready", std::to_string(s.pool_ready)},
      {"--pool-ready-most", std::to_string(s.pool_ready_most)},
      {"--pool-spawned", std::to_string(s.pool_spawned)},
      {"--storage-quota-mib", std::to_string(s.storage_quota_mib)},
      {"--store-low-water-mib", std::to_string(s.store_low_water_mib)},
      {"--keep-checkpoints", std::to_string(s.keep_checkpoints)},
      {"--keep-checkpoints-days", std::to_string(s.keep_checkpoints_days)},
      {"--uid-base", std::to_string(s.uid_base)},
      {"--log-level", std::string(to_string(s.log_level))},
  };
  for (const auto& [name, value] : always) out.insert(out.end(), {name, value});
  if (!s.tls_certificate.empty()) out.insert(out.end(), {"--tls-cert", s.tls_certificate.string(), "--tls-key", s.tls_key.string()});
  for (const std::string& resolver : s.egress_resolvers) out.insert(out.end(), {"--egress-resolver", resolver});
  for (const std::string& range : s.egress_allowed_ranges) out.insert(out.end(), {"--egress-allow-range", range});
  if (!s.trust_file.empty()) out.insert(out.end(), {"--trust", s.trust_file.string()});
  for (const std::string& quota : s.storage_quotas) out.insert(out.end(), {"--storage-quota-for", quota});
  if (!s.egress_ca.empty()) out.insert(out.end(), {"--egress-ca", s.egress_ca.string()});
  if (!s.egress_key.empty()) out.insert(out.end(), {"--egress-key", s.egress_key});
  if (!s.domain.empty()) out.insert(out.end(), {"--domain", s.domain, "--domain-listen", s.domain_listen});
  if (s.e2b_allow_unsecured) out.emplace_back("--e2b-allow-unsecured");
  if (s.no_limits) out.emplace_back("--no-limits");
  if (s.tenants_on_tcg) out.emplace_back("--tenants-on-tcg");
  if (s.without_filters) out.emplace_back("--bench-without-filters");
  return out;
}

Result<ListenAddress> parse_listen(std::string_view text) {
  const auto colon = text.rfind(':');
  unsigned port = 65536;
  if (colon != std::string_view::npos) {
    const char* const end = text.data() + text.size();
    if (std::from_chars(text.data() + colon + 1, end, port).ptr != end) port = 65536;
  }
  std::string host(text.substr(0, colon == std::string_view::npos ? 0 : colon));
  if (host.size() > 2 && host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty() || port > 65535)
    return fail(ErrorKind::invalid_argument, "bad_listen", fmt::format("\"{}\" is not an address and a port", text),
                "write --listen 127.0.0.1:7070");
  return ListenAddress{std::move(host), static_cast<std::uint16_t>(port)};
}

Result<TenantQuota> parse_quota(std::string_view text) {
  const auto middle = text.find('=');
  TenantQuota quota{std::string(text.substr(0, middle)), 0};
  const char* const end = text.data() + text.size();
  const bool number =
      middle != std::string_view::npos && middle + 1 < text.size() && std::from_chars(text.data() + middle + 1, end, quota.mib).ptr == end;
  if (!number || quota.mib > kMostMib || !snapshot::is_tenant(quota.tenant))
    return fail(ErrorKind::invalid_argument, "bad_quota", fmt::format("\"{}\" is not a tenant and a number of MiB", text),
                "write --storage-quota-for acme=2048");
  return quota;
}

}  // namespace space::cli
