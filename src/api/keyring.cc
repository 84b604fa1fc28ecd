#include "api/keyring.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/digest.h"
#include "base/encoding.h"
#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "http/authorization.h"

namespace space::api {
namespace {

constexpr std::string_view kPrefix = "sk_";
constexpr std::size_t kKeyLength = 3 + 43;
constexpr std::string_view kE2bPrefix = "e2b_";
constexpr std::size_t kE2bBytes = 20;
constexpr std::size_t kShown = 8;  // of the secret, to recognise it by
constexpr std::size_t kMostKnown = 4096;

std::string hash_of(std::string_view secret) { return hex_encode(sha256(secret)); }

tl::unexpected<Error> refuse(std::string_view code, std::string message) {
  return fail(ErrorKind::unauthenticated, code, std::move(message),
              "send `Authorization: Bearer sk_…`; the first key is in the server's data folder (first.key)");
}

}  // namespace

bool looks_like_key(std::string_view secret) {
  const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (secret.starts_with(kE2bPrefix))
    return secret.size() == kE2bPrefix.size() + 2 * kE2bBytes && std::ranges::all_of(secret.substr(kE2bPrefix.size()), hex);
  return secret.size() == kKeyLength && secret.starts_with(kPrefix) && std::ranges::all_of(secret, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
         });
}

std::string new_key_secret(KeyForm form) {
  if (form == KeyForm::native) return new_token(kPrefix);
  std::array<std::byte, kE2bBytes> bytes;
  random_bytes(bytes);
  std::string secret(kE2bPrefix);
  secret += hex_encode(bytes);
  wipe(bytes);
  return secret;
}

namespace {

// Asked at every request: a key that is known may have come to its end meanwhile.
Result<control::Key> usable(const control::Key& key, control::Scope needed, std::int64_t now_ms) {
  if (key.revoked_ms != 0) return refuse("key_revoked", "this API key was revoked");
  if (key.expires_ms != 0 && key.expires_ms <= now_ms) return refuse("key_expired", "this API key has expired");
  if (!key.scopes.allows(needed))
    return fail(ErrorKind::permission_denied, "scope_missing",
                fmt::format("this needs the scope `{}`, and this key has: {}", to_string(needed), key.scopes.text()),
                fmt::format("use a key with the scope `{}` (space key create --scope {})", to_string(needed), to_string(needed)));
  return key;
}

}  // namespace

Task<control::Key> KeyRing::authenticate(const http::Headers& headers, control::Scope needed) {
  if (headers.count("Authorization") == 0) co_return refuse("key_missing", "this request needs an API key");
  if (headers.count("Authorization") > 1) co_return refuse("key_malformed", "the request has more than one Authorization header");
  co_return co_await authenticate(http::bearer(headers), needed);
}

Task<control::Key> KeyRing::authenticate(std::string secret, control::Scope needed) {
  if (!looks_like_key(secret)) co_return refuse("key_malformed", "this is no API key");
  const std::string hash = hash_of(secret);
  // Looking up the hash tells an observer of time nothing about the key: hashes of guesses are spread evenly.
  if (const auto found = known_.find(hash); found != known_.end() && equal_constant_time(found->second.hash, hash))
    co_return usable(found->second, needed, clock_.wall_ms());
  const std::uint64_t before = revocations_;
  auto key = co_await store_.find_key_by_hash(hash);
  if (!key && key.error().kind != ErrorKind::not_found) co_return tl::unexpected(key.error());
  if (!key || !equal_constant_time(key->hash, hash)) co_return refuse("key_unknown", "this API key is not known here");
  if (before == revocations_) {  // else it may have been revoked since it was read
    if (known_.size() >= kMostKnown) known_.clear();
    known_.insert_or_assign(hash, *key);
  }
  co_return usable(*key, needed, clock_.wall_ms());
}

NewKey KeyRing::make(std::string tenant, std::string name, std::string secret) const {
  control::Key key;
  key.id = new_id();
  key.tenant = std::move(tenant);
  key.name = std::move(name);
  key.hash = hash_of(secret);
  key.prefix = secret.substr(0, kShown);
  key.created_ms = clock_.wall_ms();
  return {std::move(key), std::move(secret)};
}

Task<NewKey> KeyRing::create(std::string tenant, std::string name, control::Scopes scopes, std::int64_t expires_ms, KeyForm form) {
  NewKey made = make(std::move(tenant), std::move(name), new_key_secret(form));
  made.key.scopes = scopes;
  made.key.expires_ms = expires_ms;
  CO_TRY_VOID(co_await store_.put_key(made.key));
  co_return made;
}

Task<control::Key> KeyRing::revoke(std::string tenant, std::string id) {
  CO_TRY(control::Key key, co_await store_.revoke_key(std::move(tenant), std::move(id)));
  ++revocations_;
  known_.erase(key.hash);
  co_return key;
}

Task<bool> KeyRing::record_first(std::string secret) {
  CO_TRY(const std::size_t count, co_await store_.count_keys());
  if (count > 0) co_return false;
  NewKey made = make(std::string(control::kDefaultTenant), "first", std::move(secret));
  CO_TRY_VOID(co_await store_.put_key(made.key));
  log::info("key.first_recorded", {{"key", made.key.id}});
  co_return true;
}

Result<std::string> first_key(const std::filesystem::path& file, const std::filesystem::path& database) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    if (std::filesystem::exists(database, ignored)) return std::string();
    TRY_VOID(write_file_durable(file, new_key_secret() + "\n", 0600));
    log::info("key.first_written", {{"file", file.string()}});
  }
  auto text = read_file(file, 256);
  // Somebody else's by now, which is fine: it was recorded at the first start.
  if (!text) return text.error().kind == ErrorKind::permission_denied ? Result<std::string>(std::string()) : std::move(text);
  while (!text->empty() && (text->back() == '\n' || text->back() == '\r' || text->back() == ' ')) text->pop_back();
  if (!looks_like_key(*text))
    return fail(ErrorKind::invalid_argument, "first_key_invalid", file.string() + " does not hold an API key",
                "remove that file; with an empty database a new one is made");
  return std::move(*text);
}

}  // namespace space::api
