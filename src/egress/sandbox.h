// One sandbox as its tenant's worker sees it: settings, synthetic addresses, sockets, open connections. On the worker's loop.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "egress/dialer.h"
#include "egress/event.h"
#include "egress/limits.h"
#include "egress/name_map.h"
#include "egress/observed.h"
#include "egress/reporter.h"
#include "egress/settings.h"

namespace space::egress {

class Flow;
class CredentialTable;
class Authorities;
class UpstreamTls;

// What all sandboxes of a worker share; outlives them.
struct Services {
  asio::any_io_executor executor;
  Dialer* dialer = nullptr;
  CredentialTable* credentials = nullptr;
  Authorities* authorities = nullptr;
  UpstreamTls* upstream_tls = nullptr;
  // A message to the parent; false when it is gone. What was told has reached the kernel, or the channel is congested.
  std::function<bool(json::object)> tell;
  std::function<asio::awaitable<void>()> told;  // returns when the congestion is over
  std::function<Result<Endpoint>(int)> original_destination = egress::original_destination;
  // For bytes that are passed on at once: whoever uses it has done with it before it waits for anything.
  std::shared_ptr<std::array<char, 64 << 10>> scratch = std::make_shared<std::array<char, 64 << 10>>();
};

struct Counters {
  std::uint64_t connections = 0, requests = 0, denied = 0, bytes_up = 0, bytes_down = 0;
  // Of what got through: connections that were made to the outside, and bytes that went to it or came from it.
  std::uint64_t dialled = 0, outside = 0;
};

class Sandbox : public std::enable_shared_from_this<Sandbox> {
 public:
  Sandbox(Services& services, std::string id);
  ~Sandbox();

  // Takes effect before it returns; connections that the new policy forbids are cut.
  void update(std::shared_ptr<const Settings> settings);
  // [TCP, UDP DNS, TCP DNS] of a load; listens and serves from now on. Another load's sockets go first.
  Result<> serve(std::vector<Fd> sockets);
  void detach();  // closes the sockets and cuts every connection; events that wait are told

  const std::string& id() const { return id_; }
  Services& services() { return services_; }
  const std::shared_ptr<const Settings>& settings() const { return settings_; }  // never nullptr; policy none at first
  ResolverCache& resolver_cache() { return resolver_cache_; }
  Budget& budget() { return budget_; }
  NameMap& names() { return names_; }
  Counters& counters() { return counters_; }
  Observed& observed() { return observed_; }

  // The number of an allowed name's synthetic address; the parent has heard of it before the guest does. 0: full.
  asio::awaitable<std::uint32_t> number_of(std::string name);
  // Adds the id and the generation. Told at once, or within a second as one event with others like it: bounded in rate, and none is lost.
  void report(Event event);

  // Connections that were accepted and are not over yet. Counted before serve_connection() runs, which counts down: those that are
  // accepted in one burst must not all see the count from before it.
  std::size_t admitted = 0;

  void add(Flow& flow) { flows_.insert(&flow); }
  void remove(Flow& flow) { flows_.erase(&flow); }
  std::size_t open_connections() const { return flows_.size(); }
  std::size_t open_outside() const;  // of those the ones that have dialled

 private:
  struct Sockets;
  void tell(const Event& event);
  void tell_waiting();

  Services& services_;
  std::string id_;
  std::shared_ptr<const Settings> settings_;
  ResolverCache resolver_cache_;
  Budget budget_;
  NameMap names_;
  Counters counters_;
  Observed observed_;
  Reporter reporter_;
  asio::steady_timer flush_;
  bool flush_set_ = false;
  std::set<Flow*> flows_;
  std::shared_ptr<Sockets> sockets_;
};

}  // namespace space::egress
