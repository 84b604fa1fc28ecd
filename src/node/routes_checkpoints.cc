// Checkpoints of a tenant: what there is, what each costs, and removing one. The api role names the tenant (Space-Tenant).
#include <fmt/format.h>

#include <sys/stat.h>

#include <cstdlib>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/random.h"
#include "node/routes.h"

namespace space::node {
namespace {

Result<std::string> tenant_named(const http::Exchange& exchange) {
  std::string tenant(exchange.headers().get("Space-Tenant"));
  if (exchange.headers().count("Space-Tenant") != 1 || !snapshot::is_tenant(tenant))
    return fail(ErrorKind::invalid_argument, "tenant_missing", "the tenant must be named once", "send Space-Tenant");
  return tenant;
}

tl::unexpected<Error> no_such_checkpoint() {
  return fail(ErrorKind::not_found, "checkpoint_not_found", "there is no such checkpoint", "list what there is: GET /v1/checkpoints");
}

std::string_view kind_text(snapshot::CheckpointKind kind) {
  switch (kind) {
    case snapshot::CheckpointKind::checkpoint:
      return "checkpoint";
    case snapshot::CheckpointKind::suspend:
      return "suspend";
    case snapshot::CheckpointKind::file_snapshot:
      return "file_snapshot";
  }
  return "";
}

// How many manifests name each blob: what one alone names is its own, the rest is shared.
using Uses = std::map<std::string, std::size_t>;

using Listed = std::vector<std::shared_ptr<const Checkpoint>>;

Uses count_uses(const Listed& all) {
  Uses uses;
  for (const auto& one : all)
    for (const snapshot::BlobRef& blob : snapshot::blobs_of(one->manifest)) ++uses[blob.digest];  // each once
  return uses;
}

json::object checkpoint_json(const Checkpoint& one, const Uses& uses) {
  const snapshot::Manifest& m = one.manifest;
  std::uint64_t own = 0, shared = 0;
  for (const snapshot::BlobRef& blob : snapshot::blobs_of(m)) {
    const auto found = uses.find(blob.digest);
    (found != uses.end() && found->second > 1 ? shared : own) += blob.bytes;
  }
  json::object out{{"id", m.id},
                   {"kind", kind_text(m.kind)},
                   {"sandbox", m.sandbox},
                   {"lineage", m.lineage},
                   {"name", m.name},
                   {"automatic", m.automatic},
                   {"parent", nullptr},
                   {"template", one.record.template_reference},
                   {"template_digest", m.template_digest},
                   {"cpus", m.cpus},
                   {"memory_mib", m.memory_mib},
                   {"disk_mib", m.disk_mib},
                   {"own_bytes", own},
                   {"shared_bytes", shared},
                   {"added_bytes", m.own_bytes},
                   {"created_at", rfc3339(m.created_ms)}};
  if (!m.parent.empty()) out["parent"] = m.parent;
  return out;
}

Task<Listed> read_all(RouteParts& parts, std::string tenant) {
  auto read = [&parts, tenant] { return parts.vault.list(tenant); };
  co_return co_await parts.disk.run(read);
}

// What of a VMM's memory is its own, and what it shares with others that stand on the same base (proc_pid_status(5)).
std::pair<std::uint64_t, std::uint64_t> memory_of(pid_t pid) {
  std::pair<std::uint64_t, std::uint64_t> bytes{0, 0};
  const auto text = read_file(fmt::format("/proc/{}/status", pid), 64 << 10);
  if (!text) return bytes;
  const auto value = [&](std::string_view name) -> std::uint64_t {
    const auto at = text->find(name);
    return at == std::string::npos ? 0 : std::strtoull(text->c_str() + at + name.size(), nullptr, 10) * 1024;
  };
  return {value("RssAnon:"), value("RssShmem:") + value("RssFile:")};
}

std::uint64_t blocks_of(const std::filesystem::path& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 ? static_cast<std::uint64_t>(st.st_blocks) * 512 : 0;
}

json::object tree_json(const Checkpoint& one, const Uses& uses) {
  std::uint64_t own[2] = {0, 0}, shared[2] = {0, 0};  // disk, memory
  std::map<std::string, bool> disk;
  for (const auto& layer : one.manifest.disk) disk.emplace(layer.blob.digest, true);
  for (const snapshot::BlobRef& blob : snapshot::blobs_of(one.manifest)) {
    const auto found = uses.find(blob.digest);
    auto& sums = found != uses.end() && found->second > 1 ? shared : own;
    sums[disk.contains(blob.digest) ? 0 : 1] += blob.bytes;
  }
  json::object out{{"id", one.manifest.id},          {"kind", kind_text(one.manifest.kind)}, {"parent", nullptr},
                   {"name", one.manifest.name},      {"automatic", one.manifest.automatic},  {"disk_own_bytes", own[0]},
                   {"disk_shared_bytes", shared[0]}, {"memory_own_bytes", own[1]},           {"memory_shared_bytes", shared[1]}};
  // The first one hangs below the sandbox that it was taken of, the next below the one before.
  out["parent"] = one.manifest.parent.empty() ? one.manifest.sandbox : one.manifest.parent;
  return out;
}

json::object tree_json(const Sandbox& sandbox, const std::filesystem::path& folder) {
  const SandboxRecord& record = sandbox.record;
  std::uint64_t own = 0, shared = 0;
  for (const std::string& disk : record.disks) own += blocks_of(folder / disk);
  for (const snapshot::BlobRef& layer : record.layers) shared += layer.bytes;
  const auto [memory_own, memory_shared] =
      sandbox.machine ? memory_of(sandbox.machine.vm->pid()) : std::pair<std::uint64_t, std::uint64_t>{0, 0};
  json::object out{{"id", record.id},
                   {"kind", "sandbox"},
                   {"parent", nullptr},
                   {"state", to_string(record.state)},
                   {"disk_own_bytes", own},
                   {"disk_shared_bytes", shared},
                   {"memory_own_bytes", memory_own},
                   {"memory_shared_bytes", memory_shared}};
  if (!record.origin.empty()) out["parent"] = record.origin;
  return out;
}

Task<> tree(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const std::string tenant, tenant_named(exchange));
  CO_TRY(const auto all, co_await read_all(parts, tenant));
  const Uses uses = count_uses(all);
  json::array nodes;
  for (const auto& one : all)
    if (one->manifest.kind != snapshot::CheckpointKind::suspend) nodes.push_back(tree_json(*one, uses));
  for (const SandboxRecord& record : parts.sandboxes.list()) {
    const auto sandbox = parts.sandboxes.find(record.id);
    if (sandbox && record.tenant == tenant) nodes.push_back(tree_json(*sandbox, parts.sandboxes.folder(record.id)));
  }
  json::object body{{"nodes", std::move(nodes)}};
  co_return co_await reply_json(exchange, 200, std::move(body));
}

Task<> list_checkpoints(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const std::string tenant, tenant_named(exchange));
  CO_TRY(const auto all, co_await read_all(parts, tenant));
  const std::string sandbox = exchange.target().query_value("sandbox").value_or("");
  const Uses uses = count_uses(all);
  json::array out;
  for (const auto& one : all)
    if (one->manifest.kind != snapshot::CheckpointKind::suspend && (sandbox.empty() || one->manifest.sandbox == sandbox))
      out.push_back(checkpoint_json(*one, uses));
  json::object body{{"checkpoints", std::move(out)}};
  co_return co_await reply_json(exchange, 200, std::move(body));
}

