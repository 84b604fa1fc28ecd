// A tenant's worker: the part of the gateway that guests and upstreams speak to. What it holds came over the channel.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "egress/authority.h"
#include "egress/channel.h"
#include "egress/credentials.h"
#include "egress/sandbox.h"

namespace space::egress {

class Worker {
 public:
  Worker(asio::any_io_executor executor, std::unique_ptr<Channel> channel);
  ~Worker();
  asio::awaitable<void> run();  // until the parent is gone

 private:
  // Each message has "type" and "call"; the answer {"type":"done","call",…} or with "error" comes when it is in force.
  Result<json::object> take(Message& message);
  Result<> start(const json::object& body);
  Result<> set_sandbox(const json::object& body);
  asio::awaitable<void> report_counters();
  std::shared_ptr<Sandbox> sandbox(const std::string& id);

  asio::any_io_executor executor_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<Dialer> dialer_;
  std::unique_ptr<UpstreamTls> upstream_tls_;
  CredentialTable credentials_;
  Authorities authorities_;
  Services services_;
  std::map<std::string, std::shared_ptr<Sandbox>> sandboxes_;
};

}  // namespace space::egress
