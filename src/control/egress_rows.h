// What the store knows of a sandbox's network: its egress policy and the ports that are public. Functions inside one transaction;
// the verbs of Store call them. The policy's text is checked by the gateway before it comes here, and is opaque in this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace space::control {

class Session;

struct EgressSettings {
  std::string sandbox, tenant;
  std::string lineage;          // whose certificate authority: the sandbox itself, or the root that it was forked from
  std::int64_t generation = 0;  // 0: never set, which means that nothing is allowed
  std::string document;         // JSON object {"policy","limits"?,"credentials"?}
};

namespace changes {

inline constexpr const char* kNoEgress = R"({"policy":{"mode":"none"}})";

void insert_egress(Session& session, const EgressSettings& settings);  // of a new sandbox, with generation 1
// The next generation. `expected`: the one that the caller has seen; another is conflict/generation_conflict.
Result<EgressSettings> put_egress(Session& session, const std::string& tenant, const std::string& sandbox, const std::string& document,
                                  std::optional<std::int64_t> expected, std::int64_t now_ms);
Result<EgressSettings> find_egress(Session& session, const std::string& tenant, const std::string& sandbox);  // sandbox_not_found
std::vector<EgressSettings> all_egress(Session& session);                                                     // that were ever set
// A fork starts with its parent's policy, or with the `document` that it was given, and trusts its parent's authority; its first generation
// is 1. Public ports are not inherited.
void copy_egress(Session& session, const std::string& from, const std::string& to, const std::string& document = {});
void forget_egress(Session& session, const std::string& sandbox);  // with its public ports

Result<> set_port(Session& session, const std::string& tenant, const std::string& sandbox, std::uint16_t port, bool is_public);
Result<std::vector<std::uint16_t>> public_ports(Session& session, const std::string& tenant, const std::string& sandbox);
bool port_is_public(Session& session, const std::string& sandbox, std::uint16_t port);

}  // namespace changes
}  // namespace space::control
