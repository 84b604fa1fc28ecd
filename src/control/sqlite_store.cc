#include "control/sqlite_store.h"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>

#include "control/changes.h"
#include "control/database.h"
#include "control/rows.h"

namespace space::control {
namespace {

class SqliteStore : public Store {
 public:
  SqliteStore(std::unique_ptr<Database> database, asio::any_io_executor executor, const Clock& clock)
      : database_(std::move(database)), executor_(std::move(executor)), clock_(clock) {}

  Task<Accepted> accept_create(Sandbox sandbox, Operation operation, std::optional<Idempotency> keep) override {
    return change<Accepted>([sandbox = std::move(sandbox), operation = std::move(operation), keep = std::move(keep)](Session& s) {
      return changes::accept_create(s, sandbox, operation, keep);
    });
  }
  Task<Accepted> accept_change(Operation operation, std::optional<Idempotency> keep) override {
    return change<Accepted>(
        [operation = std::move(operation), keep = std::move(keep)](Session& s) { return changes::accept_change(s, operation, keep); });
  }
  Task<Accepted> accept_fork(std::vector<Sandbox> children, Operation operation, std::optional<Idempotency> keep) override {
    return change<Accepted>([children = std::move(children), operation = std::move(operation), keep = std::move(keep)](Session& s) {
      return changes::accept_fork(s, children, operation, keep);
    });
  }
  void claim_operation(std::string id, std::int64_t started_ms) override {
    database_->write_later([id = std::move(id), started_ms](Session& s) { return changes::claim_operation(s, id, started_ms); });
  }
  Task<Finished> finish_operation(std::string id, Outcome outcome) override {
    return change<Finished>([id = std::move(id), outcome = std::move(outcome), now = clock_.wall_ms()](Session& s) {
      return changes::finish_operation(s, id, outcome, now);
    });
  }
  Task<Operation> request_cancel(std::string tenant, std::string id) override {
    return change<Operation>(
        [tenant = std::move(tenant), id = std::move(id)](Session& s) { return changes::request_cancel(s, tenant, id); });
  }
  Task<bool> end_sandbox(std::string id, std::string reason) override {
    return change<bool>([id = std::move(id), reason = std::move(reason), now = clock_.wall_ms()](Session& s) {
      return changes::end_sandbox(s, id, reason, now);
    });
  }
  Task<> note_snapshot(std::string id, std::string snapshot) override {
    return change<void>([id = std::move(id), snapshot = std::move(snapshot), now = clock_.wall_ms()](Session& s) {
      return changes::note_snapshot(s, id, snapshot, now);
    });
  }
  Task<bool> correct_state(std::string id, SandboxState state) override {
    return change<bool>(
        [id = std::move(id), state, now = clock_.wall_ms()](Session& s) { return changes::correct_state(s, id, state, now); });
  }

  Task<std::map<std::string, std::string>> kept_settings(std::string sandbox) override {
    using Texts = std::map<std::string, std::string>;
    return database_->read<Texts>(
        [sandbox = std::move(sandbox)](Session& s) -> Result<Texts> { return changes::kept_settings(s, sandbox); });
  }
  Task<bool> adopt_sandbox(Sandbox sandbox, Kept kept) override {
    return change<bool>([sandbox = std::move(sandbox), kept = std::move(kept), now = clock_.wall_ms()](Session& s) -> Result<bool> {
      return changes::adopt_sandbox(s, sandbox, kept, now);
    });
  }
  Task<bool> adopt_egress(EgressSettings settings) override {
    return change<bool>([settings = std::move(settings), now = clock_.wall_ms()](Session& s) -> Result<bool> {
      return changes::adopt_egress(s, settings, now);
    });
  }
  Task<std::map<std::string, std::int64_t>> tenants_without_key() override {
    using Counts = std::map<std::string, std::int64_t>;
    return database_->read<Counts>([](Session& s) -> Result<Counts> { return changes::tenants_without_key(s); });
  }

