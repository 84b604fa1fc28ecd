// The verbs of the Store that change sandboxes and operations, as functions inside one transaction. They hold the rules; what
// runs them (SQLite's writer today) only gives them a session. `now_ms` is the wall clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "control/session.h"
#include "control/store.h"

namespace space::control::changes {

Result<Accepted> accept_create(Session& session, Sandbox sandbox, Operation operation, const std::optional<Idempotency>& keep);
Result<Accepted> accept_fork(Session& session, std::vector<Sandbox> children, Operation operation, const std::optional<Idempotency>& keep);
Result<Accepted> accept_change(Session& session, Operation operation, const std::optional<Idempotency>& keep);
Result<> claim_operation(Session& session, const std::string& id, std::int64_t started_ms);
Result<Finished> finish_operation(Session& session, const std::string& id, const Outcome& outcome, std::int64_t now_ms);
Result<Operation> request_cancel(Session& session, const std::string& tenant, const std::string& id);
Result<> note_snapshot(Session& session, const std::string& id, const std::string& snapshot, std::int64_t now_ms);
Result<bool> end_sandbox(Session& session, const std::string& id, const std::string& reason, std::int64_t now_ms);
Result<Sandbox> set_deadline(Session& session, const std::string& tenant, const std::string& id, std::int64_t ends_ms, bool only_later);
Result<> put_settings(Session& session, const std::string& sandbox, const std::string& text, std::int64_t now_ms);
std::string find_settings(Session& session, const std::string& sandbox);
Result<bool> correct_state(Session& session, const std::string& id, SandboxState state, std::int64_t now_ms);

Result<std::optional<KeptAnswer>> find_answer(Session& session, const std::string& tenant, const std::string& key,
                                              const std::string& fingerprint);
Result<std::optional<KeptAnswer>> begin_answer(Session& session, const std::string& tenant, const std::string& key,
                                               const std::string& fingerprint, std::int64_t now_ms);
Result<> remember_answer(Session& session, const std::string& tenant, const std::string& key, const KeptAnswer& answer,
                         std::int64_t now_ms);
Result<> forget_answer(Session& session, const std::string& tenant, const std::string& key);

Result<> put_key(Session& session, const Key& key);
Result<Key> revoke_key(Session& session, const std::string& tenant, const std::string& id, std::int64_t now_ms);
Result<std::size_t> prune(Session& session, const Retention& retention, std::int64_t now_ms);

std::vector<std::string> tenants(Session& session);
std::vector<Key> read_keys(Session& session, const std::string& where, const std::string& value);
Error sandbox_not_found(const std::string& id);
Error operation_not_found(const std::string& id);

}  // namespace space::control::changes
