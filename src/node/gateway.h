// The egress gateway as node sees it: it gets the listening sockets of every sandbox's namespace, again whenever it was replaced,
// says which certificate a guest is to trust, and keeps what a guest's addresses stand for. Whatever goes wrong here leaves a sandbox
// without a network, never with an open one, so that nothing waits for the gateway longer than a moment; what was missed then is made
// up for when it is back. docs/egress.md has the other end.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/async.h"
#include "http/client.h"
#include "wire/egress_handover.h"
#include "wire/warden_client.h"

namespace space::node {

class Gateway {
 public:
  struct Member {
    std::string sandbox, tenant;
    std::string lineage;  // whose certificate authority it has: the sandbox itself, or the root that it was forked from
    // What a checkpoint says of its addresses; nullptr for a fresh one. The gateway knows it before it gets the sockets.
    std::shared_ptr<const std::string> names;
  };
  struct Lineage {
    std::string lineage, tenant;
  };

  // `run_dir` holds egress/fds.sock and egress/egress.sock. For node's loop; the warden outlives it.
  Gateway(asio::any_io_executor executor, std::shared_ptr<wire::WardenClient> warden, const std::filesystem::path& run_dir);
  ~Gateway();

  // The VM is this sandbox from now on: its sockets go to the gateway, now or when there is one. Gives the certificate (PEM) that the
  // guest is to trust, "" when the gateway does not answer within a few seconds. A second call for a VM hands nothing over again, and
  // asks nothing while the gateway is the one that answered the first.
  asio::awaitable<std::string> admit(std::string vm, Member member);
  // Called with a VM whose guest did not get its certificate, when the gateway is there again: it is to be admitted once more.
  void on_late(std::function<void(std::string vm)> call) { late_ = std::move(call); }
  // What the sandbox's addresses stand for, as a checkpoint keeps it; "" when it was never told one. On the gateway's disk when it
  // returns. unavailable/egress_unavailable after a few seconds without an answer.
  Task<std::string> names(std::string sandbox);
  // The certificate authorities that there are, and the end of one. conflict/lineage_in_use while a policy names it.
  Task<std::vector<Lineage>> lineages();
  Task<> forget(Lineage lineage);
  // The VM goes: when it returns no process but the warden holds a socket of its namespace, unless the gateway hangs (10 s).
  asio::awaitable<void> dismiss(std::string vm);
  // Keeps the connection and hands over what is due; until the loop ends. Spawned once.
  asio::awaitable<void> run();

 private:
  struct Entry {
    Member member;
    std::string load;  // what the gateway calls this hand-over
    bool handed = false;
    bool asked = false;       // a hand-over is under way
    bool refused = false;     // the gateway holds other addresses than the checkpoint: no network, rather than a wrong one
    bool late = false;        // its guest waits for its certificate
    std::string certificate;  // that the gateway gave; one for the lineage's whole life
  };
  asio::awaitable<bool> hand_over(std::string vm);
  asio::awaitable<bool> connect();
  Task<std::string> certificate(Member member);
  Task<> give_names(const Member& member);
  // Tries again for a moment while the gateway is being replaced.
  Task<std::string> ask(http::Request request, std::size_t limit);
  void lost(const std::shared_ptr<wire::EgressClient>& client);
  static asio::awaitable<void> closed(std::shared_ptr<wire::EgressClient> client);

  asio::any_io_executor executor_;
  std::shared_ptr<wire::WardenClient> warden_;
  std::filesystem::path run_dir_;
  BlockingPool pool_{2};  // of its own: a gateway that hangs must not take the disk's threads
  http::Client http_;
  std::shared_ptr<wire::EgressClient> client_;
  std::map<std::string, Entry> entries_;  // by VM
  std::function<void(std::string)> late_;
  Signal changed_;
};

}  // namespace space::node
