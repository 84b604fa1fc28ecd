// What a sandbox may reach. A policy is a value: parsed and checked once, compiled for lookup, never changed. Whatever is missing
// or malformed means `none`.
//
// Deciding has two moments. At connect time only name (or address), port and protocol are known: connect() says whether any
// request at all could pass, and how the connection is to be handled. Once a request was read, request() decides on it. The rule
// that decides is named in both answers, so that the audit log and `explain` say the same as the gateway does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "egress/address.h"

namespace space::egress {

enum class Mode { none, allowlist, open };
enum class Protocol { any, http, https, tcp };

struct PortRange {
  std::uint16_t first = 0, last = 0;
};

struct Rule {
  std::string id;  // "r1", "r2", … by position unless the policy names it; unique
  bool deny = false;
  std::string name;  // canonical or "*.canonical"; "" for a CIDR rule
  std::optional<Cidr> cidr;
  std::vector<PortRange> ports;  // empty: 80 for http, 443 for https, both for any; a tcp rule must name some
  Protocol protocol = Protocol::any;
  std::set<std::string> methods;           // empty: all
  std::vector<std::string> path_prefixes;  // empty: all; canonical, begin with '/'
  bool tunnel = false;                     // TLS passed through unread: trusts everything behind that name
};

struct Destination {
  std::string name;                // canonical; "" when the guest dialled a bare address
  std::optional<Address> address;  // what the guest dialled, for CIDR rules; never used to tell names apart
  std::uint16_t port = 0;
};

struct Verdict {
  bool allowed = false;
  std::string rule;    // id of the deciding rule; "" when none did
  std::string reason;  // for people: "deny rule r3 names *.example.com"
  enum class Handling { refuse, inspect_http, terminate_tls, tunnel, splice } handling = Handling::refuse;
};

class Policy {
 public:
  // JSON: {"mode":"allowlist","monitor":false,"rules":[{"id"?,"action":"allow"|"deny","name"|"cidr","ports":[443,"8000-8010"],
  // "protocol","methods":[…],"paths":[…],"tunnel":false}]}. Unknown fields are refused.
  static Result<std::shared_ptr<const Policy>> parse(const json::object& object);
  static std::shared_ptr<const Policy> none();

  Mode mode() const { return mode_; }
  bool monitor() const { return monitor_; }  // record what would be refused instead of refusing; special ranges stay refused
  const std::vector<Rule>& rules() const { return rules_; }
  bool denies_names() const { return denies_names_; }

  // May this name be answered at all? Decides DNS: true when some allow rule could match the name on some port.
  bool resolvable(std::string_view name) const;
  Verdict connect(const Destination& to) const;
  // `path` is the request target's path as the gateway normalised it: percent-decoded where unreserved, no dot segments.
  Verdict request(const Destination& to, std::string_view method, std::string_view path) const;
  // Does any rule for this destination look at paths, or at methods?
  bool reads_paths(const Destination& to) const;
  bool reads_methods(const Destination& to) const;

 private:
  template <class Visit>
  void each_match(const Destination& to, Visit visit) const;
  Verdict decide(const Destination& to, const std::string_view* method, const std::string_view* path) const;

  Mode mode_ = Mode::none;
  bool monitor_ = false, denies_names_ = false;
  std::vector<Rule> rules_;
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, std::vector<std::uint32_t>, Hash, std::equal_to<>> exact_;
  std::unordered_map<std::string, std::vector<std::uint32_t>, Hash, std::equal_to<>> wildcard_;  // key without "*."
  std::vector<std::uint32_t> ranges_;
};

// Rules name methods as upper-case words, which are all that HTTP knows.
bool is_method_of_rules(std::string_view method);

// Path as rules compare it: "/a/%62/../c" → "/a/c". Refused: encoded slashes, backslashes or dots that hide segments, control bytes.
Result<std::string> canonical_path(std::string_view raw);

}  // namespace space::egress
