// DNS messages (RFC 1035, 6891) by ldns: what a guest may ask and what it is told; what the gateway asks and is told.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "egress/address.h"

namespace space::egress {

enum class DnsType : std::uint16_t { a = 1, cname = 5, aaaa = 28, any = 255 };
enum class DnsCode : std::uint8_t {
  no_error = 0,
  format_error = 1,
  server_failure = 2,
  no_such_name = 3,
  not_implemented = 4,
  refused = 5
};

// A guest's question. Nothing else of its message is kept or ever passed on.
struct DnsQuestion {
  std::uint16_t id = 0;
  bool recursion_desired = false;
  bool edns = false;
  std::size_t longest_answer = 512;  // over UDP; by EDNS at most 1232
  std::string raw_name;              // wire form, for the answer
  std::string name;                  // canonical; "" when it is no host name
  std::uint16_t type = 0;
  DnsCode code = DnsCode::no_error;  // otherwise: answer with this
};

inline constexpr std::size_t kLongestDnsQuery = 1232;

// nullopt: drop it without an answer (too short, an answer, too long). Exactly one question, no records but one OPT.
std::optional<DnsQuestion> parse_dns_question(std::string_view message);

// `addresses` of the type that was asked for; cut (TC) where they do not fit.
std::string dns_answer(const DnsQuestion& question, DnsCode code, const std::vector<Address>& addresses, std::uint32_t ttl_s,
                       bool over_udp);

// The gateway's own question; `name` is canonical.
Result<std::string> dns_query(std::uint16_t id, std::string_view name, DnsType type);

struct DnsReply {
  DnsCode code = DnsCode::no_error;
  bool truncated = false;
  std::vector<Address> addresses;  // at the end of the chain of aliases, at most 16
  std::string alias;               // where the chain stopped without an address; "" when there was none
  std::uint32_t ttl_s = 0;         // the least of what was used
};

// An answer to `dns_query(id, name, type)`: another id, question or kind of message is an error, and so is a chain of more than 8.
Result<DnsReply> parse_dns_reply(std::string_view message, std::uint16_t id, std::string_view name, DnsType type);

}  // namespace space::egress
