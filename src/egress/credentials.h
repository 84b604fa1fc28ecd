// Credentials inside a worker: put into requests that a binding covers, and taken out of what comes back.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "egress/http_request.h"
#include "base/secret.h"

namespace space::egress {

// Those of the worker's tenant.
class CredentialTable {
 public:
  void set(const std::string& name, Secret value) { values_[name] = std::make_shared<const Secret>(std::move(value)); }
  void forget(const std::string& name) { values_.erase(name); }
  std::shared_ptr<const Secret> find(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : found->second;
  }

 private:
  std::map<std::string, std::shared_ptr<const Secret>> values_;
};

// What was put into one request.
struct Injection {
  std::string names;                                    // of the credentials, for the audit log
  std::vector<std::shared_ptr<const Secret>> patterns;  // every form of the secrets that the upstream might send back
  bool empty() const { return patterns.empty(); }
};

// Puts in what the bindings say for this request. Only inside TLS (`tls`). Whatever the guest sent in the same place is dropped. A
// placeholder anywhere but in its own place and request is refused: it would tell that host about the binding, or be a mistake.
Checked<Injection> inject(const CredentialTable& table, const Settings& settings, bool tls, CheckedRequest& request,
                          http::Headers& headers);

// Overwrites the values of a request's fields once they went out, for those that held a secret.
void wipe_fields(http::Headers& headers);

// Replaces secrets in a stream by as many asterisks, so that lengths stay. What could be the beginning of a secret is held back until
// more comes: all that follows the last control byte, which no secret has, up to the length of one. That is nothing that a secret decides:
// else an upstream that repeats a guest's guess would tell by a late piece that the guess begins the secret.
class Scrubber {
 public:
  Scrubber() = default;
  explicit Scrubber(const Injection& injection);
  bool active() const { return !patterns_.empty(); }
  // For a stream in which both sides take turns (WebSocket, gRPC) and nothing may wait that need not: only what does begin a secret is held
  // back.
  void take_turns() { in_turns_ = true; }
  std::string push(std::string_view bytes);  // what may be passed on now
  std::string finish();                      // the rest
  bool found() const { return found_; }
  // All at once, for a header's value.
  std::string whole(std::string_view text);

 private:
  void replace(std::string& text);
  std::size_t begins_secret() const;  // the length of the longest end of held_ that a secret begins with
  std::vector<std::shared_ptr<const Secret>> patterns_;
  std::string held_;
  bool in_turns_ = false;
  bool found_ = false;
};

}  // namespace space::egress
