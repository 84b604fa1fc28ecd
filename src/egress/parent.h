// The gateway's parent: what it was told about every sandbox, the descriptors of their sockets, and a worker for each tenant.
// It reads nothing that a guest or an upstream wrote, except a worker's own messages, which it reads strictly.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "egress/audit.h"
#include "egress/egress.h"
#include "egress/figures.h"
#include "egress/records.h"
#include "egress/settings.h"
#include "egress/vault.h"
#include "egress/worker_process.h"
#include "wire/refusals.h"

namespace space::egress {

// What belongs to one sandbox here. Mutations of one sandbox happen one after another (Parent::Turn).
struct ParentSandbox {
  std::string id;
  std::string tenant;
  std::unique_ptr<Settings> settings;  // nullptr: sockets came, settings did not
  std::set<std::string> changes;       // announced, not settled
  bool held = false;                   // since this process began some were never settled: the settings may be old, and are not in force
  NameMap names;
  bool names_behind = false;  // not all of them are on the disk: catch_up()
  std::chrono::steady_clock::time_point caught_up{};
  std::string load;  // "" without sockets
  std::vector<Fd> sockets;
  json::object counters, traffic;
  std::int64_t total_bytes = 0;
  bool busy = false;
};

class Parent {
 public:
  Parent(asio::any_io_executor executor, const EgressConfig& config, BlockingPool& disk, AuditLog& audit, Vault vault);
  Result<> open();  // reads the records; blocks, before the loop runs

  // HTTP (docs/egress.md). All take effect in the worker before they return. `put` fails with unavailable/policy_held when it has kept
  // the settings and the sandbox is held all the same; the same settings may be put again.
  Task<> put(std::string id, Settings settings, std::vector<std::string> settles = {});
  // A change of the settings begins elsewhere: from now on what is on the disk here may be older than what was decided. A gateway that
  // begins with a change that is neither settled (by a put) nor withdrawn serves the sandbox nothing until it is. Durable when it
  // returns; at most 64 of a sandbox, else too_many_changes.
  Task<> announce(std::string id, std::string change);
  Task<> withdraw(std::string id, std::string change);
  Task<> remove(std::string id);
  Result<json::object> state(const std::string& id) const;
  json::array states() const;
  // Of every sandbox that has sockets, as its worker told last, within two seconds: what is open to the outside and what passed.
  json::array traffic() const;
  // The map as it is when this is called or newer, and on the disk: a checkpoint may carry it.
  Task<json::object> names(std::string id);
  // Only ever longer: success when either of both maps begins with the other, else conflict/names_in_use.
  Task<> put_names(std::string id, NameMap names);
  Task<json::object> observed(std::string id);
  Result<const Settings*> settings(const std::string& id) const;
  json::object info() const;
  std::string figures() const;  // for Prometheus
  Result<json::object> explain(const Settings& settings, const std::string& method, const std::string& url) const;

  // Credentials and CAs; durable and with the worker before they return. A value is never given back.
  Task<json::object> put_credential(std::string tenant, std::string name, Secret value);
  Task<json::object> put_sealed_credential(std::string tenant, std::string name, Secret box);  // SealingKey
  std::string sealing_key() const { return vault_.sealing_key().public_key(); }
  json::array credentials(const std::string& tenant) const;
  Task<> remove_credential(std::string tenant, std::string name);
  Task<std::string> certificate(std::string tenant, std::string lineage);  // PEM; made at first use
  Task<> remove_lineage(std::string tenant, std::string lineage);          // conflict/lineage_in_use
  json::array lineages() const;

  // What the rules of its namespace refused since that was told last, in packets: an event for each reason, and a figure. not_found.
  Result<> refused(const std::string& id, const wire::Refusals& grown);

  // From node.
  Task<> attach(std::string id, std::string tenant, std::string load, std::vector<Fd> sockets);
  Task<> detach(std::string id, std::string load);

  asio::awaitable<void> watch_own_addresses();  // tells the workers when the host's addresses change
  AuditLog& audit() { return audit_; }

 private:
  struct TenantWorker {
    std::shared_ptr<WorkerProcess> process;  // nullptr while it waits to be started again
    bool kept = false;                       // a coroutine keeps it running
    std::set<std::string> given;             // sandboxes that this process was told of
  };
  class Turn;  // of one sandbox

  ParentSandbox& entry(const std::string& id);
  ParentSandbox* find(const std::string& id);
  const ParentSandbox* find(const std::string& id) const;
  bool used(const std::string& tenant) const;
  asio::awaitable<void> keep_worker(std::string tenant);
  Result<> begin_worker(const std::string& tenant, TenantWorker& worker);
  void introduce(WorkerProcess& process, TenantWorker& worker, ParentSandbox& sandbox);  // settings, names, sockets
  Task<> settle(ParentSandbox& sandbox, std::vector<std::string> changes);               // of whoever has the Turn
  Task<> end_put(ParentSandbox& sandbox, std::vector<std::string> settles);              // likewise
  Task<> ensure_lineage(std::string tenant, std::string lineage);
  void give_secrets(const std::string& tenant, WorkerProcess& process);
  void ensure_worker(const std::string& tenant);
  // A call to the tenant's worker if there is one. When it dies meanwhile, its successor starts with the new state: success.
  Task<> tell_worker(std::string tenant, Message message);
  void heard(const std::string& tenant, const json::object& body);
  Result<> catch_up(ParentSandbox& sandbox);  // writes all names that there are

  asio::any_io_executor executor_;
  const EgressConfig& config_;
  BlockingPool& disk_;
  AuditLog& audit_;
  Records records_;
  Vault vault_;
  Figures figures_;
  std::set<std::string> making_;  // lineages whose CA is being written
  std::map<std::string, std::unique_ptr<ParentSandbox>> sandboxes_;
  std::map<std::string, TenantWorker> workers_;
  std::vector<std::string> own_addresses_, resolvers_;
  Signal changed_;
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace space::egress