  Task<Sandbox> find_sandbox(std::string tenant, std::string id) override {
    return database_->read<Sandbox>([tenant = std::move(tenant), id = std::move(id)](Session& s) -> Result<Sandbox> {
      auto found = rows::sandbox(s, id);
      if (!found || found->tenant != tenant) return fail(changes::sandbox_not_found(id));
      return std::move(*found);
    });
  }
  Task<Sandbox> find_any_sandbox(std::string id) override {
    return database_->read<Sandbox>([id = std::move(id)](Session& s) -> Result<Sandbox> {
      auto found = rows::sandbox(s, id);
      if (!found) return fail(changes::sandbox_not_found(id));
      return std::move(*found);
    });
  }
  Task<> put_settings(std::string sandbox, std::string text) override {
    return change<void>([sandbox = std::move(sandbox), text = std::move(text), now = clock_.wall_ms()](Session& s) {
      return changes::put_settings(s, sandbox, text, now);
    });
  }
  Task<std::string> find_settings(std::string sandbox) override {
    return database_->read<std::string>(
        [sandbox = std::move(sandbox)](Session& s) -> Result<std::string> { return changes::find_settings(s, sandbox); });
  }
  Task<Sandbox> set_deadline(std::string tenant, std::string id, std::int64_t ends_ms, bool only_later) override {
    return change<Sandbox>([tenant = std::move(tenant), id = std::move(id), ends_ms, only_later](Session& s) {
      return changes::set_deadline(s, tenant, id, ends_ms, only_later);
    });
  }
  Task<std::vector<Sandbox>> list_sandboxes(std::string tenant, Page page, SandboxFilter filter) override;
  Task<std::vector<Owned>> owned_sandboxes() override;
  Task<std::vector<Sandbox>> resting_sandboxes() override {
    return database_->read<std::vector<Sandbox>>([](Session& s) -> Result<std::vector<Sandbox>> {
      return rows::sandboxes(s, "WHERE rest <> '' AND state IN ('running', 'paused') LIMIT 10000");
    });
  }
  Task<std::vector<Sandbox>> due_sandboxes(std::int64_t now_ms) override {
    return database_->read<std::vector<Sandbox>>([now_ms](Session& s) -> Result<std::vector<Sandbox>> {
      return rows::sandboxes(s, "WHERE ends_ms > 0 AND ends_ms <= :now ORDER BY ends_ms LIMIT 1000", now_ms);
    });
  }
  Task<std::vector<Sandbox>> old_remains(std::int64_t before_ms) override {
    return database_->read<std::vector<Sandbox>>([before_ms](Session& s) -> Result<std::vector<Sandbox>> {
      return rows::sandboxes(
          s,
          "WHERE over_ms > 0 AND over_ms < :before AND NOT (state = 'ended' AND EXISTS (SELECT 1 FROM labels l WHERE l.sandbox = "
          "sandboxes.id AND l.name = 'space.volume')) AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.sandbox = sandboxes.id AND "
          "o.finished_ms = 0) LIMIT 1000",
          before_ms);
    });
  }
  Task<std::int64_t> next_deadline() override {
    return database_->read<std::int64_t>([](Session& s) -> Result<std::int64_t> {
      const auto row = s.query<long long>("SELECT COALESCE(MIN(ends_ms), 0) FROM sandboxes WHERE ends_ms > 0");
      return std::get<0>(row.front());
    });
  }
  Task<Operation> find_operation(std::string tenant, std::string id) override {
    return database_->read<Operation>([tenant = std::move(tenant), id = std::move(id)](Session& s) -> Result<Operation> {
      auto found = rows::operation(s, id);
      if (!found || found->tenant != tenant) return fail(changes::operation_not_found(id));
      return std::move(*found);
    });
  }
  Task<std::vector<Operation>> list_operations(std::string tenant, Page page, OperationFilter filter) override;
  Task<std::vector<Operation>> unfinished_operations() override {
    return database_->read<std::vector<Operation>>(
        [](Session& s) -> Result<std::vector<Operation>> { return rows::operations(s, "WHERE finished_ms = 0 ORDER BY sequence"); });
  }

