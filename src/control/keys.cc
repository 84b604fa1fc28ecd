// API keys, and what is thrown away after its time.
#include <boost/json.hpp>

#include "control/changes.h"
#include "control/rows.h"

namespace space::control::changes {
namespace {

void tell(Session& session, const Key& key, const char* type, std::int64_t now_ms) {
  const boost::json::object data{{"key", key.id}, {"name", key.name}};
  rows::append_event(session, {0, key.tenant, type, "", "", boost::json::serialize(data), now_ms});
}

// Removes the oldest rows beyond `most`. `table` and `where` are constants of this file.
std::size_t prune_beyond(Session& session, const std::string& table, const std::string& order, const std::string& where, std::size_t most) {
  const auto count = std::get<0>(session.query<long long>("SELECT COUNT(*) FROM " + table + " WHERE " + where).front());
  if (count <= static_cast<long long>(most)) return 0;
  return static_cast<std::size_t>(session.exec("DELETE FROM " + table + " WHERE " + order + " IN (SELECT " + order + " FROM " + table + " WHERE " + where +
                                                   " ORDER BY " + order + " LIMIT :surplus)",
                                               count - static_cast<long long>(most)));
}

}  // namespace

std::vector<Key> read_keys(Session& session, const std::string& where, const std::string& value) {
  std::vector<Key> out;
  for (auto& row : session.query<std::string, std::string, std::string, std::string, std::string, long long, long long>(
           "SELECT id, tenant, name, hash, prefix, created_ms, revoked_ms FROM keys WHERE " + where + " = :value ORDER BY created_ms, id", value)) {
    Key key;
    std::tie(key.id, key.tenant, key.name, key.hash, key.prefix, key.created_ms, key.revoked_ms) = std::move(row);
    out.push_back(std::move(key));
  }
  return out;
}

Result<> put_key(Session& session, const Key& key) {
  session.exec("INSERT INTO keys (id, tenant, name, hash, prefix, created_ms, revoked_ms) VALUES (:id, :tenant, :name, :hash, :prefix, :created, 0)",
               key.id, key.tenant, key.name, key.hash, key.prefix, key.created_ms);
  tell(session, key, "key.created", key.created_ms);
  return {};
}

Result<Key> revoke_key(Session& session, const std::string& tenant, const std::string& id, std::int64_t now_ms) {
  auto found = read_keys(session, "id", id);
  if (found.empty() || found.front().tenant != tenant)
    return fail(ErrorKind::not_found, "key_not_found", "there is no key " + id, "list what there is: GET /v1/keys");
  Key key = std::move(found.front());
  if (key.revoked_ms != 0) return key;
  const auto valid = session.query<long long>("SELECT COUNT(*) FROM keys WHERE tenant = :tenant AND revoked_ms = 0", tenant);
  if (std::get<0>(valid.front()) <= 1)
    return fail(ErrorKind::conflict, "last_key", "this is the last valid key: revoking it would lock everybody out",
                "create another key first, then revoke this one with it");
  key.revoked_ms = now_ms;
  session.exec("UPDATE keys SET revoked_ms = :now WHERE id = :id", now_ms, id);
  tell(session, key, "key.revoked", now_ms);
  return key;
}

Result<std::size_t> prune(Session& session, const Retention& keep, std::int64_t now_ms) {
  long long removed = 0;
  removed += session.exec("DELETE FROM answers WHERE created_ms < :before", now_ms - keep.answers_ms);
  removed += session.exec("DELETE FROM operations WHERE finished_ms > 0 AND finished_ms < :before", now_ms - keep.operations_ms);
  removed += session.exec("DELETE FROM events WHERE time_ms < :before", now_ms - keep.events_ms);
  auto total = static_cast<std::size_t>(removed);
  total += prune_beyond(session, "answers", "rowid", "status > 0", keep.max_answers);
  total += prune_beyond(session, "operations", "sequence", "finished_ms > 0", keep.max_operations);
  total += prune_beyond(session, "events", "sequence", "1 = 1", keep.max_events);
  return total;
}

}  // namespace space::control::changes
