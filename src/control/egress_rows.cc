#include "control/egress_rows.h"

#include <fmt/format.h>

#include "control/changes.h"
#include "control/rows.h"

namespace space::control::changes {
namespace {

constexpr std::size_t kMostPublicPorts = 64;

Result<Sandbox> own(Session& session, const std::string& tenant, const std::string& id) {
  auto sandbox = rows::sandbox(session, id);
  if (!sandbox || sandbox->tenant != tenant || sandbox->state == SandboxState::deleting) return fail(sandbox_not_found(id));
  return std::move(*sandbox);
}

std::vector<EgressSettings> read(Session& session, const std::string& where, const std::string& value) {
  std::vector<EgressSettings> out;
  for (auto& row : session.query<std::string, std::string, std::string, long long, std::string>(
           "SELECT sandbox, tenant, lineage, generation, document FROM egress WHERE " + where + " = :value", value)) {
    EgressSettings settings;
    std::tie(settings.sandbox, settings.tenant, settings.lineage, settings.generation, settings.document) = std::move(row);
    out.push_back(std::move(settings));
  }
  return out;
}

}  // namespace

void insert_egress(Session& session, const EgressSettings& settings) {
  session.exec(
      "INSERT INTO egress (sandbox, tenant, lineage, generation, document) VALUES (:sandbox, :tenant, :lineage, :generation, :document)",
      settings.sandbox, settings.tenant, settings.lineage, settings.generation, settings.document);
}

Result<EgressSettings> put_egress(Session& session, const std::string& tenant, const std::string& sandbox, const std::string& document,
                                  std::optional<std::int64_t> expected, std::int64_t now_ms) {
  TRY(EgressSettings settings, find_egress(session, tenant, sandbox));
  if (expected && *expected != settings.generation)
    return fail(ErrorKind::conflict, "generation_conflict",
                fmt::format("the policy has generation {} and not {}: somebody else changed it", settings.generation, *expected),
                "read it again, then change it");
  const bool first = settings.generation++ == 0;
  settings.document = document;
  if (first)
    insert_egress(session, settings);
  else
    session.exec("UPDATE egress SET generation = :generation, document = :document WHERE sandbox = :sandbox", settings.generation,
                 settings.document, sandbox);
  rows::append_event(session,
                     {0, tenant, "egress.changed", sandbox, "", fmt::format(R"({{"generation":{}}})", settings.generation), now_ms});
  return settings;
}

Result<EgressSettings> find_egress(Session& session, const std::string& tenant, const std::string& sandbox) {
  TRY_VOID(own(session, tenant, sandbox));
  auto found = read(session, "sandbox", sandbox);
  if (!found.empty()) return std::move(found.front());
  return EgressSettings{sandbox, tenant, sandbox, 0, kNoEgress};
}

std::vector<EgressSettings> all_egress(Session& session) {
  return read(session, "''", "");  // every row
}

void copy_egress(Session& session, const std::string& from, const std::string& to, const std::string& document) {
  auto parents = read(session, "sandbox", from);
  // One that never had a policy allows nothing; its children still trust its authority, and are to be told so.
  EgressSettings settings{from, "", from, 0, kNoEgress};
  if (!parents.empty())
    settings = std::move(parents.front());
  else if (const auto parent = rows::sandbox(session, from))
    settings.tenant = parent->tenant;
  else
    return;
  settings.sandbox = to;
  settings.generation = 1;
  if (!document.empty()) settings.document = document;
  insert_egress(session, settings);
}

void forget_egress(Session& session, const std::string& sandbox) {
  session.exec("DELETE FROM egress WHERE sandbox = :sandbox", sandbox);
  session.exec("DELETE FROM public_ports WHERE sandbox = :sandbox", sandbox);
}

Result<> set_port(Session& session, const std::string& tenant, const std::string& sandbox, std::uint16_t port, bool is_public) {
  TRY(const auto now, public_ports(session, tenant, sandbox));
  if (is_public && now.size() >= kMostPublicPorts)
    return fail(ErrorKind::resource_exhausted, "too_many_public_ports",
                fmt::format("a sandbox has at most {} public ports", kMostPublicPorts), "make some private first");
  session.exec("DELETE FROM public_ports WHERE sandbox = :sandbox AND port = :port", sandbox, static_cast<long long>(port));
  if (is_public) session.exec("INSERT INTO public_ports (sandbox, port) VALUES (:sandbox, :port)", sandbox, static_cast<long long>(port));
  return {};
}

Result<std::vector<std::uint16_t>> public_ports(Session& session, const std::string& tenant, const std::string& sandbox) {
  TRY_VOID(own(session, tenant, sandbox));
  std::vector<std::uint16_t> out;
  for (const auto& [port] : session.query<long long>("SELECT port FROM public_ports WHERE sandbox = :sandbox ORDER BY port", sandbox))
    out.push_back(static_cast<std::uint16_t>(port));
  return out;
}

bool port_is_public(Session& session, const std::string& sandbox, std::uint16_t port) {
  return !session
              .query<long long>("SELECT port FROM public_ports WHERE sandbox = :sandbox AND port = :port", sandbox,
                                static_cast<long long>(port))
              .empty();
}

}  // namespace space::control::changes