  Task<std::vector<Event>> events_after(std::string tenant, std::int64_t sequence, std::size_t limit) override;
  Task<EventWindow> event_window() override;

  Task<> put_key(Key key) override {
    return change<void>([key = std::move(key)](Session& s) { return changes::put_key(s, key); });
  }
  Task<Key> find_key_by_hash(std::string hash) override {
    return database_->read<Key>([hash = std::move(hash)](Session& s) -> Result<Key> {
      auto found = changes::read_keys(s, "hash", hash);
      if (found.empty()) return fail(ErrorKind::not_found, "key_not_found", "there is no such key", "list what there is: GET /v1/keys");
      return std::move(found.front());
    });
  }
  Task<std::vector<Key>> list_keys(std::string tenant) override {
    return database_->read<std::vector<Key>>(
        [tenant = std::move(tenant)](Session& s) -> Result<std::vector<Key>> { return changes::read_keys(s, "tenant", tenant); });
  }
  Task<Key> revoke_key(std::string tenant, std::string id) override {
    return change<Key>([tenant = std::move(tenant), id = std::move(id), now = clock_.wall_ms()](Session& s) {
      return changes::revoke_key(s, tenant, id, now);
    });
  }
  Task<std::vector<std::string>> tenants() override {
    return database_->read<std::vector<std::string>>([](Session& s) -> Result<std::vector<std::string>> { return changes::tenants(s); });
  }
  Task<std::size_t> count_keys() override {
    return database_->read<std::size_t>([](Session& s) -> Result<std::size_t> {
      return static_cast<std::size_t>(std::get<0>(s.query<long long>("SELECT COUNT(*) FROM keys").front()));
    });
  }

  Task<std::optional<KeptAnswer>> begin_answer(std::string tenant, std::string key, std::string fingerprint) override {
    return change<std::optional<KeptAnswer>>(
        [tenant = std::move(tenant), key = std::move(key), fingerprint = std::move(fingerprint), now = clock_.wall_ms()](Session& s) {
          return changes::begin_answer(s, tenant, key, fingerprint, now);
        });
  }
  Task<std::optional<KeptAnswer>> find_answer(std::string tenant, std::string key, std::string fingerprint) override {
    return database_->read<std::optional<KeptAnswer>>(
        [tenant = std::move(tenant), key = std::move(key), fingerprint = std::move(fingerprint)](Session& s) {
          return changes::find_answer(s, tenant, key, fingerprint);
        });
  }
  Task<> remember_answer(std::string tenant, std::string key, KeptAnswer answer) override {
    return change<void>([tenant = std::move(tenant), key = std::move(key), answer = std::move(answer), now = clock_.wall_ms()](Session& s) {
      return changes::remember_answer(s, tenant, key, answer, now);
    });
  }
  Task<> forget_answer(std::string tenant, std::string key) override {
    return change<void>([tenant = std::move(tenant), key = std::move(key)](Session& s) { return changes::forget_answer(s, tenant, key); });
  }

