// Who a request comes from. API keys look like "sk_" and 43 characters; the store knows only their SHA-256, and so does the
// memory of this class, which saves a query for every request. For the role's loop.
#pragma once

#include <filesystem>
#include <string>
#include <unordered_map>

#include "base/async.h"
#include "base/clock.h"
#include "control/store.h"
#include "http/message.h"

namespace space::api {

struct NewKey {
  control::Key key;
  std::string secret;  // shown once
};

// E2B's clients check their key's form: "e2b_" and 40 hex digits. Such a key is as good as any other on every route.
enum class KeyForm { native, e2b };

class KeyRing {
 public:
  KeyRing(control::Store& store, const Clock& clock) : store_(store), clock_(clock) {}

  // The key in "Authorization: Bearer sk_…". unauthenticated/key_missing, key_malformed, key_unknown, key_revoked, key_expired;
  // permission_denied/scope_missing when it may not do what is `needed`.
  Task<control::Key> authenticate(const http::Headers& headers, control::Scope needed = control::Scope::run);
  // The same for a secret that came in another header.
  Task<control::Key> authenticate(std::string secret, control::Scope needed);
  Task<NewKey> create(std::string tenant, std::string name, control::Scopes scopes = control::Scopes::all(), std::int64_t expires_ms = 0,
                      KeyForm form = KeyForm::native);
  Task<control::Key> revoke(std::string tenant, std::string id);  // tenant "": anybody's
  // Records a key whose secret was made elsewhere (the first one), when no key was ever recorded. True: recorded.
  Task<bool> record_first(std::string secret);

 private:
  NewKey make(std::string tenant, std::string name, std::string secret) const;
  control::Store& store_;
  const Clock& clock_;
  std::unordered_map<std::string, control::Key> known_;  // by hash
  std::uint64_t revocations_ = 0;                        // so far
};

bool looks_like_key(std::string_view secret);
std::string new_key_secret(KeyForm form = KeyForm::native);

// For the very first start, as the user who may write there: makes the file (mode 0600) when `database` does not exist yet and
// there is none, and gives its content; "" when neither file nor need is there. Blocks.
Result<std::string> first_key(const std::filesystem::path& file, const std::filesystem::path& database);

}  // namespace space::api
