#include "egress/settings.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/random.h"
#include "wire/egress_handover.h"

namespace space::egress {

Result<Settings> Settings::parse(const json::object& object) {
  constexpr std::int64_t kMost = 1'000'000'000'000'000;
  JsonReader reader(object);
  Settings s;
  s.tenant = reader.text("tenant", 1, 64);
  s.lineage = reader.text("lineage", 1, 40);
  s.generation = reader.number("generation", 1, kMost);
  const json::object* policy = reader.object("policy");
  const json::object* limits = reader.object("limits");
  const json::array* bindings = reader.array("credentials", 256);
  TRY_VOID(reader.done());
  if (!wire::is_tenant(s.tenant)) return fail(ErrorKind::invalid_argument, "invalid_tenant", "tenant must be 1 to 64 of [A-Za-z0-9_-]");
  if (!is_id(s.lineage)) return fail(ErrorKind::invalid_argument, "invalid_lineage", "lineage must be an id");
  if (policy) {
    TRY(s.policy, Policy::parse(*policy));
  }
  if (limits) {
    JsonReader inner(*limits, "limits");
    s.limits.connections = static_cast<std::uint32_t>(inner.number("connections", 0, 100'000, s.limits.connections));
    s.limits.requests_per_second = static_cast<std::uint64_t>(inner.number("requests_per_second", 0, kMost, 0));
    s.limits.bytes_per_second = static_cast<std::uint64_t>(inner.number("bytes_per_second", 0, kMost, 0));
    s.limits.total_bytes = static_cast<std::uint64_t>(inner.number("total_bytes", 0, kMost, 0));
    TRY_VOID(inner.done());
  }
  if (bindings) {
    for (std::size_t i = 0; i < bindings->size(); ++i) {
      const std::string at = fmt::format("credentials[{}]", i);
      if (!(*bindings)[i].is_object()) return fail(ErrorKind::invalid_argument, "invalid_binding", at + " must be an object");
      TRY(Binding binding, Binding::parse((*bindings)[i].get_object(), at));
      s.bindings.push_back(std::move(binding));
    }
  }
  TRY_VOID(check_against(*s.policy, s.bindings));
  s.document = object;
  return s;
}

Verdict::Handling handling_of(const Verdict& verdict, const Settings& settings, const Destination& to) {
  using Handling = Verdict::Handling;
  if (to.name.empty()) return verdict.handling == Handling::terminate_tls ? Handling::tunnel : verdict.handling;
  if (verdict.handling != Handling::tunnel) return verdict.handling;
  const bool bound =
      std::any_of(settings.bindings.begin(), settings.bindings.end(), [&](const Binding& b) { return b.matches_host(to.name, to.port); });
  return bound ? Handling::terminate_tls : Handling::tunnel;
}

}  // namespace space::egress
