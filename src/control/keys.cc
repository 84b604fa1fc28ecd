// API keys, and what is thrown away after its time.
#include <algorithm>
#include <boost/json.hpp>

#include "control/changes.h"
#include "control/rows.h"

namespace space::control::changes {
namespace {

void tell(Session& session, const Key& key, const char* type, std::int64_t now_ms) {
  const boost::json::object data{{"key", key.id}, {"name", key.name}, {"scopes", key.scopes.text()}};
  rows::append_event(session, {0, key.tenant, type, "", "", boost::json::serialize(data), now_ms});
}

// Removes the oldest rows beyond `most`. `table` and `where` are constants of this file.
std::size_t prune_beyond(Session& session, const std::string& table, const std::string& order, const std::string& where, std::size_t most) {
  const auto count = std::get<0>(session.query<long long>("SELECT COUNT(*) FROM " + table + " WHERE " + where).front());
  if (count <= static_cast<long long>(most)) return 0;
  return static_cast<std::size_t>(session.exec("DELETE FROM " + table + " WHERE " + order + " IN (SELECT " + order + " FROM " + table +
                                                   " WHERE " + where + " ORDER BY " + order + " LIMIT :surplus)",
                                               count - static_cast<long long>(most)));
}

// Of each tenant by itself: what one sends must not make another's repeated request a new one. Whoever has only an attach token
// counts as a tenant of its sandbox's (api/idempotency.cc); without the sandbox nobody can come with it again.
std::size_t prune_answers(Session& session, std::size_t most) {
  auto removed = static_cast<std::size_t>(
      session.exec("DELETE FROM answers WHERE tenant LIKE 'attach:%' AND SUBSTR(tenant, 8) NOT IN (SELECT id FROM sandboxes)"));
  const auto full = session.query<std::string, long long>(
      "SELECT tenant, COUNT(*) FROM answers WHERE status > 0 GROUP BY tenant HAVING COUNT(*) > :most", most);
  for (const auto& [tenant, count] : full)
    removed += static_cast<std::size_t>(session.exec(
        "DELETE FROM answers WHERE rowid IN (SELECT rowid FROM answers WHERE tenant = :tenant AND status > 0 ORDER BY rowid LIMIT "
        ":surplus)",
        tenant, count - static_cast<long long>(most)));
  return removed;
}

}  // namespace

std::vector<Key> read_keys(Session& session, const std::string& where, const std::string& value) {
  std::vector<Key> out;
  for (auto& row :
       session.query<std::string, std::string, std::string, std::string, std::string, long long, long long, long long, std::string>(
           "SELECT id, tenant, name, hash, prefix, created_ms, revoked_ms, expires_ms, scopes FROM keys WHERE " + where +
               " = :value ORDER BY created_ms, id",
           value)) {
    Key key;
    std::string scopes;
    std::tie(key.id, key.tenant, key.name, key.hash, key.prefix, key.created_ms, key.revoked_ms, key.expires_ms, scopes) = std::move(row);
    key.scopes = Scopes::from_text(scopes);
    out.push_back(std::move(key));
  }
  return out;
}

Result<> put_key(Session& session, const Key& key) {
  session.exec(
      "INSERT INTO keys (id, tenant, name, hash, prefix, created_ms, revoked_ms, expires_ms, scopes) "
      "VALUES (:id, :tenant, :name, :hash, :prefix, :created, 0, :expires, :scopes)",
      key.id, key.tenant, key.name, key.hash, key.prefix, key.created_ms, key.expires_ms, key.scopes.text());
  tell(session, key, "key.created", key.created_ms);
  return {};
}

Result<Key> revoke_key(Session& session, const std::string& tenant, const std::string& id, std::int64_t now_ms) {
  auto found = read_keys(session, "id", id);
  if (found.empty() || (!tenant.empty() && found.front().tenant != tenant))
    return fail(ErrorKind::not_found, "key_not_found", "there is no key " + id, "list what there is: GET /v1/keys");
  Key key = std::move(found.front());
  if (key.revoked_ms != 0) return key;
  // Another tenant's keys can always be made again by the host's. One that expires is no way back in.
  if (key.tenant == kDefaultTenant && key.scopes.allows(Scope::admin)) {
    const auto others = read_keys(session, "tenant", key.tenant);
    const bool one = std::ranges::any_of(others, [&](const Key& other) {
      return other.id != key.id && other.revoked_ms == 0 && other.expires_ms == 0 && other.scopes.allows(Scope::admin);
    });
    if (!one)
      return fail(ErrorKind::conflict, "last_key", "this is the last valid admin key: revoking it would lock everybody out",
                  "create another admin key that does not expire, then revoke this one with it");
  }
  key.revoked_ms = now_ms;
  session.exec("UPDATE keys SET revoked_ms = :now WHERE id = :id", now_ms, id);
  tell(session, key, "key.revoked", now_ms);
  return key;
}

std::vector<std::string> tenants(Session& session) {
  std::vector<std::string> out;
  for (auto& [tenant] : session.query<std::string>("SELECT tenant FROM keys WHERE revoked_ms = 0 UNION SELECT tenant FROM sandboxes"))
    out.push_back(std::move(tenant));
  return out;
}

Result<std::size_t> prune(Session& session, const Retention& keep, std::int64_t now_ms) {
  long long removed = 0;
  removed += session.exec("DELETE FROM answers WHERE created_ms < :before", now_ms - keep.answers_ms);
  removed += session.exec("DELETE FROM operations WHERE finished_ms > 0 AND finished_ms < :before", now_ms - keep.operations_ms);
  removed += session.exec("DELETE FROM events WHERE time_ms < :before", now_ms - keep.events_ms);
  // What is kept of something else than a sandbox goes once it says nothing.
  removed += session.exec(
      "DELETE FROM settings WHERE created_ms < :before AND sandbox NOT IN (SELECT id FROM sandboxes) AND (text = '' OR (sandbox NOT LIKE "
      "'secret:%' AND "
      "sandbox NOT LIKE 'mounts-of-snapshot:%'))",
      now_ms - keep.answers_ms);
  auto total = static_cast<std::size_t>(removed);
  total += prune_answers(session, keep.max_answers);
  total += prune_beyond(session, "operations", "sequence", "finished_ms > 0", keep.max_operations);
  total += prune_beyond(session, "events", "sequence", "1 = 1", keep.max_events);
  return total;
}

}  // namespace space::control::changes
