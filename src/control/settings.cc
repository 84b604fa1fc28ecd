// What another API keeps beside a sandbox, and the time at which a sandbox is due.
#include <fmt/format.h>

#include "control/changes.h"
#include "control/rows.h"

namespace space::control::changes {

Result<> put_settings(Session& session, const std::string& sandbox, const std::string& text, std::int64_t now_ms) {
  session.exec(
      "INSERT INTO settings (sandbox, text, created_ms) VALUES (:sandbox, :text, :created) ON CONFLICT (sandbox) DO UPDATE SET text = "
      "excluded.text",
      sandbox, text, now_ms);
  return {};
}

std::string find_settings(Session& session, const std::string& sandbox) {
  const auto found = session.query<std::string>("SELECT text FROM settings WHERE sandbox = :sandbox", sandbox);
  return found.empty() ? std::string() : std::get<0>(found.front());
}

Result<Sandbox> set_deadline(Session& session, const std::string& tenant, const std::string& id, std::int64_t ends_ms, bool only_later) {
  auto sandbox = rows::sandbox(session, id);
  if (!sandbox || sandbox->tenant != tenant) return fail(sandbox_not_found(id));
  if (sandbox->state != SandboxState::running)
    return fail(ErrorKind::conflict, fmt::format("sandbox_{}", to_string(sandbox->state)),
                fmt::format("sandbox {} is {}: its time does not run", id, to_string(sandbox->state)), "wake it first");
  if (only_later && (sandbox->ends_ms == 0 || sandbox->ends_ms >= ends_ms)) return std::move(*sandbox);
  sandbox->ends_ms = ends_ms;
  sandbox->time_limit_s = std::max<std::int64_t>(sandbox->time_limit_s, 1);  // it has a limit from now on
  session.exec("UPDATE sandboxes SET ends_ms = :ends, time_limit_s = :limit WHERE sequence = :sequence", sandbox->ends_ms,
               sandbox->time_limit_s, sandbox->sequence);
  return std::move(*sandbox);
}

}  // namespace space::control::changes