  Task<EgressSettings> put_egress(std::string tenant, std::string sandbox, std::string document,
                                  std::optional<std::int64_t> expected) override {
    return change<EgressSettings>(
        [tenant = std::move(tenant), sandbox = std::move(sandbox), document = std::move(document), expected,
         now = clock_.wall_ms()](Session& s) { return changes::put_egress(s, tenant, sandbox, document, expected, now); });
  }
  Task<EgressSettings> find_egress(std::string tenant, std::string sandbox) override {
    return database_->read<EgressSettings>(
        [tenant = std::move(tenant), sandbox = std::move(sandbox)](Session& s) { return changes::find_egress(s, tenant, sandbox); });
  }
  Task<std::vector<EgressSettings>> all_egress() override {
    return database_->read<std::vector<EgressSettings>>(
        [](Session& s) -> Result<std::vector<EgressSettings>> { return changes::all_egress(s); });
  }
  Task<> set_port(std::string tenant, std::string sandbox, std::uint16_t port, bool is_public) override {
    return change<void>([tenant = std::move(tenant), sandbox = std::move(sandbox), port, is_public](Session& s) {
      return changes::set_port(s, tenant, sandbox, port, is_public);
    });
  }
  Task<std::vector<std::uint16_t>> public_ports(std::string tenant, std::string sandbox) override {
    return database_->read<std::vector<std::uint16_t>>(
        [tenant = std::move(tenant), sandbox = std::move(sandbox)](Session& s) { return changes::public_ports(s, tenant, sandbox); });
  }
  Task<bool> port_is_public(std::string sandbox, std::uint16_t port) override {
    return database_->read<bool>(
        [sandbox = std::move(sandbox), port](Session& s) -> Result<bool> { return changes::port_is_public(s, sandbox, port); });
  }

  Task<std::size_t> prune(Retention retention) override {
    auto work = [retention, now = clock_.wall_ms()](Session& s) { return changes::prune(s, retention, now); };
    auto removed = co_await change<std::size_t>(std::move(work));
    CO_TRY_VOID(co_await database_->checkpoint());
    co_return removed;
  }
  void on_events(std::function<void()> observer) override { observer_ = std::move(observer); }
  Counters counters() const override { return {database_->transactions.load(), database_->changes.load(), database_->failures.load()}; }

 private:
  // Every change may have appended events; whoever waits for them looks for himself.
  template <class T, class F>
  Task<T> change(F work) {
    std::function<Result<T>(Session&)> call = std::move(work);
    auto result = co_await database_->write<T>(std::move(call));
    if (++since_checkpoint_ >= 500) {
      since_checkpoint_ = 0;
      spawn(executor_, [](Database* database) -> asio::awaitable<void> { (void)co_await database->checkpoint(); }(database_.get()));
    }
    if (observer_) observer_();
    co_return result;
  }

