// Changes of a sandbox's settings as an operation's request carries them. Names in `metadata` and `env` are set or, without a value,
// taken out; whatever is not mentioned stays (as RFC 7396 merges).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "control/types.h"

namespace space::control {

class Session;

using TextChanges = std::map<std::string, std::optional<std::string>>;

struct SandboxUpdate {
  TextChanges metadata, env;
  std::optional<std::int64_t> cpus, memory_mib;
  std::optional<std::int64_t> time_limit_s;                  // 0: none any more
  std::optional<std::int64_t> idle_pause_s, idle_suspend_s;  // 0: never any more
  std::optional<std::int64_t> idle_cpu_percent;
  std::optional<bool> suspend_at_limit;
  std::string egress;  // the next policy (egress_rows.h), "": as it is
  bool empty() const;
};

std::string encode(const SandboxUpdate& update);
Result<SandboxUpdate> decode_update(const std::string& text);  // of what encode wrote

void apply(const TextChanges& changes, std::map<std::string, std::string>& to);

// What node has to do about it; the rest is ours.
json::object node_part(const SandboxUpdate& update);

namespace changes {
// At the end of the operation, in its transaction. A time limit runs anew from now, or from the wake.
Result<> apply_update(Session& session, Sandbox& sandbox, const std::string& operation, const std::string& request, std::int64_t now_ms);
}  // namespace changes

}  // namespace space::control
