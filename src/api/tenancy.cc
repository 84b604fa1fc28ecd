#include "api/tenancy.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace space::api {
namespace {

constexpr int kTries = 120;
constexpr std::chrono::milliseconds kBetween{500};

Task<std::string> accelerator(Services& services) {
  CO_TRY(const json::object info, co_await services.node.info());
  const auto found = info.find("accelerator");
  co_return found != info.end() && found->value().is_string() ? std::string(found->value().as_string()) : std::string("unknown");
}

Result<> judge(const std::string& tenant, const std::string& accelerator) {
  if (accelerator == "kvm") return {};
  return fail(
      ErrorKind::conflict, "second_tenant_on_tcg",
      fmt::format(
          "the tenant `{}` would share this host, whose accelerator is {}: there the jail around a VM is the only boundary between tenants",
          tenant, accelerator),
      "serve it from a host with KVM, or start the server with --tenants-on-tcg when the tenants trust each other");
}

}  // namespace

Task<> admit_tenant(Services& services, std::string tenant) {
  if (services.tenants_on_tcg || tenant == control::kDefaultTenant) co_return Result<>();
  CO_TRY(const std::string found, co_await accelerator(services));
  co_return judge(tenant, found);
}

Task<> admit_present_tenants(Services& services) {
  if (services.tenants_on_tcg) co_return Result<>();
  CO_TRY(const auto tenants, co_await services.store.tenants());
  const auto other = std::ranges::find_if(tenants, [](const std::string& tenant) { return tenant != control::kDefaultTenant; });
  if (other == tenants.end()) co_return Result<>();
  for (int i = 1;; ++i) {
    auto found = co_await accelerator(services);
    if (found) co_return judge(*other, *found);
    if (i == kTries) co_return fail(control::node_unavailable(found.error().message));
    co_await sleep_for(kBetween);
  }
}

}  // namespace space::api
