// One decision of the gateway, as the audit log has it.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"

namespace space::egress {

// Empty and zero fields are left out of the JSON. Never a secret: `credential` is its name, `path` has no query.
struct Event {
  // Bytes of each text in the JSON; what is longer is cut.
  static constexpr std::size_t kLongestName = 253, kLongestAddress = 64, kLongestProtocol = 16, kLongestMethod = 32, kLongestPath = 256,
                               kLongestRule = 64, kLongestReason = 400, kLongestCredential = 64;

  std::string sandbox;
  std::string kind;     // dns, connection, request, credential, security, limit
  std::string verdict;  // allow, deny, error, monitor
  std::string name;     // canonical, or what was asked for
  std::string address;  // what was dialled: by the guest when refused, by the gateway when allowed
  std::uint16_t port = 0;
  std::string protocol;  // udp, tcp, tls, http, https, h2
  std::string method;
  std::string path;
  std::string rule;
  std::string reason;  // for people
  std::string credential;
  int status = 0;  // of a request that was answered
  std::uint64_t bytes_up = 0, bytes_down = 0;
  std::int64_t generation = 0;
  std::uint64_t count = 1;  // of decisions that this one event stands for (egress/reporter.h); in the JSON when it is more than 1
  bool unreported = false;  // stands for decisions that differ in what it does not name

  json::object to_json() const;
};

// What a guest wrote, fit for a log: at most `most` bytes, printable ASCII, everything else as '?'.
std::string loggable(std::string_view text, std::size_t most = 256);

}  // namespace space::egress