  std::unique_ptr<Database> database_;
  asio::any_io_executor executor_;
  const Clock& clock_;
  std::function<void()> observer_;
  int since_checkpoint_ = 0;
};

// A page goes from the newest to the oldest by sequence, so that what comes or goes meanwhile neither repeats nor hides an item.
Task<std::vector<Sandbox>> SqliteStore::list_sandboxes(std::string tenant, Page page, SandboxFilter filter) {
  // Filters are bound as texts under one fixed statement each, so the kept statements stay few.
  std::string states;
  for (SandboxState state : filter.states) states += "," + std::string(to_string(state)) + ",";
  return database_->read<std::vector<Sandbox>>([tenant = std::move(tenant), page, states = std::move(states),
                                                metadata = std::move(filter.metadata),
                                                volumes = filter.with_volumes](Session& s) -> Result<std::vector<Sandbox>> {
    const std::int64_t before = page.before > 0 ? page.before : INT64_MAX;
    std::string where = "WHERE tenant = :tenant AND sequence < :before AND (:any = '' OR :states LIKE '%,' || state || ',%')";
    if (!volumes) where += " AND NOT EXISTS (SELECT 1 FROM labels l WHERE l.sandbox = sandboxes.id AND l.name = 'space.volume')";
    std::vector<Sandbox> out;
    if (metadata.empty())
      return rows::sandboxes(s, where + " ORDER BY sequence DESC LIMIT :limit", tenant, before, states, states, page.limit);
    const auto& [name, value] = *metadata.begin();
    where += " AND id IN (SELECT sandbox FROM labels WHERE name = :name AND value = :value) ORDER BY sequence DESC LIMIT :limit";
    // The index finds the first entry; the others are compared here, page after page until enough match.
    for (std::int64_t from = before; out.size() < page.limit;) {
      auto found = rows::sandboxes(s, where, tenant, from, states, states, name, value, page.limit);
      const bool last = found.size() < page.limit;
      if (!found.empty()) from = found.back().sequence;
      for (Sandbox& sandbox : found) {
        const bool all = std::ranges::all_of(metadata, [&](const auto& want) {
          const auto has = sandbox.metadata.find(want.first);
          return has != sandbox.metadata.end() && has->second == want.second;
        });
        if (all && out.size() < page.limit) out.push_back(std::move(sandbox));
      }
      if (last) break;
    }
    return out;
  });
}

Task<std::vector<Owned>> SqliteStore::owned_sandboxes() {
  return database_->read<std::vector<Owned>>([](Session& s) -> Result<std::vector<Owned>> {
    std::vector<Owned> out;
    for (auto& [id, tenant, state, busy] :
         s.query<std::string, std::string, std::string, long long>("SELECT id, tenant, state, EXISTS (SELECT 1 FROM operations o WHERE "
                                                                   "o.sandbox = sandboxes.id AND o.finished_ms = 0) FROM sandboxes"))
      out.push_back({id, tenant, sandbox_state(state).value_or(SandboxState::failed), busy != 0});
    return out;
  });
}

Task<std::vector<Operation>> SqliteStore::list_operations(std::string tenant, Page page, OperationFilter filter) {
  std::string states;
  for (OperationState state : filter.states) states += "," + std::string(to_string(state)) + ",";
  return database_->read<std::vector<Operation>>([tenant = std::move(tenant), page, states = std::move(states),
                                                  sandbox = std::move(filter.sandbox)](Session& s) -> Result<std::vector<Operation>> {
    const std::int64_t before = page.before > 0 ? page.before : INT64_MAX;
    const std::string rest =
        "tenant = :tenant AND sequence < :before AND (:any = '' OR :states LIKE '%,' || state || ',%') ORDER BY sequence DESC LIMIT :limit";
    if (sandbox.empty()) return rows::operations(s, "WHERE " + rest, tenant, before, states, states, page.limit);
    return rows::operations(s, "WHERE sandbox = :sandbox AND " + rest, sandbox, tenant, before, states, states, page.limit);
  });
}

Task<std::vector<Event>> SqliteStore::events_after(std::string tenant, std::int64_t sequence, std::size_t limit) {
  return database_->read<std::vector<Event>>([tenant = std::move(tenant), sequence, limit](Session& s) -> Result<std::vector<Event>> {
    std::vector<Event> out;
    for (auto& row : s.query<long long, std::string, std::string, std::string, std::string, std::string, long long>(
             "SELECT sequence, tenant, type, sandbox, operation, data, time_ms FROM events WHERE sequence > :after AND tenant = :tenant "
             "ORDER BY sequence "
             "LIMIT :limit",
             sequence, tenant, limit)) {
      Event event;
      std::tie(event.sequence, event.tenant, event.type, event.sandbox, event.operation, event.data, event.time_ms) = std::move(row);
      out.push_back(std::move(event));
    }
    return out;
  });
}

Task<EventWindow> SqliteStore::event_window() {
  return database_->read<EventWindow>([](Session& s) -> Result<EventWindow> {
    const auto row = s.query<long long, long long>("SELECT COALESCE(MIN(sequence), 1), COALESCE(MAX(sequence), 0) FROM events");
    EventWindow window{std::get<0>(row.front()), std::get<1>(row.front())};
    if (window.last == 0) {  // everything was pruned: the numbers go on
      const auto used = s.query<long long>("SELECT seq FROM sqlite_sequence WHERE name = 'events'");
      if (!used.empty()) window = {std::get<0>(used.front()) + 1, std::get<0>(used.front())};
    }
    return window;
  });
}

}  // namespace

Result<std::unique_ptr<Store>> open_sqlite_store(const std::filesystem::path& path, asio::any_io_executor executor, const Clock& clock) {
  TRY(auto database, Database::open(path));
  return std::make_unique<SqliteStore>(std::move(database), std::move(executor), clock);
}

}  // namespace space::control
