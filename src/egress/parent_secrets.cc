#include <fmt/format.h>

#include "base/log.h"
#include "egress/authority.h"
#include "egress/explain.h"
#include "egress/parent.h"

namespace space::egress {
namespace {

constexpr std::size_t kMostCredentials = 1000;  // of a tenant

json::object credential_json(const std::string& name, const Vault::Credential& c) {
  return {{"name", name}, {"version", c.version}, {"updated_at", rfc3339(c.updated_ms)}};
}

tl::unexpected<Error> no_such_lineage() { return fail(ErrorKind::not_found, "lineage_not_found", "there is no CA of this lineage"); }

}  // namespace

Result<json::object> Parent::explain(const Settings& settings, const std::string& method, const std::string& url) const {
  std::vector<Cidr> ranges;
  for (const std::string& text : config_.allowed_ranges) {
    TRY(Cidr range, Cidr::parse(text));
    ranges.push_back(range);
  }
  std::set<Address> own;
  for (const std::string& text : own_addresses_)
    if (auto address = Address::parse(text)) own.insert(*address);
  return egress::explain(settings, method, url, ranges, own);
}

Task<json::object> Parent::put_credential(std::string tenant, std::string name, Secret value) {
  CO_TRY_VOID(check_secret_value(value.view()));
  if (!vault_.credentials(tenant).contains(name) && vault_.credentials(tenant).size() >= kMostCredentials)
    co_return fail(ErrorKind::resource_exhausted, "too_many_credentials",
                   fmt::format("a tenant has at most {} credentials", kMostCredentials), "delete some");
  // Numbers are given before the file is written, so that two at once do not share one.
  Vault::Credential made = vault_.make_credential(tenant, name, value.view(), system_clock().wall_ms());
  auto write = [&] { return vault_.write_credential(tenant, name, made); };
  CO_TRY_VOID(co_await disk_.run(std::ref(write)));
  vault_.keep(tenant, name, made);
  Message message;
  message.body = {{"type", "credential"}, {"name", name}};
  message.secret = std::move(value);
  CO_TRY_VOID(co_await tell_worker(tenant, std::move(message)));
  log::info("egress.credential_set", {{"tenant", tenant}, {"name", name}, {"version", made.version}});
  co_return credential_json(name, made);
}

Task<json::object> Parent::put_sealed_credential(std::string tenant, std::string name, Secret box) {
  CO_TRY(Secret value, vault_.sealing_key().open(box.view(), tenant, name));
  co_return co_await put_credential(std::move(tenant), std::move(name), std::move(value));
}

json::array Parent::credentials(const std::string& tenant) const {
  json::array out;
  for (const auto& [name, credential] : vault_.credentials(tenant)) out.push_back(credential_json(name, credential));
  return out;
}

Task<> Parent::remove_credential(std::string tenant, std::string name) {
  auto erase = [&] { return vault_.erase_credential(tenant, name); };
  CO_TRY_VOID(co_await disk_.run(std::ref(erase)));
  vault_.drop(tenant, name);
  Message message;
  message.body = {{"type", "forget_credential"}, {"name", name}};
  co_return co_await tell_worker(tenant, std::move(message));
}

Task<> Parent::ensure_lineage(std::string tenant, std::string lineage) {
  while (making_.contains(lineage)) co_await changed_.wait();
  if (const auto* known = vault_.lineage(lineage)) {
    if (known->tenant == tenant) co_return Result<>();
    co_return no_such_lineage();
  }
  making_.insert(lineage);
  auto make = [&]() -> Result<Vault::Lineage> {
    TRY(MadeAuthority made, make_authority(lineage));
    Vault::Lineage record = vault_.make_lineage(tenant, lineage, std::move(made.certificate_pem), made.key_der.view());
    TRY_VOID(vault_.write_lineage(lineage, record));
    return record;
  };
  auto record = co_await disk_.run(std::ref(make));
  making_.erase(lineage);
  changed_.notify_all();
  if (!record) co_return fail(std::move(record).error());
  vault_.keep(lineage, std::move(*record));
  CO_TRY(Secret key, vault_.reveal_lineage(lineage));
  Message message;
  message.body = {{"type", "authority"}, {"lineage", lineage}, {"certificate", vault_.lineage(lineage)->certificate_pem}};
  message.secret = std::move(key);
  co_return co_await tell_worker(tenant, std::move(message));
}

Task<std::string> Parent::certificate(std::string tenant, std::string lineage) {
  CO_TRY_VOID(co_await ensure_lineage(tenant, lineage));
  co_return vault_.lineage(lineage)->certificate_pem;
}

json::array Parent::lineages() const {
  json::array out;
  for (const auto& [lineage, record] : vault_.lineages()) out.push_back(json::object{{"lineage", lineage}, {"tenant", record.tenant}});
  return out;
}

Task<> Parent::remove_lineage(std::string tenant, std::string lineage) {
  const auto* known = vault_.lineage(lineage);
  if (!known || known->tenant != tenant) co_return Result<>();
  const bool in_use = std::any_of(sandboxes_.begin(), sandboxes_.end(),
                                  [&](const auto& s) { return s.second->settings && s.second->settings->lineage == lineage; });
  if (in_use) co_return fail(ErrorKind::conflict, "lineage_in_use", "sandboxes of this lineage are still there", "remove them first");
  auto erase = [&] { return vault_.erase_lineage(lineage); };
  CO_TRY_VOID(co_await disk_.run(std::ref(erase)));
  vault_.drop_lineage(lineage);
  Message message;
  message.body = {{"type", "forget_authority"}, {"lineage", lineage}};
  co_return co_await tell_worker(tenant, std::move(message));
}

// All that a new worker may have: its own tenant's.
void Parent::give_secrets(const std::string& tenant, WorkerProcess& process) {
  for (const auto& [name, credential] : vault_.credentials(tenant)) {
    auto value = vault_.reveal(tenant, name);
    if (!value) {
      log::error("egress.bad_credential", {{"tenant", tenant}, {"name", name}, {"error", value.error()}});
      continue;
    }
    Message message;
    message.body = {{"type", "credential"}, {"name", name}};
    message.secret = std::move(*value);
    process.tell(std::move(message));
  }
  for (const std::string& lineage : vault_.lineages_of(tenant)) {
    auto key = vault_.reveal_lineage(lineage);
    if (!key) {
      log::error("egress.bad_lineage", {{"lineage", lineage}, {"error", key.error()}});
      continue;
    }
    Message message;
    message.body = {{"type", "authority"}, {"lineage", lineage}, {"certificate", vault_.lineage(lineage)->certificate_pem}};
    message.secret = std::move(*key);
    process.tell(std::move(message));
  }
}

}  // namespace space::egress