Task<> get_checkpoint(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const std::string tenant, tenant_named(exchange));
  const std::string& id = exchange.param("checkpoint");
  CO_TRY(const auto all, co_await read_all(parts, tenant));
  for (const auto& one : all)
    if (one->manifest.id == id && one->manifest.kind != snapshot::CheckpointKind::suspend)
      co_return co_await reply_json(exchange, 200, checkpoint_json(*one, count_uses(all)));
  co_return no_such_checkpoint();
}

Task<> remove_checkpoint(http::Exchange& exchange, RouteParts& parts) {
  CO_TRY(const std::string tenant, tenant_named(exchange));
  const std::string id = exchange.param("checkpoint");
  if (!is_id(id) || parts.sandboxes.is_used(tenant, id)) co_return no_such_checkpoint();
  auto forget = [&parts, tenant, id] { return parts.vault.forget(tenant, id); };
  CO_TRY_VOID(co_await parts.disk.run(forget));
  log::info("checkpoint.removed", {{"checkpoint", id}});
  co_return co_await exchange.reply(http::json_response(200, "{}"));
}

}  // namespace

void add_checkpoint_routes(http::Router& router, RouteParts& parts) {
  router.add("GET", "/v1/tree", [&parts](http::Exchange& e) { return tree(e, parts); });
  router.add("GET", "/v1/checkpoints", [&parts](http::Exchange& e) { return list_checkpoints(e, parts); });
  router.add("GET", "/v1/checkpoints/{checkpoint}", [&parts](http::Exchange& e) { return get_checkpoint(e, parts); });
  router.add("DELETE", "/v1/checkpoints/{checkpoint}", [&parts](http::Exchange& e) { return remove_checkpoint(e, parts); });
}

}  // namespace space::node
