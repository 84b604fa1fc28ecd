// The warden's loop: connections of its few allowed peers, the ends of VMMs, and the signal to stop. One thread.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "warden/service.h"
#include "wire/warden_protocol.h"

namespace space::warden {

class Server {
 public:
  // `stop` is readable when it is time to end. `peers` beside root.
  static Result<std::unique_ptr<Server>> make(Fd listener, Fd stop, std::vector<uid_t> peers);

  void watch(const Fd& pidfd);  // for Service
  Result<> run(Service& service);

 private:
  struct Peer {
    Fd socket;
    uid_t uid = 0;
    // A destroy that waits for its VMM to end; no other request is read meanwhile.
    std::optional<wire::WardenRequest> waiting;
    std::chrono::steady_clock::time_point give_up;
  };

  Server(Fd epoll, Fd listener, Fd stop, std::vector<uid_t> peers)
      : epoll_(std::move(epoll)), listener_(std::move(listener)), stop_(std::move(stop)), allowed_(std::move(peers)) {}
  Result<> add(int fd, std::uint32_t events);
  void accept();
  bool serve(Peer& peer, Service& service);  // false: the connection is over
  bool answer(Peer& peer, const wire::WardenRequest& request, std::vector<Fd> fds, Service& service);
  void retry(Service& service);

  Fd epoll_, listener_, stop_;
  std::vector<uid_t> allowed_;
  std::map<int, Peer> peers_;
};

}  // namespace space::warden
